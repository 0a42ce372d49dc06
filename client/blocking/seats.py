# Generated from client/aio/seats.py by client/generate.py: change that, then run it.
"""Who reads from a connection, and who sits and waits meanwhile. The lock of the connection is held, mostly."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.waiter import Waiter
from . import runtime


class Seats:
    """The reading role, and the seats of the others. Each step can be done twice, because Ctrl-C may strike in one.

    Whoever leaves the role gives it to somebody, rather than to whoever comes first: a newcomer that took it would have
    had a sitting caller woken in vain.
    """

    __slots__ = ("_due", "_sitting", "_time", "reader")

    def __init__(self, time: runtime.Time) -> None:
        self._time = time
        self.reader: Waiter | None = None
        self._sitting: dict[Waiter, None] = {}
        self._due: list[Waiter] = []

    def __bool__(self) -> bool:
        return self.reader is not None or bool(self._sitting)

    def take(self, waiter: Waiter) -> runtime.Bell | None:
        """Take the role if it is free, or sit: return the bell that rings when there is something to look at."""
        if self.reader is None or self.reader is waiter:
            self.reader = waiter
            return None
        bell = self._time.Bell()
        waiter.bell = bell
        self._sitting[waiter] = None
        if waiter.done or waiter.is_stirred:
            bell.set()
        return bell

    def stand_up(self, waiter: Waiter) -> bool:
        """Give up a seat, without the lock: False if `leave` has to see to the role.

        All callers of a batch do so at once, and would wait for each other with the lock.
        This looks at the role after it left the seat, and `leave` at the seat after it gave the role to who has it: so
        one of the two notices when the role goes to somebody who gets up.
        """
        self._sitting.pop(waiter, None)
        reader = self.reader
        return reader is not None and reader is not waiter

    def leave(self, waiter: Waiter) -> bool:
        """Give up the role or the seat: whoever sits longest and has no answer reads from here on, and is woken.
        Return whether there is nobody, and the role is free."""
        self._sitting.pop(waiter, None)
        if self.reader is not waiter and self.reader is not None:
            return False
        self.reader = None
        for sitting in [*self._sitting]:
            if sitting.done or sitting.bell is None:
                continue
            sitting.bell.set()
            self.reader = sitting
            if sitting in self._sitting:
                return False
            self.reader = None
        return True

    def ring_later(self, waiters: Iterable[Waiter]) -> None:
        """Note those that a reply made done. Rung for at once, threads would wake up only to wait for the lock, which
        the reader has until it has given out all replies and sent what these let go."""
        self._due.extend(waiters)

    def ring_due(self) -> None:
        """Wake those that were noted; only the reader does, when it gave the lock back."""
        for waiter in self._due:
            waiter.ring()
        self._due.clear()

    def ring(self) -> None:
        """Wake everybody who sits."""
        for waiter in [*self._sitting]:
            waiter.ring()
