"""One timer for the next thing that is due of many: set earlier as needed, and asked again when it goes off."""

from __future__ import annotations

from collections.abc import Callable

from ..timers import Timer, Timers


class Alarm:
    """Calls `due` at the earliest of the times it was given since it went off last."""

    __slots__ = ("_due", "_timer", "_timers")

    def __init__(self, timers: Timers, due: Callable[[], None]) -> None:
        self._timers = timers
        self._due = due
        self._timer: Timer | None = None

    def __repr__(self) -> str:
        return f"<Alarm {self._timer!r}>"

    def at(self, due_us: int | None) -> None:
        """Go off at a time of the monotonic clock, unless sooner anyway."""
        if due_us is None:
            return
        if self._timer is not None:
            if self._timer.due_us <= due_us:
                return
            self._timers.cancel(self._timer)
        self._timer = self._timers.add(due_us, self._off)

    def cancel(self) -> None:
        """Do not go off."""
        if self._timer is not None:
            self._timers.cancel(self._timer)
            self._timer = None

    def _off(self) -> None:
        self._timer = None
        self._due()
