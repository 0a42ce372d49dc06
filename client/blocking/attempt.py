# Generated from client/aio/attempt.py by client/generate.py: change that, then run it.
"""One attempt to connect, which may be ended from elsewhere while it waits for the peer."""

from __future__ import annotations

from collections.abc import Callable


class Attempt:
    """What is waited for, and whether it is wanted still. Takes no lock, so that a signal handler may end it."""

    def __init__(self, check: Callable[[], None]) -> None:
        """`check` raises what it ends with once it is wanted no more; then `wake` is called."""
        self.check = check
        self.wake: Callable[[], None] = _nothing

    def waits(self, wake: Callable[[], None]) -> None:
        """Begin to wait for something that `wake` ends. Raises what `check` does."""
        self.wake = wake
        self.check()  # afterwards: whoever ends it calls one of the two

    def goes_on(self) -> None:
        """It was waited for, and is not needed any more: it may have a descriptor. Raises what `check` does."""
        self.wake = _nothing
        self.check()


def _nothing() -> None:
    """Nothing is waited for."""
