"""Reading a partition: progress, ranges, epochs, timestamps, lookups, damage."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import batch, bulk_of, split, start

from tidelog.broker.deferred import Deferred
from tidelog.broker.fetcher import Fetched
from tidelog.broker.partition import Partition
from tidelog.broker.storage.files.descriptor import DescriptorFile
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import (
    CorruptError,
    NotFoundError,
    OffsetOutOfRangeError,
    TruncatedError,
)
from tidelog.protocol.messages import FetchPosition, OffsetAnswer, OffsetKind, OffsetQuery


def offset_of(partition: Partition, kind: OffsetKind, time_us: int = 0) -> int:
    """Ask one lookup that needs no wait."""
    answer = partition.offsets(OffsetQuery(partition.topic_id, partition.index, kind, time_us))
    assert isinstance(answer, OffsetAnswer)
    assert answer.error is None
    return answer.offset


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_fetch_returns_at_least_one_batch_and_goes_on_after_it() -> None:
    """However small `max_bytes` is, a reader makes progress batch by batch and sees each once."""
    core, partition = start()
    for n in range(5):
        core.produce(partition, batch(b"%d" % n, b"x"))
    offset, seen = 0, list[int]()
    while (fetched := core.fetch(partition, offset, max_bytes=1)).bulk:
        seen += [BatchHeader.read(found).base_offset for found in split(bulk_of(fetched))]
        offset = fetched.result.next_offset
    assert seen == [0, 2, 4, 6, 8]
    assert (offset, fetched.is_answer) == (10, False)


def test_a_fetch_says_what_can_be_read() -> None:
    """The answer carries the valid range and where to go on; an offset inside a batch gets the whole batch."""
    core, partition = start()
    core.produce(partition, batch(b"a", b"b", b"c"))
    result = core.fetch(partition, 1).result
    assert (result.next_offset, result.start_offset, result.end_offset) == (3, 0, 3)
    assert BatchHeader.read(bulk_of(core.fetch(partition, 1))).base_offset == 0


def test_an_offset_past_the_end_is_an_error_with_the_range() -> None:
    """Reading at the end waits, past the end is OFFSET_OUT_OF_RANGE with what is valid."""
    core, partition = start()
    core.produce(partition, batch(b"a"))
    assert core.fetch(partition, 1).result.error is None
    error = core.fetch(partition, 2).result.error
    assert error is not None
    assert isinstance(error.error(), OffsetOutOfRangeError)
    assert error.details == {"start": 0, "end": 1}
    assert error.message == "expected an offset from 0 to 1 in orders/0, found 2"


def test_a_reader_ahead_of_its_epoch_is_told_where_that_ended() -> None:
    """A reader whose last batch was lost with a power loss gets TRUNCATED with the end of that batch's epoch."""
    core, partition = start()
    core.produce(partition, batch(b"a"))
    epoch = partition.log.epoch
    core = core.after_stop()
    partition = core.topic("orders").partition(0)
    core.produce(partition, batch(b"b"), batch(b"c"), batch(b"d"))
    assert core.fetch(partition, 1, epoch=epoch).result.error is None
    error = core.fetch(partition, 3, epoch=epoch).result.error
    assert error is not None
    assert isinstance(error.error(), TruncatedError)
    assert error.details == {"epoch": epoch, "end": 1}
    assert error.message == f"expected at most offset 1, where epoch {epoch} of orders/0 ends, found 3"


@pytest.mark.parametrize("is_cold", [False, True])
def test_batches_outside_a_range_of_timestamps_are_left_out(is_cold: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only batches that have a record in [from, to) are sent; the reader passes over the others in one answer."""
    core, partition = start()
    for at_us in (10, 20, 30, 20, 40):
        core.produce(partition, batch(b"%d" % at_us, timestamp_us=at_us))

    def is_resident(*_: object) -> bool:
        return not is_cold

    monkeypatch.setattr(DescriptorFile, "is_resident", is_resident)
    core.workers.held = True

    def fetch(from_us: int, to_us: int) -> Fetched:
        fetched = partition.fetch(FetchPosition(1, 0, 0), max_bytes=1 << 20, timestamps=(from_us, to_us))
        assert isinstance(fetched, Deferred) is is_cold
        while isinstance(fetched, Deferred) and fetched.is_pending:
            core.workers.run()
        return fetched.result() if isinstance(fetched, Deferred) else fetched

    fetched = fetch(20, 30)
    offsets = [BatchHeader.read(found).base_offset for found in split(bulk_of(fetched))]
    assert (offsets, fetched.result.next_offset, fetched.result.bulk_bytes) == ([1, 3], 5, len(bulk_of(fetched)))
    nothing = fetch(50, 60)
    assert (nothing.bulk, nothing.result.next_offset, nothing.is_answer) == ([], 5, True)


def test_one_record_is_found_by_its_offset() -> None:
    """`get` returns the one batch that holds a visible record, and NOT_FOUND with the range for any other offset."""
    core, partition = start()
    core.produce(partition, batch(b"a", b"b"), batch(b"c"))
    core.send(partition, batch(b"unseen"))
    (piece,) = partition.get(1)
    assert BatchHeader.read(piece.file.read_at(piece.position, piece.length)).base_offset == 0
    for offset in (3, 99):
        with pytest.raises(NotFoundError) as error:
            partition.get(offset)
        assert error.value.details == {"start": 0, "end": 3}


# -- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_by_name_and_time_equal_a_linear_scan() -> None:
    """Every kind of lookup names the record that a scan of the visible records would."""
    core, partition = start()
    start_us = core.time.now_us()
    for n, at_us in enumerate((20, 10, 30)):
        core.produce(partition, batch(b"%d" % n, timestamp_us=at_us))
        core.clock.advance(100)
    assert offset_of(partition, OffsetKind.EARLIEST) == 0
    assert offset_of(partition, OffsetKind.LATEST) == 3
    assert [offset_of(partition, OffsetKind.APPEND_TIME, start_us + d) for d in (-1, 0, 1, 100, 201)] == [0, 0, 1, 1, 3]
    assert [offset_of(partition, OffsetKind.TIMESTAMP, at) for at in (5, 20, 21, 31)] == [0, 0, 2, 3]
    assert [offset_of(partition, OffsetKind.TIMESTAMP_END, at) for at in (10, 11, 20, 21, 31)] == [0, 2, 2, 2, 3]


def test_lookups_end_where_consumers_see() -> None:
    """A record that is not visible yet is no answer; a lookup that it decides is answered when it is."""
    core, partition = start()
    core.produce(partition, batch(b"early", timestamp_us=10), batch(b"late", timestamp_us=50))
    core.send(partition, batch(b"early again", timestamp_us=10))
    assert offset_of(partition, OffsetKind.LATEST) == 2
    assert offset_of(partition, OffsetKind.TIMESTAMP, 60) == 2
    answer = partition.offsets(OffsetQuery(partition.topic_id, 0, OffsetKind.TIMESTAMP_END, 20))
    assert isinstance(answer, Deferred)
    assert core.wait(answer).offset == 3


# -- damage ----------------------------------------------------------------------------------------------------------


def test_a_reader_that_met_a_bad_checksum_gets_the_damage_contained() -> None:
    """`verify` finds the damaged batch, every later read of it is CORRUPT with where to go on, the rest is served."""
    core, partition = start()
    for value in (b"a" * 20, b"b" * 20, b"c" * 20):
        core.produce(partition, batch(value, value))
    path = "partitions/1-0/messages/00000000000000000000.log"
    (piece,) = partition.get(2)
    file = core.files.open(path)
    file.write_at(piece.position + piece.length - 9, b"\xff")
    answer = partition.verify(FetchPosition(partition.topic_id, 0, 2), max_bytes=1 << 20)
    error = answer.result().result.error
    assert error is not None
    assert isinstance(error.error(), CorruptError)
    assert error.details == {"start": 2, "end": 4, "next": 4}
    assert core.read(partition, 4) == [b"c" * 20] * 2
    assert core.fetch(partition, 0).result.next_offset == 2
    with pytest.raises(CorruptError):
        partition.get(3)
    assert partition.info("node", details=True).damaged == [(2, 4)]
    assert core.events == ["damage found"]
    core.settle()
    again = core.after_stop().topic("orders").partition(0)
    assert again.info("node", details=True).damaged == [(2, 4)]


def test_verify_of_intact_batches_returns_them() -> None:
    """A reader whose own memory was at fault gets the batches after all."""
    core, partition = start()
    core.produce(partition, batch(b"a"))
    fetched = partition.verify(FetchPosition(partition.topic_id, 0, 0), max_bytes=1 << 20).result()
    assert fetched.result.error is None
    assert bulk_of(fetched) == core.read_batches(partition)[0]
