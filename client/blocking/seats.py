# Generated from client/aio/seats.py by client/generate.py: change that, then run it.
"""Who reads from a connection, and who sits and waits meanwhile; the lock of the connection is held."""

from __future__ import annotations

from ..core.waiter import Waiter
from . import runtime


class Seats:
    """The reading role, and the seats of the others. Each step can be done twice, because Ctrl-C may strike in one."""

    __slots__ = ("_sitting", "reader")

    def __init__(self) -> None:
        self.reader: Waiter | None = None
        self._sitting: dict[Waiter, None] = {}

    def __bool__(self) -> bool:
        return self.reader is not None or bool(self._sitting)

    def take(self, waiter: Waiter) -> runtime.Bell | None:
        """Take the role if it is free, or sit: return the bell that rings when there is something to look at."""
        if self.reader is None or self.reader is waiter:
            self.reader = waiter
            return None
        bell = runtime.Bell()
        waiter.bell = bell
        self._sitting[waiter] = None
        if waiter.done or waiter.is_stirred:
            bell.set()
        return bell

    def leave(self, waiter: Waiter) -> bool:
        """Give up the role or the seat; return whether the role is free, and then whoever sits longest is woken."""
        self._sitting.pop(waiter, None)
        if self.reader is not waiter and self.reader is not None:
            return False
        self.reader = None
        next_reader = next(iter(self._sitting), None)
        if next_reader is not None and next_reader.bell is not None:
            next_reader.bell.set()
        return True

    def ring(self) -> None:
        """Wake everybody who sits."""
        for waiter in self._sitting:
            if waiter.bell is not None:
                waiter.bell.set()
