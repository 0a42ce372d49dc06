"""What a figure is measured under."""

from __future__ import annotations

from dataclasses import dataclass

SMALLEST_VALUE_BYTES = 40
"""A value names its run and its place, and carries the time it was sent at."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """One round of one family of figures."""

    messages: int
    """Messages of a figure that is a rate."""
    size: int
    """Bytes of one value."""
    durability: str
    """A word of the system that is measured."""
    calls: int
    """Calls that are timed one by one."""
    seconds: float
    """How long a paced run takes."""
    warm_up: int
    """Messages sent, and not timed, before a rate is measured."""
    backlog: int
    """Messages that wait while latencies are measured."""
    gib: float
    """GiB of a log that is large."""
    round: int
    """Which round it is; it makes the values of each one differ."""

    @property
    def warm_up_calls(self) -> int:
        """Calls made, and not timed, before those that are."""
        return (self.calls + 1) // 2
