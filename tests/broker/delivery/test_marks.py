"""Marks of messages, kept by what they say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.broker.delivery.marks import NEW, Mark, Marks
from tidelog.broker.delivery.offset_set import OffsetSet, set_of
from tidelog.protocol.messages import SettleError

MARKS = [NEW, Mark(1), Mark(2), Mark(1, suspect=3)]


def test_marks_are_found_by_message_and_by_set():
    """What has none is new; those alike come together, also over the edge of a block."""
    marks = Marks()
    marks.put(set_of([(1_000, 1_100)]), Mark(2))
    marks.put(OffsetSet([3_005]), Mark(1))
    assert [marks.get(at) for at in (1_023, 1_024, 3_005, 3_006)] == [Mark(2), Mark(2), Mark(1), NEW]
    assert [(mark, [*part]) for mark, part in marks.items(OffsetSet([1_023, 1_024, 3_005, 3_006]))] == [
        (Mark(2), [1_023, 1_024]),
        (Mark(1), [3_005]),
    ]
    assert [(mark, [*part]) for mark, part in marks.parts(OffsetSet([3_005, 3_006]))] == [
        (NEW, [3_006]),
        (Mark(1), [3_005]),
    ]


def test_suspicion_is_as_strict_as_it_ever_was():
    """A later, weaker one changes nothing; an attempt is counted beside it."""
    assert Mark().suspected(10).suspected(100) == Mark(suspect=10)
    assert Mark(suspect=10).suspected(1) == Mark(suspect=1)
    assert Mark(2, suspect=1).attempted(50, None, 1) == Mark(3, 1, 50, None, 50)


def test_every_second_of_a_million_is_a_few_entries():
    """What failed together is one entry in a block of 1,024, however scattered it is."""
    marks = Marks()
    marks.put(OffsetSet(range(0, 2_000_000, 2)), Mark(suspect=50))
    assert len(marks.frozen()) == 1_954
    marks.drop(OffsetSet(range(0, 2_000_000, 2)))
    assert (len(marks), marks.frozen()) == (0, [])


def test_a_thousand_marks_may_become_one():
    """Each message has an error of its own, which then nobody has to know any more; what was frozen before stays."""
    marks = Marks()
    for offset in range(3_000):
        marks.put(OffsetSet([offset]), Mark(1 + offset % 2, error=SettleError("E", f"error {offset}")))
    frozen = marks.frozen()
    assert len(frozen) == 3_000
    marks.change(set_of([(0, 2_500)]), Mark.told)
    marks.check()
    assert len(marks.frozen()) == 2 * 3 + 500
    assert [marks.get(offset) for offset in (0, 1, 2_499)] == [Mark(1), Mark(2), Mark(2)]
    assert marks.get(2_500).error == SettleError("E", "error 2500")
    assert [[*offsets] for _mark, offsets in frozen] == [[offset] for offset in range(3_000)]


@given(st.lists(st.tuples(st.integers(0, 2_300), st.integers(1, 1_500), st.integers(1, 3), st.sampled_from(MARKS))))
def test_marks_are_as_a_plain_dict_has_them(puts: list[tuple[int, int, int, Mark]]):
    """Whatever is put over whatever, each message has the last mark."""
    marks, plain = Marks(), dict[int, Mark]()
    for start, length, step, mark in puts:
        offsets = range(start, start + length, step)
        marks.put(OffsetSet(offsets), mark)
        plain |= dict.fromkeys(offsets, mark)
    marks.check()
    plain = {offset: mark for offset, mark in plain.items() if mark != NEW}
    assert {offset: mark for mark, part in marks for offset in part} == plain
    assert [*marks.suspects_in(set_of([(0, 4_000)]))] == sorted(at for at, mark in plain.items() if mark.suspect)


def test_a_message_costs_itself_where_all_have_errors_of_their_own(monkeypatch: pytest.MonkeyPatch):
    """Of 1,024 in a block each failed alone: to drop the mark of one looks at no set of another."""
    marks = Marks()
    for offset in range(1_024):
        marks.put(OffsetSet([offset]), Mark(1, error=SettleError("ValueError", f"about {offset}")))
    marks.drop(OffsetSet([7]))
    looked: list[int] = []

    class Watched(OffsetSet):
        def isdisjoint(self, other: OffsetSet) -> bool:
            looked.append(len(other))
            return super().isdisjoint(other)

    (block,) = marks._blocks.values()  # pyright: ignore[reportPrivateUsage]
    for mark, known in block.entries.items():
        block.entries[mark] = Watched(known)
    marks.drop(OffsetSet([8]))
    assert marks.get(9) == Mark(1, error=SettleError("ValueError", "about 9"))
    assert marks.items(OffsetSet([7, 8, 9])) == [(Mark(1, error=SettleError("ValueError", "about 9")), OffsetSet([9]))]
    assert (len(looked), len(marks)) == (0, 1_022)
    marks.put(OffsetSet([9, 10]), Mark(2))
    assert [marks.get(at) for at in (8, 9, 10)] == [NEW, Mark(2), Mark(2)]
    marks.check()
