"""Retention and the archive: nothing goes that is not in both places first, and everybody can see what waits."""

from __future__ import annotations

import os
import random
from contextlib import suppress
from pathlib import Path

import pytest
from tests.helpers.archiving import DEFAULTS, SECOND, ArchivingCore, archived_topic
from tests.helpers.broker_core import Core, model
from tests.helpers.object_stores import Died
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.errors import ArchiveOffError


def test_retention_waits_for_the_archive() -> None:
    """While the store is away nothing is removed, and it says so; what is archived then goes at the next look."""
    core, topic, partition = archived_topic()
    values = core.fill(partition, 15)
    core.store.go_away()
    core.advance(3 * SECOND)
    core.expire()
    assert partition.start_offset == 0
    told = topic.partition_info(0, "n", details=True)
    core.archive.describe(topic.id, told)
    assert (told.start_offset, told.held_segments, told.archived_end) == (0, 2, 0)
    assert told.archive_error is not None
    assert told.archive_error.error().code == "ARCHIVE_UNAVAILABLE"
    counted = core.archive.archiver.statistics()
    assert (counted.waiting_segments, counted.held_segments, counted.segments) == (2, 2, 0)
    assert counted.lag_us >= 2 * SECOND
    core.store.come_back()
    core.advance(20 * SECOND)
    core.expire()
    assert partition.start_offset == 12
    told = topic.partition_info(0, "n", details=True)
    core.archive.describe(topic.id, told)
    assert (told.archived_start, told.archived_end, told.held_segments, told.archive_error) == (0, 12, 0, None)
    counted = core.archive.archiver.statistics()
    assert (counted.waiting_segments, counted.held_segments, counted.lag_us) == (0, 0, 0)
    assert core.read_archived(partition) == values


def test_a_start_removes_nothing_before_it_knows_the_archive() -> None:
    """A broker that has not looked into the store yet, or cannot, keeps what an earlier one archived."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 15)
    core.advance(2 * SECOND)
    core.store.go_away()
    again = core.next_archiving(core.files)
    partition = again.topic("orders").partition(0)
    again.expire()
    assert (partition.start_offset, partition.log.held_segments) == (0, 2)
    again.store.come_back()
    again.advance(5 * SECOND)
    again.expire()
    assert partition.start_offset == 12


def test_a_topic_that_is_not_archived_does_not_wait() -> None:
    """With archive=off retention removes as ever, and nothing is copied."""
    core = ArchivingCore()
    partition = core.create("orders", settings={"archive": "off"}).partition(0)
    core.fill(partition, 15)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset == 12
    assert core.store.objects == {}


def test_what_is_switched_on_is_archived_from_there() -> None:
    """A topic set to archive=on archives what is still there, and one set to off waits no more."""
    core = ArchivingCore()
    partition = core.create("orders", settings={"archive": "off"}).partition(0)
    core.fill(partition, 9)
    core.expire()
    core.wait(core.topics.alter("default/orders", settings={"archive": "on"}))
    core.fill(partition, 9, first=9)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset == 12
    assert len(core.store.names(".json")) == 1
    core.store.go_away()
    core.fill(partition, 9, first=18)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset == 12
    core.wait(core.topics.alter("default/orders", settings={"archive": "off"}))
    core.expire()
    assert partition.start_offset == 24


def test_a_topic_that_was_to_be_archived_is_kept_by_a_broker_without_an_archive() -> None:
    """Leaving the archive out of the configuration loses nothing of a topic that says archive=on."""
    core = ArchivingCore()
    partition = core.create("orders", settings={"archive": "on"}).partition(0)
    core.store.go_away()
    core.fill(partition, 15)
    core.settle()
    without = Core(core.files, defaults=TopicDefaultsWithout)
    partition = without.topic("orders").partition(0)
    without.topics.expire()
    assert (partition.start_offset, partition.log.held_segments) == (0, 2)
    answer = without.topics.create("default/more", settings={"archive": "on"})
    without.settle()
    assert isinstance(answer.error, ArchiveOffError)
    assert without.topics.find("default/more") is None


TopicDefaultsWithout = type(DEFAULTS)(segment_bytes=DEFAULTS.segment_bytes, retention_us=None, retention_bytes=0)


def test_a_power_loss_takes_nothing_that_is_in_neither_place() -> None:
    """Whatever disk a power loss leaves during archiving and retention, every acknowledged message is still read."""
    deaths = 0
    for seed in range(40):
        rng = random.Random(seed)
        core, _topic, partition = archived_topic(files=PowerLossFiles())
        values = core.fill(partition, 20)
        core.store.dies_at = rng.randrange(30)
        deaths += 1
        with suppress(Died):
            core.advance(SECOND)
            core.expire()
            deaths -= 1
        after = core.next_archiving(model(core).crash(rng))
        partition = after.topic("orders").partition(0)
        after.advance(2 * SECOND)
        after.expire()
        assert after.read_archived(partition) == values
        assert partition.start_offset >= 18
    assert deaths >= 20


@pytest.mark.parametrize("size", [0, 100, 4096 + 25_000])
def test_a_segment_that_somebody_cut_is_archived_as_it_is(size: int, tmp_path: Path) -> None:
    """Of a file that is cut short, to nothing even, what is left is kept, and the rest is named as damaged."""
    core, _topic, partition = archived_topic(files=DiskFiles(tmp_path))
    values = core.fill(partition, 13)
    os.truncate(tmp_path / f"partitions/1-0/messages/{0:020d}.log", size)
    core.advance(2 * SECOND)
    (first, _second) = core.archive.entries(core.topic("orders")).result()
    lost = 2 if size > 4096 else 0
    assert (first.damaged, first.bytes) == ([(lost, 6)], size)
    core.expire()
    assert partition.start_offset == 12
    assert core.read_archived(partition, 6) == values[6:]
    error = core.fetch_archived(partition, lost).result.error
    assert error is not None
    assert (error.error().code, error.details["start"], error.details["next"]) == ("CORRUPT", lost, 6)


def test_a_segment_that_is_damaged_is_archived_as_it_is() -> None:
    """Damage does not hold retention back: the copy names the damaged range, and reads as the log did."""
    core, _topic, partition = archived_topic(files=PowerLossFiles())
    values = core.fill(partition, 13)
    path = f"partitions/1-0/messages/{0:020d}.log"
    file = core.files.open(path)
    file.write_at(4096 + 25_000, b"\xff" * 8)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset == 12
    (first, _second) = core.archive.entries(core.topic("orders")).result()
    assert first.damaged == [(2, 3)]
    assert core.read_archived(partition, 3) == values[3:]
    (result,) = [core.fetch_archived(partition, 2).result]
    assert result.error is not None
    assert (result.error.error().code, result.error.details["start"], result.error.details["next"]) == ("CORRUPT", 2, 3)
