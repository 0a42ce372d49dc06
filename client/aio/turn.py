"""One at a time, without waiting: whoever comes while another is at it finds out."""

from __future__ import annotations

import weakref

from . import runtime


class Turn:
    """One's time at it. It ends by an assignment, `is_over = True` in a `finally`, and not by a call: Ctrl-C may strike
    on entering a function, and nobody would ever have a turn again. A turn that nobody has any more is over as well."""

    __slots__ = ("__weakref__", "is_over", "task")

    def __init__(self, task: object = None) -> None:
        self.is_over = False
        self.task = task
        """Of whom, where somebody asks for that."""


class Turns:
    """Who is at it."""

    __slots__ = ("_last", "_lock")

    def __init__(self) -> None:
        self._lock = runtime.Lock()
        self._last: weakref.ref[Turn] | None = None

    @property
    def last(self) -> Turn | None:
        """Whose turn it was or is."""
        return None if self._last is None else self._last()

    def take(self, turn: Turn) -> bool:
        """Return whether it is this one's from here on."""
        with self._lock:
            last = self.last
            if last is not None and not last.is_over:
                return False
            self._last = weakref.ref(turn)
            return True
