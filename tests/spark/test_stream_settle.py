"""Where a stream stands against what the broker says: new, held, gone, made again, cut, removed."""

from __future__ import annotations

import pytest

from tidelog import UnknownTopicError
from tidelog.spark.errors import DataLossError
from tidelog.spark.offsets import Available
from tidelog.spark.places import Place, Range
from tidelog.spark.stream_offset import NEW, StreamOffset
from tidelog.spark.stream_settle import Seen, check_losses, ranges_of, settle

A, B, N = Place("orders", 0), Place("orders", 1), Place("new", 0)
START = StreamOffset({A: 20, B: 30}, {"orders": 7})
HELD = {A: Available(10, 50, 100.0, 1, 3), B: Available(0, 30, 100.0, 1, 3)}
MADE = {"orders": 7}


def test_a_stream_begins_where_it_is_told_to() -> None:
    """Every partition's beginning is part of the first offset, and nothing is lost by not beginning at 0."""
    found = settle(NEW, Seen(HELD, MADE), {A: 50, B: 3})
    assert found.to(found.next) == StreamOffset({A: 50, B: 3}, MADE, {A: 50, B: 3})
    assert (found.losses, found.changes(NEW)) == ([], True)
    nothing = settle(NEW, Seen({}, {}), {})
    assert nothing.changes(NEW)
    assert nothing.to({}).to_json() == {"@topics": {}}


def test_a_stream_goes_on_where_it_was() -> None:
    """Nothing changes while all is as it was."""
    found = settle(START, Seen(HELD, MADE), {})
    assert found.to(found.next) == START
    assert not found.changes(START)
    assert Seen(HELD, MADE).ends(found.next) == {A: 50, B: 30}


def test_what_is_new_is_read_from_its_beginning() -> None:
    """A partition and a topic; what retention has removed of the partition meanwhile is lost, a topic may be old."""
    seen = Seen({**HELD, Place("orders", 2): Available(0, 9), N: Available(5, 9)}, {**MADE, "new": 8})
    found = settle(START, seen, {})
    assert found.begins == {Place("orders", 2): 0, N: 5}
    assert found.next == {A: 20, B: 30, Place("orders", 2): 0, N: 5}
    assert (found.made, found.losses) == ({"orders": 7, "new": 8}, [])
    late = Seen({**HELD, Place("orders", 2): Available(4, 9)}, MADE)
    assert settle(START, late, {}).losses == ["orders/2: offsets 0 to 4 of a new partition were removed by retention"]
    assigned = Seen(late.available, MADE, is_whole=False)
    assert settle(START, assigned, {}).losses == []


def test_an_incomplete_answer_moves_nothing() -> None:
    """A partition that is missing stays where it is, and so do all of a topic without any."""
    found = settle(START, Seen({A: HELD[A]}, MADE), {})
    assert (found.next, found.held, found.losses) == (START.next, [B], [])
    assert not found.changes(START)
    assert Seen({A: HELD[A]}, MADE).ends(found.next) == {A: 50, B: 30}
    assert settle(START, Seen({}, MADE), {}).next == START.next


def test_what_is_lost_is_said() -> None:
    """Deleted, made again, removed by retention, a log that lost its end: in words, and where it goes on."""
    gone = settle(START, Seen({}, {}, {"orders": UnknownTopicError("no topic")}), {})
    assert gone.losses == ["orders: the topic was deleted, and what was not read of it is gone"]
    assert (gone.next, gone.changes(START)) == ({}, True)
    again = settle(START, Seen({A: Available(0, 90)}, {"orders": 8}), {})
    assert again.losses == ["orders: the topic was deleted and made again, and what was not read of it is gone"]
    assert again.to(again.next) == StreamOffset({A: 0}, {"orders": 8}, {A: 0})
    removed = settle(START, Seen({**HELD, A: Available(25, 50)}, MADE), {})
    assert removed.losses == ["orders/0: offsets 20 to 25 were removed by retention"]
    assert (removed.next, removed.begins) == ({A: 25, B: 30}, {A: 25})
    cut = settle(START, Seen({**HELD, B: Available(0, 28)}, MADE), {})
    assert cut.losses == ["orders/1: read up to offset 30, and its log lost what was behind 28"]
    assert (cut.next, cut.begins) == ({A: 20, B: 28}, {B: 28})
    grown = settle(START, Seen(HELD, MADE, cut={A: 15}, epochs={A: 4}), {})
    assert grown.losses == ["orders/0: read up to offset 20, and its log lost what was behind 15"]
    assert grown.to(grown.next) == StreamOffset({A: 15, B: 30}, MADE, {A: 15}, {A: 4})
    check_losses([])
    with pytest.raises(DataLossError) as caught:
        check_losses([*removed.losses, *cut.losses])
    assert str(caught.value) == (
        "orders/0: offsets 20 to 25 were removed by retention; orders/1: read up to offset 30, and its log lost what was"
        " behind 28; failOnDataLoss=false reads what is there"
    )


def test_a_topic_that_never_was_there() -> None:
    """Is an error and no loss, also beside others; one that the options name no more is left."""
    error = UnknownTopicError('no topic "ordres", do you mean "orders"?')
    with pytest.raises(UnknownTopicError, match="do you mean"):
        settle(START, Seen(HELD, MADE, {"ordres": error}), {})
    with pytest.raises(UnknownTopicError):
        settle(NEW, Seen(HELD, MADE, {"ordres": error}), {A: 0, B: 0}, fails=False)
    left = settle(START, Seen(HELD, MADE, {"ordres": error}), {}, fails=False)
    assert (left.next, left.losses) == (START.next, [])
    dropped = settle(START, Seen({N: Available(0, 3)}, {"new": 8}), {})
    assert (dropped.dropped, dropped.next, dropped.losses) == (["orders"], {N: 0}, [])
    assert dropped.changes(START)


def test_what_a_batch_reads() -> None:
    """From where the last ended, or where its end says, of the topic as it was when the batch was made."""
    end = StreamOffset({A: 40, B: 30, N: 9}, {"orders": 7, "new": 8}, {N: 5})
    seen = Seen({**HELD, N: Available(0, 50, 1.0, 2, 4)}, {**MADE, "new": 8})
    assert ranges_of(START, end, seen) == ([Range(N, 5, 9, 2, 4), Range(A, 20, 40, 1, 3)], [])
    assert ranges_of(START, START, seen) == ([], [])
    without = Seen({}, {**MADE, "new": 8})
    assert ranges_of(START, end, without) == ([Range(N, 5, 9), Range(A, 20, 40)], [])


def test_a_batch_reads_only_what_was_there_when_it_was_made() -> None:
    """A range has the epoch that its batch was made in, not the one of now, and the topic's identity, also while the
    partition cannot be served: what has those offsets since is told apart by the task."""
    end = StreamOffset({A: 40, B: 30, N: 9}, {"orders": 7, "new": 8}, {N: 5}, {A: 2, N: 4})
    ids = {"orders": (1, 3), "new": (2, 4)}
    seen = Seen(HELD, {**MADE, "new": 8}, epochs={A: 3, N: 5}, ids=ids)
    found = [Range(N, 5, 9, 2, 4, epoch=4), Range(A, 20, 40, 1, 3, epoch=2)]
    assert ranges_of(START, end, seen) == (found, [])


def test_what_a_batch_has_lost_since_it_was_made() -> None:
    """The same four ways; what is there is left of it."""
    end = StreamOffset({A: 40}, MADE)
    before = StreamOffset({A: 20}, MADE)
    for seen, left, loss in (
        (Seen({A: Available(25, 50)}, MADE), [Range(A, 25, 40)], "20 to 25 were removed by retention"),
        (Seen({A: Available(45, 50)}, MADE), [], "20 to 40 were removed by retention"),
        (Seen({A: Available(0, 30)}, MADE), [Range(A, 20, 30)], "30 to 40 are lost: its log ends at 30 since"),
        (Seen({A: Available(0, 10)}, MADE), [], "20 to 40 are lost: its log ends at 10 since"),
        (
            Seen({A: Available(0, 50)}, MADE, cut={A: 25}),
            [Range(A, 20, 25)],
            "25 to 40 are lost: its log ends at 25 since",
        ),
        (Seen({A: Available(0, 50)}, {"orders": 8}), [], "20 to 40: the topic was deleted and made again"),
        (Seen({}, {}, {"orders": UnknownTopicError("no topic")}), [], "20 to 40: the topic was deleted"),
    ):
        assert ranges_of(before, end, seen) == (left, [f"orders/0: offsets {loss}"])
