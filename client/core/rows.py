"""Messages that a producer has taken and not yet made batches of: one list for each topic, appended to without a lock.

    items   0  v k t  v k t  v k t | v k t          width 3: value, key, tag
            |  '----- drawn -----'   came meanwhile
            '- number: raised in the one step that takes what was drawn off the list

Appending is one step of the interpreter (`list.append`, or `+=` with a tuple), so no other thread and no Ctrl-C ever
sees half a message. Taking off is one step too (a slice is assigned), and changes the number in front: whoever is
interrupted between making batches and taking off finds out by it which of the two was done. Measured: an append with
a lock around it costs 300 ns more on a busy machine than one without, and `tuple`s of their own 100.
"""

from __future__ import annotations

from typing import TypeVar, cast

from .contents import Extras, Messages
from .cutting import RECORD_OVERHEAD_BYTES

Entry = TypeVar("Entry")

VALUE, KEYED, FULL = 1, 3, 4
"""How many items a message is: its value; with key and tag; and with what few messages have."""


class Drawn:
    """What was on the list at some moment, until it is taken off."""

    __slots__ = ("messages", "number", "stop")

    def __init__(self, number: object, stop: int, messages: Messages) -> None:
        self.number = number
        self.stop = stop
        self.messages = messages


class Rows:
    """The list of one topic, for messages of one width. `left` is how many bytes may be appended without asking; it
    only guides, since several threads count it down."""

    __slots__ = ("_drawn", "items", "left", "limit", "width")

    def __init__(self, width: int, limit: int) -> None:
        self.width = width
        self.limit = limit
        """No message of the topic may be larger."""
        self.left = 0
        self.items: list[object] = [0]
        self._drawn: Drawn | None = None

    def __len__(self) -> int:
        return (len(self.items) - 1) // self.width

    def size(self) -> int:
        """Return about how many bytes the messages on it are in a batch; it takes a step for each."""
        items = self.items[:]
        places = range(1, len(items), self.width)
        size = len(places) * RECORD_OVERHEAD_BYTES + sum(len(cast("bytes", items[at] or b"")) for at in places)
        return size if self.width == VALUE else size + sum(len(cast("bytes", items[at + 1] or b"")) for at in places)

    def append(self, value: bytes | None, key: bytes | None, tag: object, extras: Extras | None) -> None:
        """Add a message that the width has room for."""
        if self.width == VALUE:
            self.items.append(value)
        elif self.width == KEYED:
            self.items += (value, key, tag)
        else:
            self.items += (value, key, tag, extras)

    @property
    def is_drawn(self) -> bool:
        """Whether something was drawn that is not taken off: somebody was interrupted."""
        return self._drawn is not None and self._drawn.number == self.items[0]

    def draw(self) -> Drawn | None:
        """Return what there is, without taking it off: the same again until `drop`. None if there is nothing."""
        drawn = self._drawn
        if drawn is None or drawn.number != self.items[0]:
            stop = len(self.items)
            if stop == 1:
                return None
            drawn = self._drawn = Drawn(self.items[0], stop, self._columns(stop))
        return drawn

    def drop(self, drawn: Drawn) -> None:
        """Take off what was drawn."""
        self.items[: drawn.stop] = [cast("int", drawn.number) + 1]
        self._drawn = None

    def take_back(self, message: tuple[object, ...]) -> bool:
        """Take a message of these very objects off again; return False if none is there that is not drawn."""
        drawn = self._drawn
        first = drawn.stop if drawn is not None and drawn.number == self.items[0] else 1
        for at in reversed(range(first, len(self.items), self.width)):
            if all(item is each for item, each in zip(self.items[at : at + self.width], message, strict=False)):
                del self.items[at : at + self.width]
                return True
        return False

    def _columns(self, stop: int) -> Messages:
        width, items = self.width, self.items
        values = cast("list[bytes | None]", items[1:stop:width])
        if width == VALUE:
            return Messages(values)
        keys, tags = cast("list[bytes | None]", items[2:stop:width]), items[3:stop:width]
        extras = cast("list[Extras | None]", items[4:stop:width]) if width == FULL else None
        return Messages(
            values, _unless_empty(keys), _unless_empty(tags), None if extras is None else _unless_empty(extras)
        )


def _unless_empty(column: list[Entry]) -> list[Entry] | None:
    return column if column.count(cast("Entry", None)) < len(column) else None
