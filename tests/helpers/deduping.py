"""Sending batches with dedup ids to one partition, and what became of them in a form that is easy to compare."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.helpers.broker_core import SECOND, Core
from tidelog.broker.partition import Partition
from tidelog.protocol.messages import BatchResult

MINUTE = 60 * SECOND
WINDOW = 10 * MINUTE

Again = Callable[[Core], Core]
AGAIN: dict[str, Again] = {
    "stopped": Core.after_stop,
    "killed": Core.after_kill,
    "power lost": lambda core: core.after_power_loss(random.Random(1)),
}


def shown(results: list[BatchResult]) -> list[tuple[int, int, list[tuple[int, int]]]]:
    """Return base offset, records stored and duplicates of each batch."""
    return [(result.base_offset, result.record_count, result.duplicates) for result in results]


def one(
    core: Core, partition: Partition, sent: memoryview, durability: int = 0
) -> tuple[int, int, list[tuple[int, int]]]:
    """Send one batch and return what became of it."""
    return shown(core.produce(partition, sent, durability=durability))[0]
