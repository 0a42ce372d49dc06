"""The headers of one message: names with values, in the order they were sent, repeats kept."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence

from .shortening import shortened

MAX_SHOWN = 10
"""Headers that a repr shows."""

Pair = tuple[str, bytes | None]

HeaderValue = str | bytes | bytearray | memoryview | None
HeadersInput = Mapping[str, HeaderValue] | Iterable[tuple[str, HeaderValue]]
"""What `headers=` takes: a mapping, pairs, or the `Headers` of another message."""


class Headers(Mapping[str, bytes | None]):
    """Read-only headers. `h["a"]` is the first value of that name, `h.getall("a")` are all of them.

    Iterating yields names, `items()` yields pairs; both in order and with repeats, and `len` counts pairs.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: Iterable[Pair] = ()) -> None:
        self._pairs = tuple(pairs)

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
        if isinstance(other, Sequence):
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

    def items(self) -> _Items:
        """Return the pairs, in order, with repeats."""
        return _Items(self)

    def getall(self, name: str) -> list[bytes | None]:
        """Return every value of a name, in order; an empty list if it has none."""
        return [value for found, value in self._pairs if found == name]


class _Items(ItemsView[str, bytes | None]):
    """The pairs of `Headers`; the inherited view would look each name up and so lose repeats."""

    def __init__(self, headers: Headers) -> None:
        super().__init__(headers)
        self._headers = headers

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._headers._pairs)  # pyright: ignore[reportPrivateUsage]

    def __contains__(self, item: object) -> bool:
        return item in self._headers._pairs  # pyright: ignore[reportPrivateUsage]


NO_HEADERS = Headers()
"""Shared by all messages without headers."""
