"""What is kept of the errors that members give."""

from __future__ import annotations

from tidelog.broker.queues.kept_error import cut_errors, keep_of
from tidelog.protocol.messages import SettleError, SettleItem, Settling


def test_a_short_error_is_kept_as_it_is() -> None:
    """Up to the limit nothing is changed, NUL, newline and control characters included."""
    error = SettleError("ValueError", "a\x00b\n\x1b[2J", "x" * 64)
    assert keep_of(error, 64) is error


def test_a_long_error_keeps_its_beginning_and_the_end_of_its_traceback() -> None:
    """Text is cut at its end, a traceback at its beginning, a type that is none at 256 bytes."""
    kept = keep_of(SettleError("K" * 300, "begin" + "t" * 100, "t" * 100 + "end"), 64)
    assert (kept.kind, kept.text, kept.traceback) == ("K" * 256, "begin" + "t" * 59, "t" * 61 + "end")


def test_no_character_is_cut_in_two() -> None:
    """A character that does not fit whole is left out, on either side."""
    kept = keep_of(SettleError("E", "ä" * 40, "ä" * 40), 65)
    assert (kept.text, kept.traceback) == ("ä" * 32, "ä" * 32)


def test_every_item_is_cut() -> None:
    """Items without an error have none afterwards."""
    items = [
        SettleItem(1, 0, 1, Settling.ACCEPT),
        SettleItem(1, 0, 2, Settling.REJECT, error=SettleError("E", "x" * 99)),
    ]
    cut_errors(items, 64)
    assert items[0].error is None
    assert items[1].error == SettleError("E", "x" * 64)
