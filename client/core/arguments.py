"""What callers give, checked by one rule: another type is a TypeError, a value out of range a ValueError, both with
the argument's name. Numbers of numpy are numbers; a truth value is none.

Nothing here loads numpy: a ping does without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from operator import index
from typing import SupportsIndex, TypeVar, cast

from ...protocol.errors import TidelogError

Entry = TypeVar("Entry")
Checked = TypeVar("Checked")

_ONE_THING = (str, bytes, bytearray, memoryview, Mapping)
_REFUSALS = (TypeError, ValueError, TidelogError)


def whole_number(found: object) -> int | None:
    """Return a whole number of any kind (numpy's too) as an int; None for what only looks like one."""
    if type(found) is int:
        return found
    if isinstance(found, bool):
        return None
    try:
        return index(cast("SupportsIndex", found))
    except TypeError:
        return None


def check_count(name: str, count: int, least: int, most: int | None = None) -> int:
    """Return how many as a plain int. Raises TypeError or ValueError."""
    found = whole_number(count)
    expected = f"of {least} or more" if most is None else f"from {least} to {most}"
    if found is None:
        raise TypeError(f"{name}: expected a whole number {expected}, found {count!r}")
    if found < least or (most is not None and found > most):
        raise ValueError(f"{name}: expected a whole number {expected}, found {found}")
    return found


def check_flag(name: str, flag: bool) -> bool:
    """Return a truth value, also numpy's. Raises TypeError: text such as "no" would be true."""
    kind = type(flag)
    if kind is bool or (kind.__module__ == "numpy" and kind.__name__.startswith("bool")):
        return bool(flag)
    raise TypeError(f"{name}: expected True or False, found {flag!r}")


def check_word(name: str, word: object, words: Collection[str | None], expected: str) -> None:
    """Raise TypeError or ValueError unless this is one of the words that an argument may be."""
    if isinstance(word, str | None) and word in words:
        return
    kind = ValueError if isinstance(word, str) else TypeError
    raise kind(f"{name}: expected {expected}, found {word!r}")


def check_text(name: str, text: object, example: str) -> None:
    """Raise TypeError unless this is text."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: expected text such as {example}, found {text!r}")


def check_options(call: str, options: Mapping[str, object], known: Collection[str]) -> None:
    """Raise TypeError, in Python's words, for a keyword argument that a call does not have."""
    for name in options:
        if name not in known:
            raise TypeError(f"{call}() got an unexpected keyword argument {name!r}")


def encoded(text: str, name: str) -> bytes:
    """Return text as UTF-8. Raises ValueError for half of a surrogate pair, which has no bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name}: expected text that UTF-8 can hold, found the lone surrogate {text[error.start]!r}"
            f" at {error.start}"
        ) from None


def checked_column(
    name: str, check: Callable[..., Checked], entries: Iterable[Entry] | None, what: str
) -> list[Checked] | None:
    """Return what a check makes of each entry of a column that was given."""
    return None if entries is None else checked_rows(name, check, listed(name, entries, what))


def listed(name: str, entries: Iterable[Entry], what: str) -> list[Entry]:
    """Return the entries of a column. Raises TypeError for what is one thing, or has no order of entries."""
    if not isinstance(entries, Iterable) or isinstance(entries, _ONE_THING):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: expected a list of {what}, found {_shown(cast('object', entries))}")
    try:
        return list(entries)
    except TypeError:
        if getattr(entries, "ndim", None) != 0:  # raised while it was iterated over
            raise
        raise TypeError(f"{name}: expected a list of {what}, found {_shown(entries)}") from None


def checked_rows(name: str, check: Callable[..., Checked], rows: Sequence[Entry]) -> list[Checked]:
    """Return what a check makes of each row; its second argument is a name. What it raises names the row, which is
    looked for only then, and where there are several: a name made for each row would cost more than the check."""
    try:
        return [*map(check, rows)]
    except _REFUSALS:
        for row, entry in enumerate(rows if len(rows) > 1 else ()):
            check(entry, f"{name}[{row}]")
        raise


def row_of(place: int, rows: int) -> int:
    """Return the number of a row, counted from the end where it is negative. Raises TypeError or IndexError."""
    try:
        return range(rows)[place]
    except TypeError:
        raise TypeError(f"expected the number of a row, or a slice, found {place!r}") from None
    except IndexError:
        raise IndexError(f"expected a row below {rows}, found {place}") from None


def _shown(found: object) -> str:
    return "None" if found is None else f"one {type(found).__name__}"
