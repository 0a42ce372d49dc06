"""Look after a producer while nobody calls it: send what has lingered, take answers in, repeat, report.

A task of the event loop, or a thread. It does not keep the producer: one that was dropped without `close` leaves
the background to itself, which is gone when everything is delivered.
"""

from __future__ import annotations

import logging
import math
from functools import partial

from ..core.intake import Intake
from ..core.ledger import Mark
from ..core.rows import Rows
from . import runtime
from .connection import stir
from .dispatcher import Dispatcher
from .tending import Tended, busy_seconds
from .turn import Turn

BUSY_S = 0.005
"""So long after a batch was full the sender is taken to be at it still, and to take answers in itself. A background
that waited for the socket meanwhile would ask for the interpreter lock at every answer; asleep, it asks 200 times a
second. Nor does it take the session's lock then: profiled, a sender spent a tenth of its time waiting for that."""

MAX_EAGER_IN_FLIGHT = 2
"""With no linger a message goes at once while no more batches than this are unanswered, and else shares the next."""

MAX_ROUND_S = 1.0
"""One round of waiting for answers: what it missed, by a signal in the wrong instant, it notices then."""

log = logging.getLogger("tidelog")


class Background(Tended):
    """The background of one dispatcher, made again when it was cancelled. `ready` is emptied by its end, so that the
    next message looks what is the matter."""

    def __init__(self, dispatcher: Dispatcher, ready: dict[str, Rows]) -> None:
        super().__init__()
        self.dispatcher = dispatcher
        self._ready = ready
        self._bell = dispatcher.session.time.Bell()
        self._busy_s = busy_seconds(dispatcher.session.time, BUSY_S)
        self._mark: Mark | None = None
        """While it waits for answers."""
        self._wakes_at = 0.0
        """When it looks again by itself."""

    def __repr__(self) -> str:
        return f"<Background of {self.dispatcher!r}, {'running' if self.is_running else 'not running'}>"

    def __del__(self) -> None:
        # Nobody refers to the producer, and nothing is left to be delivered: nobody can be waiting.
        bell, dispatcher = getattr(self, "_bell", None), getattr(self, "dispatcher", None)
        if bell is not None and dispatcher is not None:
            dispatcher.end()
            bell.set()

    def start(self) -> None:
        """Run, if it does not."""
        self.run("tidelog-producer")

    def is_over(self) -> bool:
        """Whether the producer is closed."""
        return self.dispatcher.is_ended

    def hurry(self, intake: Intake) -> None:
        """See to it that a message that was just taken goes out in time."""
        dispatcher = self.dispatcher
        if not dispatcher.buffer.options.linger:
            intake.rows.left = 0
            if dispatcher.session.outbox.in_flight < MAX_EAGER_IN_FLIGHT:
                dispatcher.ship(intake)
        due = dispatcher.buffer.next_due()  # of all: one of them was perhaps cut while another thread appended to it
        self.due_at(min(due, dispatcher.shipped_at + self._busy_s) if dispatcher.ledger.open else due)

    def due_at(self, when: float) -> None:
        """Something is to be done at that time: wake it if it would sleep longer."""
        if self._wakes_at > when:
            self.wake()

    def wake(self) -> None:
        """Have it look what there is to do."""
        self._wakes_at = 0.0
        self._bell.set()
        mark, connection = self._mark, self.dispatcher.session.link.current
        if mark is not None and connection is not None:
            stir(connection, mark)

    def finish_alone(self) -> None:
        """The producer was dropped: deliver what it took."""
        if not self.dispatcher.is_needed:
            return
        _alone.add(self)
        try:
            self.start()
        except RuntimeError:  # its event loop has ended, or the interpreter does
            log.warning("%r was dropped where nothing can run any more; what it took is lost", self.dispatcher)
            _alone.discard(self)
        else:
            self.wake()

    def _rest(self) -> None:
        """Be gone once everything that a dropped producer took is delivered."""
        if not self.dispatcher.is_needed:
            _alone.discard(self)

    async def tend(self) -> float:
        """Do what is due; return when to look again."""
        dispatcher, now = self.dispatcher, self.dispatcher.moment()
        buffer, ledger = dispatcher.buffer, dispatcher.ledger
        if buffer.next_due() <= now.at:
            dispatcher.locked(partial(buffer.cut_due, now))
            dispatcher.pump_and_take_in()
            await dispatcher.reporter.report()
        if buffer.dated:  # by itself, since a busy sender never looks, and a round may be shorter than an answer takes
            await dispatcher.catch_up(now.at + MAX_ROUND_S)
        busy_until = dispatcher.shipped_at + self._busy_s
        if now.at < busy_until:
            return min(buffer.next_due(), busy_until)
        if not ledger.open:
            return buffer.next_due()
        mark = self._mark = Mark()
        until = self._wakes_at = min(buffer.next_due(), now.at + MAX_ROUND_S)
        ledger.wait_for_work(mark)
        try:
            await dispatcher.advance(mark, until)
        finally:
            self._mark, self._wakes_at = None, 0.0
            ledger.leave(mark)
        return dispatcher.session.time.now()

    def lie_down(self, until: float) -> runtime.Bell:
        """Return what wakes it before `until`; it rings already if there is something to do before."""
        bell = self._bell = self.dispatcher.session.time.Bell()
        self._wakes_at = until
        dispatcher = self.dispatcher
        is_waited_for = until == math.inf and dispatcher.ledger.open
        if dispatcher.is_ended or dispatcher.buffer.next_due() < until or is_waited_for:
            bell.set()
        self._rest()
        return bell

    def left(self, turn: Turn) -> bool:
        """A run of it ended: the next message looks what is the matter, and makes another."""
        is_mine = super().left(turn)
        if is_mine:
            self._ready.clear()
            _alone.discard(self)
        return is_mine


_alone: set[Background] = set()
"""Those that nobody else refers to, until everything is delivered. A reference to itself would not keep one: the
garbage collector finds that nothing else leads there."""
