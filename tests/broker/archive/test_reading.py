"""Reading below the log's start: the same messages, the same answers, and errors where there is damage."""

from __future__ import annotations

import dataclasses
import errno

import numpy as np
import pytest
from tests.helpers.archiving import DEFAULTS, SECOND, ArchivingCore, archived_topic
from tests.helpers.broker_core import batch, bulk_of, split
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.partition import Partition
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.batch import Codec, RoutingColumns, decode_batch, encode_batch
from tidelog.protocol.columns import RETRY
from tidelog.protocol.messages import FetchPosition, OffsetKind, OffsetQuery


def archived(count: int = 27, **options: object) -> tuple[ArchivingCore, Partition, list[bytes]]:
    """Return a core whose topic has all but its active segment in the archive only."""
    core, _topic, partition = archived_topic(**options)
    values = core.fill(partition, count)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset == count // 6 * 6
    return core, partition, values


def error_at(core: ArchivingCore, partition: Partition, offset: int) -> tuple[str, object, object]:
    """The code of what a fetch answers, the start of the range, and where reading goes on."""
    error = core.fetch_archived(partition, offset).result.error
    assert error is not None
    details = error.details
    return error.error().code, details.get("start"), details.get("next", details.get("end"))


@pytest.mark.parametrize("max_bytes", [1, 25_000, 1 << 20])
def test_every_message_is_read_once_and_in_order(max_bytes: int) -> None:
    """From any offset, with any size of reply, the archive and the log together give exactly what was appended."""
    core, partition, values = archived()
    for offset in range(0, 27, 5):
        assert core.read_archived(partition, offset, max_bytes) == values[offset:]


def test_reading_without_the_archive_is_as_before() -> None:
    """Who does not ask for archived messages is told that they are out of range."""
    core, partition, _values = archived()
    result = core.fetch(partition, 0).result
    assert result.error is not None
    assert result.error.error().code == "OFFSET_OUT_OF_RANGE"


def test_the_valid_range_begins_in_the_archive() -> None:
    """Every answer says that reading begins at the first archived offset."""
    core, partition, _values = archived()
    result = core.fetch_archived(partition, 8).result
    assert (result.start_offset, result.end_offset, result.next_offset) == (0, 27, 12)
    answer = core.offset_of(partition, OffsetKind.LATEST)
    assert (answer.offset, answer.start_offset, answer.end_offset) == (27, 0, 27)
    assert core.offset_of(partition, OffsetKind.EARLIEST).offset == 0


def test_lookups_by_time_answer_as_if_all_were_local() -> None:
    """For every time around every message, each kind of lookup equals that of a log that kept everything."""
    kept = dataclasses.replace(DEFAULTS, archive=False, retention_bytes=None)
    whole = ArchivingCore(defaults=kept)
    reference = whole.create("orders").partition(0)
    core, partition, _values = archived()
    whole.fill(reference, 27)
    begun = _append_time(core, partition, 0)
    assert begun == _append_time(whole, reference, 0)
    times = {
        OffsetKind.APPEND_TIME: range(begun - 10_000, begun + 290_000, 2_500),
        OffsetKind.TIMESTAMP: range(-1_000, 29_000, 500),
        OffsetKind.TIMESTAMP_END: range(-1_000, 29_000, 500),
    }
    for kind, moments in times.items():
        for moment in moments:
            query = OffsetQuery(reference.topic_id, 0, kind, moment)
            expected = reference.offsets(query)
            assert not hasattr(expected, "is_pending")
            found = core.offset_of(partition, kind, moment)
            assert (found.offset, found.start_offset, found.end_offset) == (expected.offset, 0, 27), (kind, moment)  # pyright: ignore


def _append_time(core: ArchivingCore, partition: Partition, offset: int) -> int:
    fetched = core.fetch_archived(partition, offset, 1)
    (piece,) = fetched.bulk
    return int.from_bytes(piece.file.read_at(piece.position + 24, 8), "little")


def test_batches_outside_a_range_of_timestamps_are_left_out() -> None:
    """A fetch that goes by timestamps gets no batch that has none of them, from the archive either."""
    core, partition, _values = archived()
    position = FetchPosition(partition.topic_id, 0, 0)
    fetched = core.archive.reader.fetch(partition, position, max_bytes=1 << 20, timestamps=(2_000, 4_000)).result()
    assert fetched.result.next_offset == 6
    assert [decode_batch(found).header.base_offset for found in split(bulk_of(fetched))] == [2, 3]


@pytest.mark.parametrize("codec", list(Codec))
def test_retry_policies_come_back_from_the_archive(codec: Codec) -> None:
    """What messages say of their retries is archived with them."""
    core, _topic, partition = archived_topic()
    retries = np.array([(5, 2, 255, 2_000, 250, 30_000), (0,) * 6], dtype=RETRY)
    sent = encode_batch(
        [b"a" * 20_000, b"b" * 20_000], timestamp_us=0, routing=RoutingColumns(retries=retries), codec=codec
    )
    core.produce(partition, memoryview(sent))
    core.fill(partition, 14, first=2)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset >= 2
    (first, *_) = split(bulk_of(core.fetch_archived(partition, 0)))
    found = decode_batch(first)
    assert found.values.to_list() == [b"a" * 20_000, b"b" * 20_000]
    assert found.routing.retries is not None
    assert found.routing.retries.tolist() == retries.tolist()


def test_a_flipped_bit_is_an_error_for_its_batch_alone() -> None:
    """Damage in the archive reads as damage in a log: the range, and where to go on; all else is served."""
    core, partition, values = archived()
    core.store.flip(core.store.names(".log")[1], 4096 + 25_000)
    assert error_at(core, partition, 8) == ("CORRUPT", 8, 9)
    assert core.read_archived(partition, 9) == values[9:]
    with pytest.raises(Exception, match="offsets 8 to 9 damaged"):
        core.read_archived(partition, 0)
    assert core.archive.cache.damaged_segments == 1


def test_an_object_cut_short_is_an_error_from_there_to_its_end() -> None:
    """What is missing of an object is a damaged range, and the next segment is read."""
    core, partition, values = archived()
    core.store.cut(core.store.names(".log")[0], 4096 + 25_000)
    assert error_at(core, partition, 2) == ("CORRUPT", 2, 6)
    assert core.read_archived(partition, 6) == values[6:]


@pytest.mark.parametrize("size", [0, 100, 4096])
def test_an_object_of_next_to_nothing_is_damage(size: int) -> None:
    """An empty object, and one of less than a header page, lose their range and nothing else."""
    core, partition, values = archived()
    core.store.cut(core.store.names(".log")[0], size)
    assert error_at(core, partition, 0) == ("CORRUPT", 0, 6)
    assert core.read_archived(partition, 6) == values[6:]


def test_an_object_that_is_gone_is_damage() -> None:
    """Where an entry names what is not there, its range is lost, and the error says which object is missing."""
    core, partition, values = archived()
    name = core.store.names(".log")[1]
    del core.store.objects[name]
    assert error_at(core, partition, 7) == ("CORRUPT", 6, 12)
    error = core.fetch_archived(partition, 7).result.error
    assert error is not None
    assert f"{name} is missing from the archive" in error.message
    assert core.read_archived(partition, 12) == values[12:]


def test_an_entry_that_rots_when_the_log_has_gone_on_is_damage() -> None:
    """A broker that cannot read an entry, nor make it anew, says which range is lost and goes on behind it."""
    core, partition, values = archived()
    core.store.flip(core.store.names(".json")[1], 40)
    again = core.next_archiving(core.files)
    partition = again.topic("orders").partition(0)
    assert error_at(again, partition, 6) == ("CORRUPT", 6, 12)
    assert again.read_archived(partition, 12) == values[12:]
    assert again.fetch_archived(partition, 0).result.next_offset == 6


def test_a_hole_says_where_reading_goes_on() -> None:
    """What retention removed while the archive was off is out of range, and the range given begins behind it, as the
    earliest offset does: from there on nothing is missing."""
    core, partition, _values = archived(13)
    core.wait(core.topics.alter("default/orders", settings={"archive": "off"}))
    core.fill(partition, 12, first=13)
    core.expire()
    core.wait(core.topics.alter("default/orders", settings={"archive": "on"}))
    core.fill(partition, 12, first=25)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset == 36
    assert error_at(core, partition, 12) == ("OFFSET_OUT_OF_RANGE", 24, 37)
    assert core.offset_of(partition, OffsetKind.EARLIEST).offset == 24
    assert core.fetch_archived(partition, 0).result.next_offset == 6
    assert core.fetch_archived(partition, 24).result.next_offset == 30


def test_offsets_below_the_archive_are_out_of_range() -> None:
    """What was removed before anything was archived, and an archive that holds nothing, are said as such."""
    core = ArchivingCore()
    partition = core.create("orders", settings={"archive": "off"}).partition(0)
    core.fill(partition, 13)
    core.expire()
    assert error_at(core, partition, 3) == ("OFFSET_OUT_OF_RANGE", 12, 13)
    assert core.offset_of(partition, OffsetKind.EARLIEST).offset == 12


def test_a_store_that_is_away_is_an_error_and_later_none() -> None:
    """What is not at hand cannot be read while the store is away, and can again afterwards."""
    core, partition, values = archived()
    core.store.go_away()
    assert error_at(core, partition, 0)[0] == "ARCHIVE_UNAVAILABLE"
    core.store.come_back()
    assert core.read_archived(partition) == values
    core.store.go_away()
    assert core.fetch_archived(partition, 0).result.error is None  # it is in the cache now


def test_what_the_log_knows_needs_no_store() -> None:
    """Lookups that the log decides, and reads of what is in it, work while the store is away from the start on."""
    core, partition, values = archived()
    moment = _append_time(core, partition, 25)
    core.store.go_away()
    again = core.next_archiving(core.files)
    partition = again.topic("orders").partition(0)
    assert again.offset_of(partition, OffsetKind.LATEST).offset == 27
    assert again.offset_of(partition, OffsetKind.APPEND_TIME, moment).offset == 25
    assert again.offset_of(partition, OffsetKind.TIMESTAMP_END, 26_000).offset == 26
    assert again.read_archived(partition, 25) == values[25:]
    for kind in (OffsetKind.EARLIEST, OffsetKind.TIMESTAMP):
        error = again.offset_of(partition, kind, 26_000).error
        assert error is not None
        assert error.error().code == "ARCHIVE_UNAVAILABLE"


def test_the_cache_is_bounded() -> None:
    """Segments are let go of when the cache is full, and a cache of nothing holds the one that is read."""
    core, partition, values = archived(cache_bytes=130_000)
    assert core.read_archived(partition) == values
    assert core.archive.cache.held_bytes <= 130_000
    assert len(core.files.list_folder("archive/cache")) == 2
    core, partition, values = archived(cache_bytes=0)
    assert core.read_archived(partition) == values
    assert len(core.files.list_folder("archive/cache")) == 1


def test_a_start_empties_the_cache() -> None:
    """What an earlier process fetched is removed at the start: nothing of it is trusted."""
    core, partition, _values = archived()
    core.read_archived(partition)
    assert core.files.list_folder("archive/cache") != []
    core.next_archiving(core.files)
    assert core.files.list_folder("archive/cache") == []


def test_readers_of_one_segment_share_its_fetch() -> None:
    """Ten readers that ask at once have a segment fetched once."""
    core, partition, _values = archived()
    core.threads.read.held = True
    position = FetchPosition(partition.topic_id, 0, 0)
    answers = [core.archive.reader.fetch(partition, position, max_bytes=1) for _ in range(10)]
    while core.threads.read.waiting:
        core.threads.read.run()
    assert {answer.result().result.next_offset for answer in answers} == {1}
    assert core.archive.cache.fetched_segments == 1


def test_a_local_copy_that_rots_is_fetched_anew() -> None:
    """A segment whose local copy is damaged since is not an error: the store still has it."""
    core, partition, values = archived()
    core.read_archived(partition)
    for name in core.files.list_folder("archive/cache"):
        file = core.files.open(f"archive/cache/{name}")
        file.write_at(4096, bytes(60_000))
    assert core.read_archived(partition) == values
    assert core.archive.cache.fetched_segments == 8


def test_a_reader_that_met_a_bad_checksum_gets_a_fresh_copy() -> None:
    """A fetch that verifies takes the segment from the store again."""
    core, partition, _values = archived()
    core.fetch_archived(partition, 0)
    (name,) = core.files.list_folder("archive/cache")
    core.files.open(f"archive/cache/{name}").write_at(4096 + 200, b"\xff" * 8)
    fetched = core.fetch_archived(partition, 0, verify=True)
    assert fetched.result.error is None
    assert core.archive.cache.fetched_segments == 2
    assert core.read_archived(partition, 0)[:1] == [b"00000000" + b"v" * 10_000]


def test_a_topic_deleted_while_it_is_read_answers() -> None:
    """A reader of the archive whose topic is deleted is told so, and does not wait for ever."""
    core, partition, _values = archived()
    core.threads.read.held = True
    answer = core.archive.reader.fetch(partition, FetchPosition(partition.topic_id, 0, 0), max_bytes=1)
    core.wait(core.topics.delete("default/orders"))
    while core.threads.read.waiting:
        core.threads.read.run()
    assert not answer.is_pending
    again = core.archive.reader.fetch(partition, FetchPosition(partition.topic_id, 0, 0), max_bytes=1).result()
    assert again.result.error is not None
    assert again.result.error.error().code == "UNKNOWN_TOPIC_ID"


def test_the_seam_may_move_under_a_reader() -> None:
    """A reader that goes on while retention removes what it was about to read misses nothing and repeats nothing."""
    core, _topic, partition = archived_topic()
    values = core.fill(partition, 9)
    found: list[bytes | None] = []
    for first in range(9, 60, 3):
        fetched = core.fetch_archived(partition, len(found), 1)
        found += [value for one in split(bulk_of(fetched)) for value in decode_batch(one).values]
        values += core.fill(partition, 3, first=first)
        core.expire()
    assert partition.start_offset > len(found) > 10
    assert found + core.read_archived(partition, len(found)) == values


@pytest.mark.parametrize("operation", ["create", "write_at"])
def test_a_full_disk_is_an_error_of_the_read(operation: str) -> None:
    """Where there is no room to fetch a segment the reader is told, leaves nothing behind, and reads it later."""
    files = FaultyFiles(MemoryFiles())
    core, partition, values = archived(files=files)
    fault = files.fail(operation, errno.ENOSPC, path="archive/cache/*")
    result = core.fetch_archived(partition, 0).result
    assert fault.fired == 1
    assert result.error is not None
    assert (result.error.error().code, result.error.error().retriable) == ("STORAGE_ERROR", False)
    assert "No space left on device" in result.error.message
    assert core.files.list_folder("archive/cache") == []
    assert core.read_archived(partition) == values


def test_who_waits_for_the_store_is_told_when_the_broker_stops() -> None:
    """A stop answers fetches, lookups and runs that wait for the store, and refuses those that come later."""
    core, partition, _values = archived()
    topic = core.topic("orders")
    core.fill(partition, 7, first=27)
    core.threads.read.held = core.threads.copy.held = True
    position = FetchPosition(partition.topic_id, 0, 0)
    fetched = core.archive.reader.fetch(partition, position, max_bytes=1)
    run = core.archive.run([topic])
    assert (fetched.is_pending, run.is_pending) == (True, True)
    core.archive.stop()
    error = fetched.result().result.error
    assert error is not None
    assert error.error().code == "BROKER_CLOSING"
    assert run.error is not None
    assert core.archive.verify(topic, partition, 0).error is not None
    core.threads.read.run()
    core.threads.copy.run()


def test_what_is_at_hand_is_read_while_the_store_says_nothing() -> None:
    """Threads that wait for a silent store do not keep a reader from a segment that was fetched before."""
    core, partition, _values = archived()
    core.fetch_archived(partition, 0)
    core.threads.read.held = True
    assert core.fetch_archived(partition, 0).result.next_offset == 6


def test_empty_batches_and_several_records_a_batch_are_read_back() -> None:
    """Batches of many records, and those left empty because their ids were known, are archived and read."""
    core, _topic, partition = archived_topic()
    values = [b"%05d" % number + bytes(3_000) for number in range(60)]
    for start in range(0, 60, 5):
        ids = [b"%d" % number for number in range(start, start + 5)]
        for _ in range(2):
            core.produce(partition, batch(*values[start : start + 5], ids=ids))
    core.settle()
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset > 0
    assert core.read_archived(partition) == values


@pytest.mark.parametrize("kind", [OffsetKind.APPEND_TIME, OffsetKind.TIMESTAMP, OffsetKind.TIMESTAMP_END])
def test_the_seam_may_move_under_a_lookup(kind: OffsetKind) -> None:
    """A lookup during which retention moves the log's start over the answer still finds it, in the archive."""
    for moment in range(1, 26):
        core, _topic, partition = archived_topic()
        core.wait(core.topics.alter("default/orders", settings={"retention_bytes": 1 << 40}))
        core.fill(partition, 27)
        core.advance(2 * SECOND)
        time_us = moment * 1_000
        if kind is OffsetKind.APPEND_TIME:
            time_us = _append_time(core, partition, moment)
        core.workers.held = True
        query = OffsetQuery(partition.topic_id, 0, kind, time_us, archived=True)
        answer = core.archive.reader.offsets(partition, query)
        waiting, core.workers.waiting, core.workers.held = core.workers.waiting, [], False
        core.wait(core.topics.alter("default/orders", settings={"retention_bytes": 0}))
        core.expire()
        assert partition.start_offset == 24
        for work, done in waiting:
            work()
            done()
        assert answer.result().offset == moment
