"""A whole data directory: its facts, and every log that they name."""

from __future__ import annotations

from ...protocol.errors import StorageError, TidelogError, UnsupportedError
from ..data_folder import FORMAT, OUR_OWN, VERSION
from ..delivery.events import decode_event
from ..message_log import MESSAGES_FOLDER, messages_log_id
from ..meta.facts import decode_fact
from ..meta.meta_log import META_FOLDER, META_LOG_ID
from ..meta.state import MetaState, apply
from ..opening import PARTITIONS_FOLDER, parse_folder, partition_folder
from ..queues.delivery_log import DELIVERY_FOLDER, delivery_log_id
from ..storage.entries import Entries
from ..storage.files import Files
from ..storage.inventory import holds_log
from .findings import Findings
from .log_check import check_log
from .segment_reading import SegmentFile


def check_data(files: Files) -> Findings:
    """Check every checksum and index under a data directory.

    Raises StorageError for a folder that is none, UnsupportedError for one of a later version.
    """
    findings = Findings()
    _check_root(files, findings)
    state = _check_facts(files, findings)
    _check_partitions(files, state, findings)
    return findings


def _check_root(files: Files, findings: Findings) -> None:
    if not files.exists(VERSION):
        raise StorageError(f"expected a data directory, found a folder without the file {VERSION}")
    found = files.read(VERSION)
    if found != FORMAT:
        raise UnsupportedError(
            f"expected a data directory of format {FORMAT.decode().strip()}, found {found[:40]!r} in {VERSION}"
        )
    for name in sorted(set(files.list_folder("")) - OUR_OWN):
        findings.note(name, "a file that no broker made")


def _check_facts(files: Files, findings: Findings) -> MetaState:
    """Check the broker's own log, and return the state that its facts make."""
    state = MetaState()

    def take(segment: SegmentFile, entries: Entries) -> None:
        for position in entries["position"].tolist():
            try:
                for value in segment.batch(position).values:
                    apply(state, decode_fact(value or b""))
            except (TidelogError, KeyError) as error:
                findings.damage(segment.path, f"the facts at byte {position} cannot be applied: {error}")

    if holds_log(files, META_FOLDER):
        check_log(files, META_FOLDER, META_LOG_ID, findings, take)
    else:
        findings.damage(META_FOLDER, "the broker's own facts are missing")
    return state


def _check_deliveries(files: Files, state: MetaState, topic_id: int, index: int, findings: Findings) -> None:
    """Check what is recorded of a partition's deliveries, event by event."""
    folder = f"{partition_folder(topic_id, index)}/{DELIVERY_FOLDER}"

    def take(segment: SegmentFile, entries: Entries) -> None:
        for position in entries["position"].tolist():
            try:
                for value in segment.batch(position).values:
                    decode_event(value or b"")
            except TidelogError as error:
                findings.damage(segment.path, f"the events at byte {position} cannot be read: {error}")

    if holds_log(files, folder):
        check_log(files, folder, delivery_log_id(topic_id, index), findings, take)
    elif (topic_id, index) in state.deliveries.made:
        findings.damage(folder, "what was recorded of deliveries is missing: which messages were settled is not known")


def _check_partitions(files: Files, state: MetaState, findings: Findings) -> None:
    present = files.list_folder(PARTITIONS_FOLDER) if files.exists(PARTITIONS_FOLDER) else []
    for topic in state.topics.values():
        for index in range(topic.partitions):
            folder = partition_folder(topic.id, index)
            if holds_log(files, f"{folder}/{MESSAGES_FOLDER}"):
                check_log(files, f"{folder}/{MESSAGES_FOLDER}", messages_log_id(topic.id, index), findings)
            elif index < topic.made:
                findings.damage(folder, f"partition {index} of {topic.name} is missing with all its records")
            _check_deliveries(files, state, topic.id, index, findings)
    for name in present:
        place = parse_folder(name)
        if place is None or (place[0] not in state.topics and place[0] not in state.tombstones):
            findings.note(f"{PARTITIONS_FOLDER}/{name}", "a folder of no topic that the facts know; it is left alone")
