# Generated from client/aio/queue_background.py by client/generate.py: change that, then run it.
"""Look after what a queue holds while the user's code is silent: renew leases, tell what was handed out, settle.

A task of the event loop, or a small thread. While the user's code asks for messages it does all of this by itself; the
background only renews then, and mostly sleeps. It does not refer to the queue: one that was dropped without `close`
ends it, and its leases end by themselves.
"""

from __future__ import annotations

import logging
import math

from ...protocol.errors import ClosedError, ConnectionLostError, TidelogError
from ..core.deadline import NEVER
from ..core.renewal_plan import RenewalPlan
from ..core.waiter import Waiter
from . import runtime
from .asking import Asking
from .connection import stir
from .link import WaitEndedError
from .queue_desk import QueueDesk
from .tending import Tended, busy_seconds

BUSY_S = 0.01
"""So long after the user's code asked for messages it is taken to be at it still, and to send and read by itself: a
background that waited for the socket meanwhile would ask for the interpreter lock at every answer."""

IDLE_S = 1.0
"""So long after that, what was asked for ahead is withdrawn: a message that comes now is better given to others."""

MAX_ROUND_S = 1.0
"""One round of waiting for answers: what it missed, by a signal in the wrong instant, it notices then."""

log = logging.getLogger("tidelog")


class QueueBackground(Tended):
    """The background of one queue, made again when it was cancelled."""

    def __init__(self, desk: QueueDesk, asking: Asking, plan: RenewalPlan) -> None:
        super().__init__()
        self.desk = desk
        self.is_ended = False
        self._asking = asking
        self._plan = plan
        self._time = desk.time
        self._busy_s = busy_seconds(desk.time, BUSY_S)
        self._bell = desk.time.Bell()
        self._mark: Waiter | None = None
        """While it waits for answers."""
        self._wakes_at = 0.0
        """When it looks again by itself."""
        desk.on_work = self.wake
        desk.on_use = self.look_after

    def __repr__(self) -> str:
        return f"<QueueBackground of {self.desk!r}, {'running' if self.is_running else 'not running'}>"

    def start(self) -> None:
        """Run, if it does not."""
        if not self.is_ended:
            self.run("tidelog-queue")

    def is_over(self) -> bool:
        """Whether the queue is closed, or gone."""
        return self.is_ended

    def look_after(self) -> None:
        """The user's code said something: what else it says waits for the answer, and for somebody who takes it in."""
        self.start()
        self.watch()

    def watch(self) -> None:
        """The user's code has messages now: look after them when it is silent."""
        if self._wakes_at > self.desk.seen_at + self._busy_s:
            self.wake()

    def step_aside(self) -> None:
        """The user's code is about to wait for answers itself."""
        mark, connection = self._mark, self.desk.link.current
        if mark is not None and connection is not None:
            stir(connection, mark)

    def wake(self) -> None:
        """Have it look what there is to do."""
        self._wakes_at = 0.0
        self._bell.set()
        self.step_aside()

    def end(self) -> None:
        """The queue is closed, or gone."""
        self.is_ended = True
        self.wake()

    def tend(self) -> float:
        """Do what is due; a broker that cannot be reached, or a bug, does not end the looking after."""
        try:
            return self._tend()
        except ClosedError:
            raise
        except TidelogError as error:
            log.warning("looking after a queue: %s", error)
        except Exception:
            log.exception("looking after a queue failed")
        return self._time.now() + MAX_ROUND_S

    def _tend(self) -> float:
        desk, now = self.desk, self._time.now()
        self._renew(now)
        self._clear_up()
        next_due = min(self._plan.next_due(desk.book), desk.next_end())
        busy_until = desk.seen_at + self._busy_s
        if now < busy_until:
            return min(busy_until, next_due)
        if desk.book.reports:
            desk.tell()
        if self._asking.is_pulling:  # whoever pulls reads, and connects
            desk.report()
            again_at = desk.retry_at if desk.retry_at > now else math.inf
            return min(next_due, again_at, now + self._time.at_most(MAX_ROUND_S))
        if not self._has_work():
            return next_due
        try:
            connection = desk.connect(NEVER)
        except WaitEndedError:
            return self._time.now()
        desk.report()
        idle_at = desk.seen_at + IDLE_S
        if now >= idle_at:
            self._asking.withdraw()
            idle_at = math.inf
        if not (desk.book.settles.flights or self._asking.on_its_way() is not None):
            return min(next_due, desk.retry_at)
        mark = self._mark = Waiter()
        if self._asking.is_pulling or self.is_ended:
            mark.stir()
        try:
            until = min(next_due, desk.retry_at, idle_at, self._time.now() + self._time.at_most(MAX_ROUND_S))
            connection.wait(mark, until)
        except ConnectionLostError:
            pass
        finally:
            self._mark = None
        return self._time.now()

    def lie_down(self, until: float) -> runtime.Bell:
        """Return what wakes it before `until`."""
        bell = self._bell = self._time.Bell()
        self._wakes_at = until
        if self.is_ended or self._plan.next_due(self.desk.book) < until or self._is_needed_before(until):
            bell.set()
        return bell

    def _is_needed_before(self, until: float) -> bool:
        """Whether something was said after it was looked, by a thread that found this still awake."""
        is_long = until > self._time.now() + MAX_ROUND_S
        return is_long and bool(self.desk.book.settles.flights) and not self._asking.is_pulling

    def _has_work(self) -> bool:
        book = self.desk.book
        return bool(book.leases or book.dirty or book.settles.flights or book.settles.has_pending) or (
            self._asking.on_its_way() is not None
        )

    def _clear_up(self) -> None:
        """What has ended is handed out no more, and not kept."""
        self.desk.pass_over()
        with self.desk.lock:
            self.desk.forget_over()

    def _renew(self, now: float) -> None:
        desk = self.desk
        with desk.lock:
            due = self._plan.due(desk.book, now)
            desk.book.renew(due)
        if due:
            desk.report()
