"""Copying sealed segments: in which order, once each, and right wherever it is interrupted."""

from __future__ import annotations

import errno
import inspect
import itertools
import shutil
import sys
from pathlib import Path

import pytest
from tests.helpers.archiving import SECOND, ArchivingCore, archived_topic
from tests.helpers.broker_core import batch, model
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.object_stores import Died, MemoryStore
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.archive.entry import decode_entry
from tidelog.broker.storage.files import DiskFiles, MemoryFiles
from tidelog.protocol.errors import ArchiveConflictError, ArchiveDeniedError, ArchiveUnavailableError

FOLDER = "00112233445566aa/default/orders/1/0"


def test_sealed_segments_are_copied_with_their_entries_last() -> None:
    """Every sealed segment gets an object and then an entry that describes it; the active one gets none."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 15)
    core.advance(2 * SECOND)
    assert core.store.names(".json") == [f"{FOLDER}/{base:020d}.json" for base in (0, 6)]
    first = decode_entry(core.store.objects[f"{FOLDER}/{0:020d}.json"], "e")
    assert (first.topic, first.topic_id, first.partition, first.broker) == ("default/orders", 1, 0, "00112233445566aa")
    assert (first.base_offset, first.end_offset, first.records, first.batches) == (0, 6, 6, 6)
    assert (first.min_timestamp_us, first.max_timestamp_us) == (0, 5_000)
    assert first.last_append_us - first.first_append_us == 50_000
    assert first.object == f"{FOLDER}/{0:020d}-{first.checksum.removeprefix('xxh3_128:')}.log"
    assert len(core.store.objects[first.object]) == first.bytes
    order = [step.split()[0] for step in core.store.steps if f"{0:020d}" in step]
    assert order == ["size", "put", "stream", "create"]


def test_a_copy_is_the_segment_s_own_bytes() -> None:
    """An object is the segment file up to its last batch, byte for byte."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 7)
    core.advance(2 * SECOND)
    (name,) = core.store.names(".log")
    local = core.files.read(f"partitions/1-0/messages/{0:020d}.log")
    assert core.store.objects[name] == local[: len(core.store.objects[name])]
    assert not any(local[len(core.store.objects[name]) :])


def test_nothing_is_copied_twice() -> None:
    """A later pass, a run and a restart find what is archived and leave it alone."""
    core, topic, partition = archived_topic()
    core.fill(partition, 15)
    core.advance(2 * SECOND)
    core.advance(10 * SECOND)
    assert core.archive.run([topic]).result().segments == 0
    again = core.next_archiving(core.files)
    again.advance(10 * SECOND)
    assert len([step for step in core.store.steps if step.startswith("put")]) == 2


def test_a_process_that_dies_at_any_step_leaves_what_the_next_one_completes() -> None:
    """Wherever the copying dies, no entry is there without its whole object, and the next process makes it the same."""
    reference, _topic, partition = archived_topic()
    reference.fill(partition, 15)
    reference.advance(2 * SECOND)
    deaths = 0
    for dies_at in itertools.count():
        core, _topic, partition = archived_topic(files=PowerLossFiles())
        values = core.fill(partition, 15)
        core.store.dies_at = dies_at
        try:
            core.advance(2 * SECOND)
        except Died:
            deaths += 1
        else:
            break
        for name in core.store.names(".json"):
            entry = decode_entry(core.store.objects[name], name)
            assert len(core.store.objects[entry.object]) == entry.bytes
        survivor = core.next_archiving(model(core).kill())
        survivor.advance(2 * SECOND)
        assert sorted(core.store.objects) == sorted(
            name for name in survivor.store.objects if decode_or_bytes(survivor.store, name)
        )
        partition = survivor.topic("orders").partition(0)
        assert len(survivor.store.names(".json")) == 2
        assert len(survivor.store.names(".log")) == 2
        survivor.expire()
        assert partition.start_offset == 12
        assert survivor.read_archived(partition) == values
    assert deaths >= 16  # two segments of four steps each, before and after


def decode_or_bytes(store: MemoryStore, name: str) -> bool:
    """Whether an object is a whole entry, or the bytes that one names."""
    if name.endswith(".json"):
        return decode_entry(store.objects[name], name).object in store.objects
    return True


def test_a_copy_that_arrives_damaged_is_sent_again() -> None:
    """What is read back must be what was sent: else there is no entry, the object goes, and a later pass sends it."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 7)
    core.store.garbles = True
    core.advance(SECOND)
    assert core.store.objects == {}
    assert isinstance(core.archive.archiver.error_of((1, 0)), ArchiveUnavailableError)
    core.advance(5 * SECOND)
    assert len(core.store.names(".json")) == 1
    assert core.archive.archiver.error_of((1, 0)) is None


def test_an_entry_of_a_later_version_is_left_as_it_is() -> None:
    """What this version cannot read is not written over, the segment stays in the log, and the error says why."""
    core, _topic, partition = archived_topic()
    later = b'{"format":2,"object":"elsewhere"}'
    core.store.objects[f"{FOLDER}/{0:020d}.json"] = later
    core.fill(partition, 9)
    core.advance(2 * SECOND)
    core.expire()
    assert core.store.objects[f"{FOLDER}/{0:020d}.json"] == later
    assert partition.start_offset == 0
    error = core.archive.archiver.error_of((1, 0))
    assert error is not None
    assert (error.code, "a later version wrote" in error.message) == ("ARCHIVE_CONFLICT", True)


def test_a_store_that_is_away_is_left_alone_for_longer_each_time() -> None:
    """Tries come a second, then two, four and eight seconds apart; `run` tries at once."""
    core, topic, partition = archived_topic()
    core.fill(partition, 7)
    core.store.go_away()
    tries: list[int] = []
    for second in range(40):
        before = core.archive.archiver.statistics().errors
        core.advance(SECOND)
        if core.archive.archiver.statistics().errors > before:
            tries.append(second)
    assert [later - earlier for earlier, later in itertools.pairwise(tries)] == [1, 2, 4, 8, 16]
    assert core.events.count("archive failed") == 1
    (problem,) = core.archive.run([topic]).result().problems
    assert (problem[0], problem[1], problem[2].code) == ("orders", 0, "ARCHIVE_UNAVAILABLE")
    core.store.come_back()
    assert core.archive.run([topic]).result().segments == 1
    assert core.events.count("archive works again") == 1


def test_a_store_that_refuses_is_named() -> None:
    """Missing rights are the partition's error and are tried again like silence."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 7)
    core.store.error = ArchiveDeniedError("expected memory://archive to allow it, found: 403")
    core.advance(2 * SECOND)
    error = core.archive.archiver.error_of((1, 0))
    assert error is not None
    assert error.code == "ARCHIVE_DENIED"


def test_copies_run_beside_each_other_up_to_the_limit() -> None:
    """At most `concurrency` partitions are copied at a time, and all get their turn."""
    core = ArchivingCore(concurrency=2)
    topics = [core.create(f"t{number}") for number in range(4)]
    for topic in topics:
        core.fill(topic.partition(0), 13)
    core.threads.copy.held = True
    core.advance(2 * SECOND)
    begun: list[int] = []
    while core.threads.copy.waiting:
        begun.append(len(core.threads.copy.waiting))
        core.threads.copy.run()
    assert max(begun) == 2
    assert core.archive.archiver.statistics().segments == 8


def test_a_run_over_many_partitions_is_no_deeper_than_over_one() -> None:
    """Partitions that have nothing to be copied are gone through one after the other, not one within the other."""
    core = ArchivingCore()
    topic = core.create("wide", 120)
    assert core.archive.run([topic]).result().problems == []  # the catalogs are known from here on
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        done = core.archive.run([topic])
    finally:
        sys.setrecursionlimit(limit)
    assert done.result().problems == []


def test_memory_does_not_grow_with_the_segment() -> None:
    """A segment is sent in pieces of 8 MiB at most."""
    core = ArchivingCore()
    topic = core.create("big", settings={"segment_bytes": 16 << 20})
    for number in range(18):
        core.produce(topic.partition(0), batch(bytes([number]) * 1_000_000))
    core.advance(2 * SECOND)
    assert len(core.store.names(".json")) == 1
    assert core.store.largest_part == 8 << 20


def test_a_topic_deleted_meanwhile_is_no_failure() -> None:
    """A copy whose topic goes under it ends without an error, and others go on."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 7)
    core.threads.copy.held = True
    core.advance(SECOND)
    core.wait(core.topics.delete("default/orders"))
    core.threads.copy.held = False
    core.threads.copy.run()
    core.advance(5 * SECOND)
    assert core.archive.archiver.statistics().errors == 0
    other = core.create("other").partition(0)
    core.fill(other, 7)
    core.advance(2 * SECOND)
    assert any("/other/" in name for name in core.store.names(".json"))


def test_a_topic_made_again_under_its_name_archives_apart() -> None:
    """The new topic's segments lie beside the old one's, and reading one never shows the other's messages."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 7)
    core.advance(2 * SECOND)
    core.wait(core.topics.delete("default/orders"))
    partition = core.create("orders").partition(0)
    values = core.fill(partition, 7, first=1_000)
    core.advance(2 * SECOND)
    core.expire()
    assert core.read_archived(partition) == values
    assert [name.rsplit("/", 2)[0] for name in core.store.names(".json")] == [
        "00112233445566aa/default/orders/1",
        "00112233445566aa/default/orders/2",
    ]


def test_brokers_of_different_data_directories_never_meet() -> None:
    """Two brokers archive topics of one name and one id into one place, and each reads its own."""
    store = MemoryStore()
    cores = [ArchivingCore(store=store, identity=identity) for identity in ("a" * 16, "b" * 16)]
    partitions = [core.create("orders").partition(0) for core in cores]
    values = [core.fill(one, 13, first=100 * at) for at, (core, one) in enumerate(zip(cores, partitions, strict=True))]
    for core, partition, expected in zip(cores, partitions, values, strict=True):
        core.advance(2 * SECOND)
        core.expire()
        assert partition.start_offset == 12
        assert core.read_archived(partition) == expected


def test_a_copied_data_directory_is_refused() -> None:
    """Of two brokers with one name the second does not overwrite: it has an error, and keeps its segments."""
    store = MemoryStore()
    cores = [ArchivingCore(store=store) for _ in range(2)]
    partitions = [core.create("orders").partition(0) for core in cores]
    for core in cores:  # both have looked, and found nothing, before either copies
        core.archive.entries(core.topic("orders")).result()
    for at, (core, partition) in enumerate(zip(cores, partitions, strict=True)):
        core.fill(partition, 7, first=100 * at)
        core.advance(2 * SECOND)
    assert isinstance(cores[1].archive.archiver.error_of((1, 0)), ArchiveConflictError)
    cores[1].expire()
    assert partitions[1].start_offset == 0
    assert partitions[1].log.held_segments == 1


def test_a_log_restored_from_an_old_copy_is_not_taken_for_what_was_archived(tmp_path: Path) -> None:
    """Segments of the same offsets with other messages are no copies: they stay, with an error that says why."""
    (tmp_path / "data").mkdir()
    core, _topic, partition = archived_topic(files=DiskFiles(tmp_path / "data"))
    core.settle()
    shutil.copytree(tmp_path / "data", tmp_path / "old")
    core.fill(partition, 7)
    core.advance(2 * SECOND)
    restored = core.next_archiving(DiskFiles(tmp_path / "old"))
    partition = restored.topic("orders").partition(0)
    values = restored.fill(partition, 7, first=500)
    restored.advance(2 * SECOND)
    restored.expire()
    assert isinstance(restored.archive.archiver.error_of((1, 0)), ArchiveConflictError)
    assert (partition.start_offset, partition.log.held_segments) == (0, 1)
    assert restored.read_archived(partition) == values


def test_a_stop_ends_a_copy_at_its_next_piece() -> None:
    """A stopping broker neither begins a copy nor finishes a long one, and calls neither an error."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 7)
    core.threads.copy.held = True
    core.advance(SECOND)
    core.archive.stop()
    core.threads.copy.run()
    core.advance(5 * SECOND)
    assert core.store.names(".json") == []
    assert core.archive.archiver.statistics().errors == 0


@pytest.mark.parametrize("flipped", [100, 30_000])
def test_an_entry_that_rots_is_written_anew_while_the_segment_is_there(flipped: int) -> None:
    """A broker that starts and cannot read an entry makes it again from its own segment."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 7)
    core.advance(2 * SECOND)
    (name,) = core.store.names(".json")
    before = core.store.objects[name]
    core.store.flip(name, min(flipped, len(before) - 20))
    again = core.next_archiving(core.files)
    again.advance(2 * SECOND)
    assert core.store.objects[name] == before
    assert again.events.count("archive entry not used") == 1


def test_a_segment_that_cannot_be_read_is_kept_and_tried_again() -> None:
    """A disk that fails to give a segment is the partition's error, and not the store's: others are copied."""
    files = FaultyFiles(MemoryFiles())
    core, _topic, partition = archived_topic(files=files)
    other = core.create("other").partition(0)
    fault = files.fail("warm", errno.EIO, path="partitions/1-0/*.log", times=None)
    core.fill(partition, 7)
    core.fill(other, 7)
    core.advance(3 * SECOND)
    error = core.archive.archiver.error_of((1, 0))
    assert fault.fired >= 2
    assert error is not None
    assert (error.code, core.archive.archiver.error_of((2, 0))) == ("STORAGE_ERROR", None)
    assert [name.split("/")[2] for name in core.store.names(".json")] == ["other"]
    core.expire()
    assert (partition.start_offset, other.start_offset) == (0, 6)
    files.faults.clear()
    core.advance(2 * SECOND)
    assert len(core.store.names(".json")) == 2
