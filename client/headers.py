"""The headers of one message: names with values, in the order they were sent, repeats kept."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence, Set, ValuesView
from typing import TypeVar, cast

from .core.arguments import encoded
from .core.data import to_bytes
from .shortening import shortened

Entry = TypeVar("Entry", covariant=True)

MAX_SHOWN = 10
"""Headers that a repr shows."""

Pair = tuple[str, bytes | None]

HeaderValue = str | bytes | bytearray | memoryview | None
HeadersInput = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]
"""What `headers=` takes: a mapping, pairs, or the `Headers` of another message."""


class Headers(Mapping[str, bytes | None]):
    """Read-only headers. `h["a"]` is the first value of that name, `h.getall("a")` are all of them.

    Iterating yields names, `keys()`, `values()` and `items()` what they say; all in order and with repeats, and `len`
    counts pairs. Made from a mapping or pairs of names and values; text becomes UTF-8.
    """

    __slots__ = ("_pairs",)

    def __init__(self, headers: HeadersInput = ()) -> None:
        self._pairs = tuple(pairs_of(headers, "headers"))

    def __getitem__(self, name: str) -> bytes | None:
        for found, value in self._pairs:
            if found == name:
                return value
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return any(found == name for found, _ in self._pairs)

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, _ in self._pairs])

    def __len__(self) -> int:
        return len(self._pairs)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Headers):
            return self._pairs == other._pairs
        if isinstance(other, Mapping):
            return dict(self._pairs) == other and len(self._pairs) == len(other)  # pyright: ignore[reportUnknownArgumentType]
        if isinstance(other, list | tuple):
            return self._pairs == tuple(other)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._pairs)

    def __repr__(self) -> str:
        shown = [f"({shortened(name)}, {shortened(value)})" for name, value in self._pairs[:MAX_SHOWN]]
        more = len(self._pairs) - len(shown)
        return f"Headers([{', '.join(shown)}{f', and {more:,} more' if more else ''}])"

    def __reduce__(self) -> tuple[type[Headers], tuple[tuple[Pair, ...]]]:
        return Headers, (self._pairs,)

    def keys(self) -> KeysView[str]:
        """Return the names, in order, with repeats."""
        return _Keys(self)

    def values(self) -> ValuesView[bytes | None]:
        """Return the values, in order, those of repeats too."""
        return _Values(self)

    def items(self) -> _Items:
        """Return the pairs, in order, with repeats."""
        return _Items(self)

    def getall(self, name: str) -> list[bytes | None]:
        """Return every value of a name, in order; an empty list if it has none."""
        return [value for found, value in self._pairs if found == name]


class _Names(Set[Entry]):
    """Compares a view as the set of what it yields: the inherited comparisons count repeats."""

    def __eq__(self, other: object) -> bool:
        return set(self) == set(other) if isinstance(other, Set) else NotImplemented  # pyright: ignore[reportUnknownArgumentType]

    def __le__(self, other: Set[object]) -> bool:
        return set(self) <= set(other) if isinstance(other, Set) else NotImplemented  # pyright: ignore[reportUnnecessaryIsInstance]

    def __lt__(self, other: Set[object]) -> bool:
        return set(self) < set(other) if isinstance(other, Set) else NotImplemented  # pyright: ignore[reportUnnecessaryIsInstance]

    def __ge__(self, other: Set[object]) -> bool:
        return set(self) >= set(other) if isinstance(other, Set) else NotImplemented  # pyright: ignore[reportUnnecessaryIsInstance]

    def __gt__(self, other: Set[object]) -> bool:
        return set(self) > set(other) if isinstance(other, Set) else NotImplemented  # pyright: ignore[reportUnnecessaryIsInstance]


class _Keys(_Names[str], KeysView[str]):
    """The names of `Headers`."""


class _Values(ValuesView[bytes | None]):
    """The values of `Headers`; the inherited view would look each name up and so yield the first of repeats again."""

    def __init__(self, headers: Headers) -> None:
        super().__init__(headers)
        self._headers = headers

    def __iter__(self) -> Iterator[bytes | None]:
        return iter([value for _, value in self._headers._pairs])  # pyright: ignore[reportPrivateUsage]

    def __contains__(self, value: object) -> bool:
        return any(found == value for _, found in self._headers._pairs)  # pyright: ignore[reportPrivateUsage]


class _Items(_Names[Pair], ItemsView[str, bytes | None]):
    """The pairs of `Headers`; the inherited view would look each name up and so lose repeats."""

    def __init__(self, headers: Headers) -> None:
        super().__init__(headers)
        self._headers = headers

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._headers._pairs)  # pyright: ignore[reportPrivateUsage]

    def __contains__(self, item: object) -> bool:
        return item in self._headers._pairs  # pyright: ignore[reportPrivateUsage]


def pairs_of(headers: HeadersInput, name: str) -> list[Pair]:
    """Return a mapping or pairs with the values as bytes. Raises TypeError, or ValueError for text that has none."""
    source = cast("object", headers.items() if isinstance(headers, Mapping) else headers)
    if isinstance(headers, str | bytes | bytearray | memoryview) or not isinstance(source, Iterable):
        raise TypeError(f"{name}: expected a mapping or pairs, found {type(cast('object', headers)).__name__}")
    return [_pair(pair, name) for pair in cast("Iterable[object]", source)]


def _pair(pair: object, name: str) -> Pair:
    if not (isinstance(pair, tuple | list) and len(cast("Sequence[object]", pair)) == 2):
        raise TypeError(f"{name}: expected pairs of a name and a value, found {pair!r}")
    header, value = cast("tuple[str, HeaderValue]", pair)
    if not isinstance(header, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: expected a str as a header's name, found {type(header).__name__}")
    if not header.isascii():
        encoded(header, name)  # raises for what has no bytes
    return str(header), value if type(value) is bytes else to_bytes(value, f"{name}[{header!r}]")


def headers_of(pairs: Iterable[Pair]) -> Headers:
    """Return the headers of a message that was read: what is in a batch is what it should be, and is not looked at
    again for each message."""
    made = _new(Headers)
    made._pairs = tuple(pairs)  # pyright: ignore[reportPrivateUsage]
    return made


_new = object.__new__

NO_HEADERS = Headers()
"""Shared by all messages without headers."""
