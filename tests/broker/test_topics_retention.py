"""The retention pass over all topics: what it removes when, and that no partition is in the way of another."""

from __future__ import annotations

from contextlib import suppress

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, start

from tidelog.protocol.errors import StorageError

HOUR = 3_600 * SECOND
DAY = 24 * HOUR


def test_retention_removes_whole_old_segments_after_the_first_hour() -> None:
    """Segments older than the retention go, but not within an hour of the start; an idle log's last one goes too."""
    core, partition = start(retention=4 * HOUR, segment_bytes=65_536)
    for n in range(8):
        core.produce(partition, batch(bytes([n]) * 30_000))
    core.advance(2 * SECOND)
    core = core.after_stop(downtime_us=4 * HOUR)
    partition = core.topic("orders").partition(0)
    core.topics.expire()
    assert partition.start_offset == 0
    core.advance(HOUR)
    core.produce(partition, batch(b"new"))
    core.topics.expire()
    assert (partition.start_offset, core.read(partition)) == (8, [b"new"])
    assert core.statistics().expired_segments == 4
    assert core.files.list_folder("partitions/1-0/messages")[0] == "00000000000000000008.log"


def test_a_clock_a_year_ahead_removes_nothing() -> None:
    """A wall clock that jumps a year forward and back removes nothing by age; later data ages as it should."""
    core, partition = start(retention=DAY, segment_bytes=65_536)
    for n in range(4):
        core.produce(partition, batch(bytes([n]) * 30_000))
    core.advance(2 * HOUR)
    core.topics.expire()
    core.clock.step_wall(365 * DAY)
    core.topics.expire()
    core.advance(HOUR)
    core.topics.expire()
    core.clock.step_wall(-365 * DAY)
    core.topics.expire()
    assert partition.start_offset == 0
    assert len(core.read(partition)) == 4


def test_retention_by_bytes_needs_no_clock() -> None:
    """Bytes beyond the limit are removed from the first pass on, whatever the time is."""
    core, partition = start(retention_bytes=100_000, segment_bytes=65_536)
    for n in range(10):
        core.produce(partition, batch(bytes([n]) * 30_000))
    core.advance(2 * SECOND)
    for _ in range(2):
        core.topics.expire()
        core.advance(2 * SECOND)
    assert partition.log.size_bytes <= 100_000
    assert partition.start_offset == 8


@pytest.mark.parametrize("trouble", [StorageError("a disk that answers EIO"), AssertionError("a bug")])
def test_one_partition_in_trouble_does_not_keep_the_others(trouble: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention of the others goes on, what they dropped leaves the disk, and the operator is told of the one."""
    core = Core()
    settings = {"retention_bytes": 100_000, "segment_bytes": 65_536}
    first, broken, last = (core.create(name, 1, settings).partition(0) for name in ("first", "broken", "last"))
    for partition in (first, last):
        for n in range(10):
            core.produce(partition, batch(bytes([n]) * 30_000))
    core.advance(2 * SECOND)

    def fail(now_us: int, *, age_allowed: bool, may_remove: object) -> None:
        raise trouble

    monkeypatch.setattr(broken, "expire", fail)
    with suppress(AssertionError):
        core.topics.expire()
    is_bug = isinstance(trouble, AssertionError)
    assert [first.start_offset, last.start_offset] == ([8, 0] if is_bug else [8, 8])
    assert core.events == ([] if is_bug else ["retention failed"])
    assert core.files.list_folder(first.log.folder)[0] == "00000000000000000008.log"
