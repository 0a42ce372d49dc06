"""A real broker inside a test, on a clock that the test moves.

    from tidelog.testing import Broker

    with Broker() as broker, broker.client() as client:
        client.produce("orders", b"...")
        broker.clock.advance(days=1)

Importing this loads no broker; making one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from . import embedded
from .client.core.arguments import whole_number
from .client.core.times import duration_us, from_us, to_seconds, to_us
from .client.message import Message
from .faults import NAMES, Faults

if TYPE_CHECKING:
    from .broker import clock as broker_clock
    from .broker.config import Config
    from .broker.embedded import EmbeddedBroker
    from .broker.faults import FaultyHandler
    from .broker.rehearsal import Rehearsal
    from .client.dead_letter import DeadLetter
    from .client.virtual_clock import VirtualClock

__all__ = ["Broker", "Clock", "Faults"]

IDLE = {"idle_timeout": "36500d", "hello_timeout": "36500d"}
"""A client that is there is not taken for gone because the test let a day pass."""


class Broker(embedded.Broker):
    """A broker for one test: a virtual clock, in memory unless it gets a `data_dir`, over when the block is.

    `start` is the time at which it begins, the machine's unless given. `listen=True` opens a port for subprocesses,
    which go by the machine's clock. `faults` and `seed` try the program under test: see Faults. `config` and sections
    are those of `tidelog.Broker`; the environment does not count.

    Time stands still while any thread of the test works, and passes when all that anybody can do is wait: then it jumps
    to the next moment at which something happens, the end of a timeout or what the broker or a client does at a time.
    So a call takes the time it says, at once. Where nothing will ever happen, it raises WouldBlockForever.
    """

    _reads_environment = False

    def __init__(
        self,
        data_dir: str | None = None,
        *,
        listen: str | bool | None = None,
        start: datetime | None = None,
        faults: Faults | None = None,
        seed: int = 0,
        config: embedded.Sections | None = None,
        **sections: Mapping[str, object],
    ) -> None:
        self._start_us = None if start is None else to_us(start, "start")
        if whole_number(seed) is None:
            raise TypeError(f"seed: expected a whole number, found {seed!r}")
        self._faults, self._seed = faults, seed
        self._clock: Clock | None = None
        self._handler: FaultyHandler | None = None
        if faults is not None and not isinstance(faults, Faults):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"faults: expected Faults, found {faults!r}")
        super().__init__(data_dir, listen=listen, config=config, **sections)

    @property
    def clock(self) -> Clock:
        """What time it is, and what lets it pass."""
        self._running()
        assert self._clock is not None
        return self._clock

    def messages(self, topic: str) -> list[Message]:
        """Return all that is stored in a topic, in the order it was appended. Raises UnknownTopicError: with a name
        that is mistyped every test would find nothing."""
        with self.client() as client:
            return list(client.replay(topic, ordered="time").messages())

    def pending(self, topic: str) -> list[Message]:
        """Return what waits for its time in a topic: nothing, as this version has no delayed messages. Raises
        UnknownTopicError."""
        with self.client() as client:
            client.topics.describe(topic)
        return []

    def dead_letters(self, topic: str) -> list[DeadLetter]:
        """Return the pending dead letters of a topic, by partition and offset. Raises UnknownTopicError."""
        with self.client() as client:
            return list(client.dead_letters.list(topic))

    @property
    def fired(self) -> dict[str, int]:
        """How often each fault happened so far, by its name: a test of a handler should look whether any did."""
        self._running()
        return dict(self._handler.fired) if self._handler is not None else dict.fromkeys(NAMES, 0)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _checked(self, config: embedded.Sections | None, sections: embedded.Sections) -> Config:
        own: object = config.get("broker", {}) if isinstance(config, Mapping) else None
        if config is None:
            return super()._checked({"broker": IDLE}, sections)
        if isinstance(own, Mapping):  # else it is refused there
            return super()._checked({**config, "broker": {**IDLE, **config.get("broker", {})}}, sections)
        return super()._checked(config, sections)

    def _rehearsal(self) -> Rehearsal:
        from random import Random

        from .broker.faults import Chances, FaultyHandler
        from .broker.handlers import handle
        from .broker.rehearsal import Rehearsal

        chance, faults = Random(self._seed).random, self._faults
        if faults is None:
            return Rehearsal(handle, chance)
        chances = Chances(faults.duplicate, faults.lose_lease, faults.cut_after_send)
        self._handler = FaultyHandler(chances, self._seed)
        return Rehearsal(self._handler, chance)

    def _make_clock(self) -> broker_clock.Clock:
        import time

        from .broker.clock import VirtualClock

        return VirtualClock(time.time_ns() // 1000 if self._start_us is None else self._start_us)

    def _clock_of(self, embedded: EmbeddedBroker) -> VirtualClock:
        from .broker.clock import VirtualClock as BrokerClock
        from .client.virtual_clock import VirtualClock
        from .stepping import Engine

        clock = embedded.clock
        assert isinstance(clock, BrokerClock)
        virtual = VirtualClock(Engine(embedded, clock))
        self._clock = Clock(virtual)
        return virtual


class Clock:
    """The clock of a broker and of its clients."""

    def __init__(self, virtual: VirtualClock) -> None:
        self._virtual = virtual

    def __repr__(self) -> str:
        return f"<Clock {self.now().isoformat()}>"

    def now(self) -> datetime:
        """Return the time, in UTC."""
        return from_us(self._virtual.wall_us())

    def advance(
        self,
        duration: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Let time pass, and return when all that is due by then is done and visible.

        What the broker and the clients' own threads do at times in between is done at these times, in order. The
        test's own threads that are woken meanwhile get a moment, but are not waited for.
        """
        self._virtual.advance(
            _total_us(duration, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        )

    async def async_advance(
        self,
        duration: timedelta | None = None,
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Do the same in an event loop, whose tasks run meanwhile."""
        from anyio.to_thread import run_sync

        total_us = _total_us(
            duration, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        await run_sync(self._virtual.advance, total_us)


def _total_us(duration: timedelta | None, **parts: float) -> int:
    """Return how long all is together. Raises TypeError, or ValueError for less than nothing or more than fits."""
    if duration is not None and not isinstance(duration, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"duration: expected a timedelta, or days=, hours=, seconds= and so on, found {duration!r}")
    for name, number in parts.items():
        if to_seconds(number) is None:
            raise TypeError(f"{name}: expected a number, found {number!r}")
    numbers = {name: float(number) for name, number in parts.items()}
    try:
        total = (duration or timedelta()) + timedelta(**numbers)
    except (OverflowError, ValueError):
        raise ValueError(f"expected a duration that a timedelta can hold, found {duration!r} and {numbers}") from None
    if total < timedelta():
        raise ValueError(f"expected a duration of 0 or more, found {total}: time does not go back")
    return duration_us(total)
