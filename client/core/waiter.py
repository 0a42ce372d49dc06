"""What a caller waits for, and what wakes it: the meeting point of decisions and drivers."""

from __future__ import annotations

from typing import Protocol


class Bell(Protocol):
    """Wakes one waiting caller; each driver has its own (an event of the loop, a lock between threads)."""

    def set(self) -> None:
        """Ring; from any thread, any number of times."""
        ...


class Waiter:
    """Something that becomes done once. `bell` is there while a caller sits and waits for it."""

    __slots__ = ("bell", "done", "is_stirred")

    def __init__(self) -> None:
        self.done = False
        self.is_stirred = False
        """Not done, but there is something its caller should look at before it waits on."""
        self.bell: Bell | None = None

    def finish(self) -> None:
        """Say that it is done. Takes no lock, so that a signal handler may call it too."""
        self.done = True
        self.ring()

    def stir(self) -> None:
        """Have the caller look again."""
        self.is_stirred = True
        self.ring()

    def ring(self) -> None:
        """Wake the caller, if it sits: `finish` and `stir` do."""
        if self.bell is not None:
            self.bell.set()
