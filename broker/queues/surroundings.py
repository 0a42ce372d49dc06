"""What all groups of one broker share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..dead_letters.letter_topics import LetterTopics
from ..deferred import Deferred
from ..delivery.moment import Moment
from ..groups import Group
from ..meta import Begin
from ..moving.pins import Pins
from ..services import Services
from ..timers import Timers
from .partition_delivery import PartitionDelivery


@dataclass(slots=True)
class Surroundings:
    """One of each for a whole broker."""

    services: Services
    waits: Timers
    """Deadlines of what nobody waits for to happen: the end of a long poll, a member that is forgotten."""
    chance: Callable[[], float]
    """Draws from 0 up to 1: what jitter is made of."""
    next_lease: Callable[[], int]
    """Gives out lease ids, each once."""
    open_delivery: Callable[[PartitionDelivery], None]
    """Has a delivery log opened, or made, unless that is under way."""
    started: Callable[[Group, int, int, Begin], Deferred[None]]
    """Records where a start at a time turned out to be in a partition."""
    letters: LetterTopics
    """Where what is given up goes."""
    pins: Pins
    """What retention leaves alone of copies."""
    max_frame_bytes: int
    max_wait_us: int
    """How long a request may wait for messages."""

    def now(self) -> Moment:
        """Return now, on both clocks."""
        time = self.services.time
        return Moment(time.now_us(), time.monotonic_us())
