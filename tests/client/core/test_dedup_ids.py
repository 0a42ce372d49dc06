"""Dedup ids on their way out: what may be one, what it is in a batch, where it sends a message, and what comes back."""

import numpy as np
import pytest

from tidelog.client.core.columns import Columns
from tidelog.client.core.cutting import cut
from tidelog.client.core.directory import TopicEntry
from tidelog.client.core.outcome import outcome_question, outcome_receipt
from tidelog.client.core.partitioner import StickyPartitioner, choose_partition, partition_of
from tidelog.client.core.places import place_of, places_of
from tidelog.client.core.record import DedupId, Record, make_record, to_dedup_id
from tidelog.client.receipt import Receipt
from tidelog.protocol.dedup_id import NO_DEDUP_ID, hash_dedup_id, settle
from tidelog.protocol.errors import StorageError
from tidelog.protocol.messages import BatchResult, ErrorInfo, Outcome, OutcomePlace, OutcomeReply


def record(dedup_id: DedupId | None = "a", key: str | None = None, partition: int | None = None) -> Record:
    """Return a message with an id."""
    return make_record(
        "v",
        key=key,
        headers=None,
        priority=4,
        partition=partition,
        timestamp=None,
        now_us=1,
        dedup_id=dedup_id,
    )


def test_an_id_is_the_128_bit_hash_of_what_was_given() -> None:
    """A batch holds the canonical xxh3_128, the same for text and its UTF-8 bytes."""
    assert hash_dedup_id(b"a").hex() == "a96faf705af16834e6c632b61e964e1f"
    assert to_dedup_id("ключ") == to_dedup_id("ключ".encode())
    assert record("a").dedup_id == to_dedup_id(b"a")
    assert record(None).dedup_id is None


def test_no_id_hashes_to_what_means_none() -> None:
    """The one hash that would read as no id is another id's bytes."""
    assert settle(NO_DEDUP_ID) == bytes(15) + b"\x01"
    assert settle(b"\x01" * 16) == b"\x01" * 16


@pytest.mark.parametrize("empty", ["", b""])
def test_an_empty_id_is_refused(empty: DedupId) -> None:
    """Nothing is no id: all messages without a name would be one."""
    with pytest.raises(ValueError, match="dedup_id: expected at least one byte, found none"):
        record(empty)
    with pytest.raises(ValueError, match=r"dedup_ids\[1\]: expected at least one byte, found none"):
        Columns(["v", "w"], dedup_ids=["a", empty])


def test_an_id_of_another_type_is_named() -> None:
    """Numbers have more than one form as bytes, so nobody guesses one."""
    with pytest.raises(TypeError, match="dedup_id: expected str or bytes, found int"):
        record(7)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="dedup_ids: expected a list of ids, found one str"):
        Columns(["v"], dedup_ids="a")
    with pytest.raises(ValueError, match="dedup_ids: expected 2 entries, one for each value, found 1"):
        Columns(["v", "w"], dedup_ids=["a"])


def test_an_id_chooses_the_partition_where_there_is_no_key() -> None:
    """A repeat goes where the first one went; a key goes first, but not where ids are unique in the topic."""
    by_id, by_key = partition_of(to_dedup_id("a"), 4), partition_of(b"k3", 4)
    assert (by_id, by_key) == (3, 2)
    assert choose_partition(record(), 4, "t", id_chooses=False) == 3
    assert choose_partition(record(key="k3"), 4, "t", id_chooses=False) == 2
    assert choose_partition(record(key="k3"), 4, "t", id_chooses=True) == 3
    assert choose_partition(record(None), 4, "t", id_chooses=True) is None
    assert choose_partition(record(partition=0), 4, "t", id_chooses=False) == 0


def test_a_partition_by_number_must_be_the_ids_where_the_id_chooses() -> None:
    """An id stays unique in the topic whoever names a partition."""
    assert choose_partition(record(partition=3), 4, "t", id_chooses=True) == 3
    with pytest.raises(ValueError, match=r"expected none, or 3, since the dedup id chooses .* found 1"):
        choose_partition(record(partition=1), 4, "t", id_chooses=True)
    columns = Columns(["v", "w"], dedup_ids=[None, "a"], partition=1)
    with pytest.raises(ValueError, match=r"expected none, or 3, since the dedup id chooses .* found 1"):
        list(columns.chunks("t", 4, StickyPartitioner(0), 100, id_chooses=True))


@pytest.mark.parametrize(("id_chooses", "expected"), [(False, [3, 2, 2]), (True, [3, 3, 2])])
def test_columns_go_where_single_messages_go(id_chooses: bool, expected: list[int]) -> None:
    """Rows with an id, with both, and with a key alone."""
    columns = Columns(["0", "1", "2"], keys=[None, "k3", "k3"], dedup_ids=["a", "a", None])
    found = {
        int(row): chunk.partition
        for chunk in columns.chunks("t", 4, StickyPartitioner(0), 100, id_chooses=id_chooses)
        for row in np.arange(3)[chunk.rows]
    }
    assert [found[row] for row in range(3)] == expected


def test_rows_keep_their_ids_through_grouping() -> None:
    """Each batch has the ids of its own rows, zeros where there is none."""
    columns = Columns(["0", "1", "2", "3"], dedup_ids=["a", "b", None, "a"], partition=[1, 0, 1, 1])
    ids = {
        chunk.partition: chunk.table.dedup_ids.tolist()  # type: ignore[union-attr]
        for chunk in columns.chunks("t", 2, StickyPartitioner(0), 100)
    }
    assert ids == {0: [to_dedup_id("b")], 1: [to_dedup_id("a"), NO_DEDUP_ID, to_dedup_id("a")]}


def test_what_was_left_out_is_where_it_was_first() -> None:
    """The others of its batch move up."""
    result = BatchResult(100, 7, 3, duplicates=[(0, 9), (2, 100)], first_append_times_us=[5, 7])
    assert [place_of(result, index) for index in range(5)] == [
        (9, 5, True),
        (100, 7, False),
        (100, 7, True),
        (101, 7, False),
        (102, 7, False),
    ]
    places = places_of(result, 5)
    assert places.offsets.tolist() == [9, 100, 100, 101, 102]
    assert places.append_times_us.tolist() == [5, 7, 7, 7, 7]
    assert places.are_duplicates.tolist() == [True, False, True, False, False]


def test_without_duplicates_records_lie_in_a_row() -> None:
    """Record i is i behind the first."""
    assert place_of(BatchResult(100, 7, 2), 1) == (101, 7, False)
    assert places_of(BatchResult(100, 7, 2), 2).offsets.tolist() == [100, 101]


def test_a_batch_has_no_more_ids_than_a_broker_takes() -> None:
    """However large batches may be: 65,536 records with ids, and as many as fit without."""
    values = [b""] * 150_000
    for dedup_ids, most in ((["a"] * 150_000, 65_536), (None, 145_904)):
        parts = [len(part) for _, part in cut(Columns(values, dedup_ids=dedup_ids).table, 1 << 24)]
        assert (max(parts), sum(parts)) == (most, 150_000)


def topic(*, id_chooses: bool = False) -> TopicEntry:
    """Return a topic of four partitions."""
    return TopicEntry("default/t", "t", 7, 1, 4, None, 1, "synced", id_chooses)


@pytest.mark.parametrize(
    ("id_chooses", "key", "partition", "expected"),
    [(False, None, None, None), (False, b"k3", None, 2), (False, b"k3", 0, 0), (True, b"k3", None, 3)],
)
def test_an_outcome_is_asked_for_where_the_message_was_sent(
    id_chooses: bool, key: bytes | None, partition: int | None, expected: int | None
) -> None:
    """The partition that is named, or that the id or the key chooses; everywhere when nothing says where."""
    a = to_dedup_id("a")
    assert outcome_question(topic(id_chooses=id_chooses), a, key, partition) == Outcome(7, a, expected)


def test_an_outcome_is_the_first_message() -> None:
    """Of several partitions that know the id the one that accepted it first; None when all say no."""
    places = [OutcomePlace(0, 5, 300), OutcomePlace(2, 9, 200)]
    assert outcome_receipt(topic(), OutcomeReply(1, places)) == Receipt("t", 2, 9, 200, "synced", True)
    assert outcome_receipt(topic(), OutcomeReply(1, [])) is None


def test_an_outcome_that_cannot_be_told_raises() -> None:
    """Not known is not the same as not stored; but what is found is found."""
    error = ErrorInfo.of(StorageError("gone"))
    with pytest.raises(StorageError, match="gone"):
        outcome_receipt(topic(), OutcomeReply(1, [], error))
    assert outcome_receipt(topic(), OutcomeReply(1, [OutcomePlace(0, 5, 300)], error)) is not None
