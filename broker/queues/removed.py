"""What is said of messages that retention removed before a group settled them: no answer tells anybody."""

from __future__ import annotations

from ...protocol.topic_name import short_name
from ..delivery.offset_set import OffsetSet
from ..report import Report
from .ledger import Ledger


def tell_removed(ledger: Ledger, report: Report, gone: OffsetSet, held: int) -> None:
    """Say in the log how many they were, and how many of them somebody held."""
    report(
        "unsettled messages removed by retention",
        group=short_name(ledger.group.name),
        topic_id=ledger.partition.topic_id,
        partition=ledger.partition.index,
        messages=len(gone),
        held=held,
        first=gone.min(),
    )
