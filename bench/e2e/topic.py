"""The topic that is measured: one partition, filled and read back."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog import Client

from ..errors import VerificationError
from ..values import InOrder

TOPIC = "t"
WARM_UP_TOPIC = "warm-up"

LIST_LENGTH = 100_000
"""Messages given to one `produce_many`."""


def create_topics(client: Client) -> None:
    """Make the topic, and one for what is not timed."""
    for topic in (WARM_UP_TOPIC, TOPIC):
        client.topics.create(topic, partitions=1)


def produce_lists(client: Client, topic: str, values: Sequence[bytes]) -> None:
    """Produce in lists. Raises VerificationError when the receipts are not those of an empty topic filled in order."""
    stored = 0
    while stored < len(values):
        receipts = client.produce_many(topic, values[stored : stored + LIST_LENGTH])
        first, last = int(receipts.offsets[0]), int(receipts.offsets[-1])
        if (first, last) != (stored, stored + len(receipts) - 1):
            raise VerificationError(f"expected offsets from {stored} on, found {first} to {last}")
        stored += len(receipts)


def verify(client: Client, values: Sequence[bytes]) -> None:
    """Read the topic and compare every value in order. Raises VerificationError."""
    check = InOrder(values)
    for batch in client.replay(TOPIC, start="earliest"):
        check.take(list(batch.values))
    check.finish()
