"""Whatever a lookup needs from the disk is opened, read and indexed by a worker, never by the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import pytest
from tests.broker.storage.driver import append, open_log, sync, upkeep
from tests.helpers.broker_core import SECOND, Core, batch, bulk_of, split, start
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.deferred import Deferred
from tidelog.broker.fetcher import Fetched, Fetcher
from tidelog.broker.offload import offload_inline
from tidelog.broker.partition import Partition
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import BatchHeader, decode_batch
from tidelog.protocol.errors import (
    CorruptError,
    NotFoundError,
    OffsetOutOfRangeError,
    TidelogError,
    UnknownTopicIdError,
)
from tidelog.protocol.messages import FetchPosition, OffsetAnswer, OffsetKind, OffsetQuery

T = TypeVar("T")
MESSAGES = "partitions/1-0/messages"
READS = ("open", "open_array", "read", "view")


def restarted(*, indexed: bool = True, damage: int | None = None) -> tuple[Core, Partition, FaultyFiles]:
    """Return a broker after a clean stop: segments of two batches from offset 0 on, of which only the last is open.

    The producers' times are the offsets times ten. Without stored indexes unless `indexed`.
    """
    inner = MemoryFiles()
    core, partition = start(inner, segment_bytes=65_536)
    for n in range(9):
        core.produce(partition, batch(b"%d" % n + bytes(25_000), timestamp_us=10 * n))
        core.advance(SECOND)
    core = core.after_stop()
    core.topics.close()
    for name in inner.list_folder(MESSAGES):
        if not indexed and name.endswith((".offsets", ".times")):
            inner.remove_folder(f"{MESSAGES}/{name}")
    if damage is not None:
        file = inner.open(f"{MESSAGES}/{damage:020d}.log")
        file.write_at(4096 + 40, b"\xff" * 20)
        file.close()
    files = FaultyFiles(inner)
    core = core.next_process(files)
    partition = core.topic("orders").partition(0)
    assert partition.log.segment_count == 5
    core.workers.held = True
    files.calls.clear()
    return core, partition, files


def by_workers(core: Core, files: FaultyFiles, ask: Callable[[], T | Deferred[T]]) -> T:
    """Return an answer, to which nothing but workers may read any file."""
    answer = ask()
    assert isinstance(answer, Deferred)
    answer = cast("Deferred[T]", answer)
    while answer.is_pending:
        assert [name for name in READS if files.calls[name]] == []
        assert core.workers.run() > 0
        files.calls.clear()
    return answer.result()


def first_of(fetched: Fetched) -> tuple[int, bytes]:
    """Return the offset and the first byte of the first batch."""
    (found, *_) = split(bulk_of(fetched))
    return BatchHeader.read(found).base_offset, (decode_batch(found).values[0] or b"")[:1]


@pytest.mark.parametrize("indexed", [True, False])
def test_a_fetch_from_a_closed_segment_is_prepared_by_a_worker(indexed: bool) -> None:
    """With its stored index or without; afterwards it is read on the loop, at once."""
    core, partition, files = restarted(indexed=indexed)
    position = FetchPosition(1, 0, 3)
    fetched = by_workers(core, files, lambda: partition.fetch(position, max_bytes=1_000))
    assert first_of(fetched) == (3, b"3")
    again = partition.fetch(position, max_bytes=1_000)
    assert isinstance(again, Fetched)
    assert first_of(again) == (3, b"3")


def test_a_fetch_over_several_closed_segments_takes_them_one_by_one() -> None:
    """It returns what it would have returned from open ones."""
    core, partition, files = restarted()
    fetched = by_workers(core, files, lambda: partition.fetch(FetchPosition(1, 0, 0), max_bytes=160_000))
    assert (fetched.result.next_offset, len(split(bulk_of(fetched)))) == (6, 6)


def test_an_index_that_a_reader_had_made_is_stored() -> None:
    """By the upkeep within the next second, although nothing is appended."""
    core, partition, files = restarted(indexed=False)
    by_workers(core, files, lambda: partition.fetch(FetchPosition(1, 0, 3), max_bytes=1_000))
    core.workers.held = False
    core.advance(2 * SECOND)
    assert f"{2:020d}.offsets" in core.files.list_folder(MESSAGES)


def test_get_and_verify_are_prepared_by_a_worker() -> None:
    """As a fetch is."""
    core, partition, files = restarted(indexed=False)
    (piece,) = by_workers(core, files, lambda: partition.get(3))
    assert BatchHeader.read(piece.file.read_at(piece.position, 112)).base_offset == 3
    core, partition, files = restarted(indexed=False)
    fetched = by_workers(core, files, lambda: partition.verify(FetchPosition(1, 0, 5), max_bytes=1_000))
    assert first_of(fetched) == (5, b"5")
    with pytest.raises(NotFoundError):
        partition.get(9)


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("kind", "time", "expected"),
    [
        (OffsetKind.APPEND_TIME, 3, 3),
        (OffsetKind.APPEND_TIME, 0, 0),
        (OffsetKind.TIMESTAMP, 30, 3),
        (OffsetKind.TIMESTAMP, 31, 4),
        (OffsetKind.TIMESTAMP_END, 31, 4),
        (OffsetKind.TIMESTAMP_END, 0, 0),
    ],
)
def test_times_are_looked_up_by_workers(indexed: bool, kind: OffsetKind, time: int, expected: int) -> None:
    """In closed segments, and in what comes before the answer."""
    core, partition, files = restarted(indexed=indexed)
    if kind is OffsetKind.APPEND_TIME:
        header = BatchHeader.read(
            bulk_of(by_workers(core, files, lambda: partition.fetch(FetchPosition(1, 0, time), max_bytes=1)))
        )
        core, partition, files = restarted(indexed=indexed)
        time = header.append_time_us
    if (kind, time) == (OffsetKind.TIMESTAMP_END, 0):
        answer = partition.offsets(OffsetQuery(1, 0, kind, time))
        assert isinstance(answer, OffsetAnswer)
    else:
        answer = by_workers(core, files, lambda: partition.offsets(OffsetQuery(1, 0, kind, time)))
    assert (answer.offset, answer.error) == (expected, None)


@pytest.mark.parametrize("indexed", [True, False])
def test_damage_that_a_worker_finds_is_told_and_recorded(indexed: bool) -> None:
    """Also where a stored index leads to what is no batch any more: it is made anew beside the loop."""
    core, partition, files = restarted(indexed=indexed, damage=2)
    fetched = by_workers(core, files, lambda: partition.fetch(FetchPosition(1, 0, 2), max_bytes=1_000))
    assert fetched.result.error is not None
    assert isinstance(fetched.result.error.error(), CorruptError)
    assert fetched.result.error.details == {"start": 2, "end": 3, "next": 3}
    assert core.events == ["damage found"]
    query = OffsetQuery(1, 0, OffsetKind.TIMESTAMP, 20)
    assert by_workers(core, files, lambda: partition.offsets(query)).offset == 3


def test_a_disk_that_fails_is_an_error_of_the_lookup() -> None:
    """In the result of a fetch and of a lookup by time, raised by `get`."""
    core, partition, files = restarted()
    files.fail("open", 5, path=f"*{2:020d}.log", times=None)
    fetched = by_workers(core, files, lambda: partition.fetch(FetchPosition(1, 0, 2), max_bytes=1_000))
    assert fetched.result.error is not None
    assert fetched.result.error.error().code == "STORAGE_ERROR"
    answer = by_workers(core, files, lambda: partition.offsets(OffsetQuery(1, 0, OffsetKind.TIMESTAMP, 30)))
    assert answer.error is not None
    assert answer.error.error().code == "STORAGE_ERROR"
    with pytest.raises(TidelogError, match="EIO"):
        by_workers(core, files, lambda: partition.get(2))


def test_what_was_removed_meanwhile_is_not_found() -> None:
    """Retention or a deletion while a worker is at a segment: readers get the answer of then."""
    core, partition, _files = restarted()
    fetch = partition.fetch(FetchPosition(1, 0, 0), max_bytes=1_000)
    search = partition.offsets(OffsetQuery(1, 0, OffsetKind.TIMESTAMP, 5))
    partition.log.change_settings(LogSettings(segment_bytes=65_536, retention_bytes=110_000))
    assert partition.log.expire(core.time.wall_us()) is not None
    while core.workers.run():
        pass
    assert isinstance(fetch, Deferred)
    assert isinstance(search, Deferred)
    error = fetch.result().result.error
    assert error is not None
    assert isinstance(error.error(), OffsetOutOfRangeError)
    assert search.result().offset == partition.start_offset == 6
    core, partition, _files = restarted()
    fetch = partition.fetch(FetchPosition(1, 0, 0), max_bytes=1_000)
    core.topics.delete("default/orders")
    core.settle()
    while core.workers.run():
        core.settle()
    assert isinstance(fetch, Deferred)
    error = fetch.result().result.error
    assert error is not None
    assert isinstance(error.error(), UnknownTopicIdError)


def test_a_read_over_more_segments_than_may_be_open_ends() -> None:
    """After so many preparations the loop waits for the rest rather than go round for ever."""
    settings = LogSettings(segment_bytes=8192, index_interval_bytes=512, max_open_segments=2)
    log = open_log(settings=settings)
    for _ in range(60):
        append(log, b"x" * 500)
        sync(log)
        upkeep(log)
    assert log.segment_count == 10
    fetcher = Fetcher(
        log,
        offload_inline,
        visible=lambda: log.end_offset,
        when_visible=lambda _offset, _then: None,
        found=lambda: None,
    )
    fetched = fetcher.fetch(FetchPosition(1, 0, 0), 60_000)
    assert isinstance(fetched, Deferred)
    assert fetched.result().result.next_offset == 60
