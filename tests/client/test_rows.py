"""The list that a producer appends to: nothing on it is lost or taken twice, wherever a cut is interrupted."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tidelog.client.core.rows import FULL, KEYED, VALUE, Extras, Rows

EXTRAS = Extras([("h", b"1")], 9, 2, 5, b"i" * 16, "id")


def test_columns_come_out_as_messages_went_in() -> None:
    """Values alone, with key and tag, and with extras; a column of which every entry is None is left out."""
    rows = Rows(VALUE, 100)
    rows.append(b"1", None, None, None)
    rows.append(None, None, None, None)
    drawn = rows.draw()
    assert drawn is not None
    assert (drawn.messages.values, drawn.messages.keys, drawn.messages.tags) == ([b"1", None], None, None)
    rows = Rows(KEYED, 100)
    rows.append(b"1", b"k", None, None)
    rows.append(b"2", None, None, None)
    drawn = rows.draw()
    assert drawn is not None
    assert (drawn.messages.values, drawn.messages.keys, drawn.messages.tags) == ([b"1", b"2"], [b"k", None], None)
    rows = Rows(FULL, 100)
    rows.append(b"1", b"k", "tag", EXTRAS)
    rows.append(b"2", None, None, None)
    drawn = rows.draw()
    assert drawn is not None
    assert (drawn.messages.tags, drawn.messages.extras) == (["tag", None], [EXTRAS, None])


def test_a_cut_that_is_interrupted_finds_the_same_again() -> None:
    """Drawn twice it is one and the same; taken off it is gone, and what came meanwhile is left."""
    rows = Rows(VALUE, 100)
    rows.append(b"1", None, None, None)
    first = rows.draw()
    rows.append(b"2", None, None, None)
    assert first is not None
    assert rows.draw() is first
    rows.drop(first)
    assert len(rows) == 1
    second = rows.draw()
    assert second is not None
    assert second.messages.values == [b"2"]
    rows.drop(second)
    assert rows.draw() is None


@pytest.mark.parametrize("width", [VALUE, KEYED, FULL])
def test_any_course_of_appends_and_cuts_keeps_every_message_once(width: int) -> None:
    """Random appends, draws that are never finished, and drops: what comes out is what went in, in order."""
    chance = random.Random(width)
    rows, taken, sent = Rows(width, 100), [], 0
    for _ in range(5_000):
        step: Any = chance.random()
        if step < 0.6:
            rows.append(b"%d" % sent, None, sent, None)
            sent += 1
        elif (drawn := rows.draw()) is not None and step < 0.8:
            taken += drawn.messages.values
            rows.drop(drawn)
    last = rows.draw()
    assert taken + (last.messages.values if last is not None else []) == [b"%d" % at for at in range(sent)]
