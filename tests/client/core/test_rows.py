"""The list that a producer appends to, while a cut is interrupted or another thread appends between any two lines."""

from __future__ import annotations

from itertools import count

import pytest
from tests.client.core.interrupting import at_line, interrupted

from tidelog.client.core.rows import FULL, KEYED, VALUE, Extras, Rows

FILES = ("rows.py",)


def filled(width: int) -> Rows:
    """Return a list of three messages."""
    rows = Rows(width, 100)
    for at in range(3):
        append(rows, at)
    return rows


def append(rows: Rows, at: int) -> None:
    """Append a message that says which it is."""
    rows.append(b"%d" % at, None, None, Extras([], 4, None, None, None, None) if rows.width == FULL else None)


def take(rows: Rows, taken: list[bytes | None]) -> None:
    """Take off what there is; what is made of it is known by the draw that it was made of."""
    drawn = rows.draw()
    if drawn is not None:
        new = [value for value in drawn.messages.values if value not in taken]
        rows.drop(drawn)
        taken += new


@pytest.mark.parametrize("width", [VALUE, KEYED, FULL])
def test_a_draw_or_a_drop_may_be_interrupted_anywhere(width: int) -> None:
    """Before the drop is done the same is drawn again, and after it nothing of it is."""
    for number in count(1):
        rows = filled(width)
        first = rows.draw()
        assert first is not None
        if not interrupted(number, lambda rows=rows, first=first: rows.drop(first), FILES):
            break
        append(rows, 3)
        again = rows.draw()
        assert again is not None
        if again is not first:
            assert again.messages.values == [b"3"]
            continue
        assert len(rows) == 4
        rows.drop(again)
        last = rows.draw()
        assert last is not None
        assert last.messages.values == [b"3"]
    assert number > 2


@pytest.mark.parametrize("width", [VALUE, KEYED, FULL])
def test_another_thread_may_append_between_any_two_lines(width: int) -> None:
    """Whenever it does, each message comes out once, in order."""
    for number in count(1):
        rows, taken = filled(width), list[bytes | None]()
        was_struck = at_line(number, lambda rows=rows: append(rows, 3), lambda: take(rows, taken), FILES)  # noqa: B023
        take(rows, taken)
        assert (taken, len(rows)) == ([b"%d" % at for at in range(4 if was_struck else 3)], 0)
        if not was_struck:
            break
    assert number > 10
