"""Between the clock that clients see and the broker that it moves: calls from any thread into the broker's loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .broker.clock import VirtualClock
from .broker.embedded import EmbeddedBroker
from .broker.stepping import Stepper


class Engine:
    """One broker as its virtual clock moves it; once it is closed, there is nothing to do at any time."""

    def __init__(self, embedded: EmbeddedBroker, clock: VirtualClock) -> None:
        self._embedded = embedded
        self._clock = clock
        self._stepper = Stepper(embedded.broker.stepped(), clock)

    def now_us(self) -> int:
        """Return the monotonic time."""
        return self._clock.monotonic_us()

    def wall_us(self) -> int:
        """Return the wall time."""
        return self._clock.wall_us()

    def settle(self) -> None:
        """Return once the broker has nothing to do at this time."""
        try:
            self._embedded.call(self._stepper.settle)
        except ConnectionError:
            self._stepper.next_due_us = self._stepper.next_work_us = None

    def next_due_us(self) -> int | None:
        """Return when the next of all deadlines is due, as of the last time it settled."""
        return self._stepper.next_due_us

    def next_work_us(self) -> int | None:
        """Return the same, housekeeping left out."""
        return self._stepper.next_work_us

    def pass_until(self, us: int, is_noticed: Callable[[], bool]) -> None:
        """Let time pass and do what is due."""
        try:
            self._embedded.call(partial(self._stepper.pass_until, us, is_noticed))
        except ConnectionError:
            self._clock.advance(max(0, us - self._clock.monotonic_us()))
