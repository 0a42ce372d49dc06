# Generated from client/aio/acquirer.py by client/generate.py: change that, then run it.
"""Ask for leases, and keep what came until its turn: the reading side of a queue.

One Acquire is on its way at a time; it waits in the broker while there is nothing to give. The next one is sent before
a batch is handed out, so the broker and the socket's buffer work ahead while the user's code runs. A caller that stops
waiting withdraws it, and what was leased in that instant is given back at once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from contextlib import suppress

from ...protocol.errors import (
    CannotConnectError,
    ClosedError,
    ConnectionLostError,
    CorruptError,
    InvalidBatchError,
    TidelogError,
    TimedOutError,
    UnknownGroupError,
)
from ..core.deadline import Deadline
from ..core.finishing import Finishing
from ..core.granted import TOGETHER, Leased
from ..core.held_lease import HeldLease
from ..core.leaving import RETURNED
from ..core.prefetch import Prefetch
from ..core.queue_plan import QueuePlan
from ..core.waiter import Waiter
from . import runtime
from .asking import Asking
from .connection import Call
from .damaged_grant import DamagedGrants, is_passed_over
from .joining import Joining, leave
from .queue_desk import QueueDesk
from .topic_change import TopicChange

DEFAULT_VISIBILITY_US = 30_000_000
"""Where a broker does not say what the group's is."""

FIRST_LIST_S = 0.25
"""How long the first list may wait for more, while the broker opens what nobody has read before."""

log = logging.getLogger("tidelog")


class Acquirer:
    """What a queue acquires. One thread at a time pulls."""

    def __init__(self, plan: QueuePlan, desk: QueueDesk, timeout: float | None) -> None:
        self.is_stopped = False
        self.listed = 1  # messages that whoever pulls would take at once
        self.is_looking = False  # whether it only asks what there is
        self.finishing: Finishing | None = None  # of handlers beside whoever pulls: taking does not tell of them
        self._plan = plan
        self._desk = desk
        self._time = desk.time
        self._prefetch = Prefetch(plan.max_in_flight, DEFAULT_VISIBILITY_US / 1_000_000)
        self._joining = Joining(plan, desk, timeout)
        self.asking = Asking(desk, self._joining, is_pattern=plan.subscription.is_pattern)
        self._timeout = timeout
        self._change = TopicChange()
        self._idle: Waiter | None = None
        self._bell: runtime.Bell | None = None
        self.is_giving = False
        """Whether a list is between what waits here and the user's hand."""
        self._damaged: tuple[HeldLease, TidelogError] | None = None
        """A lease of which bytes arrived damaged, and what was found."""
        self._damaged_grants = DamagedGrants()
        desk.on_progress = self.notify

    def __repr__(self) -> str:
        return f"{self._plan.subscription} for group {self._plan.group}, {self.asking!r}"

    # -- pulling ---------------------------------------------------------------------------------------------------

    def next_batches(self, until: float, together: int) -> list[Leased]:
        """Return the next batch and, up to `together` messages, those behind it of its lease; none at `until`, after
        `stop`, or if whoever looks is told that there are none. Raises what stops the group's reading."""
        self.asking.is_pulling, answers = True, self.asking.answers
        found: list[Leased] = []
        try:
            has_lanes = len(self.asking.granted.priorities) > 1
            self._prefetch.measure(self._time.now(), self.finishing, has_lanes=has_lanes)
            is_open = self._open(until)
            while is_open and not self.is_stopped:
                self._desk.tell()
                if self._damaged is not None:
                    self._verify(*self._damaged, until)
                if self._joining.is_outdated:
                    self._refresh(until)
                found = self.batches_at_hand(together)
                if found or (self.is_looking and self.asking.answers > answers and self._damaged is None):
                    return found
                if self._damaged is None and not self._advance(until):
                    return []
            return []
        except (ClosedError, CannotConnectError):
            if self.is_stopped:
                return []
            raise
        finally:
            self.asking.is_pulling = False
            if not found:
                self.asking.withdraw()

    def batches_at_hand(self, together: int) -> list[Leased]:
        """Return what is here, if any, after asking for more: waits for nothing."""
        desk = self._desk
        if self.is_giving or self.asking.is_taking:
            self._set_right()
        while not self.is_stopped and self._damaged is None and (lease := self.asking.granted.next_lease()) is not None:
            if lease.has_none_to_hand_out or lease.is_over(self._time.now(), self._time.wall_us()):
                with desk.lock:
                    self.asking.granted.skip()
                    desk.book.expire(lease)
                continue
            try:
                self.is_giving = True
                found = self.asking.granted.pop(together)
            except (CorruptError, InvalidBatchError) as error:
                self._damaged = (self.asking.granted.failed or lease, error)
                self.is_giving = False
                return []
            if found:
                self._ask_ahead()
                return found
            self.is_giving = False
            break
        return []

    def batches_arrived(self, together: int) -> list[Leased]:
        """Do the same, having looked what has come meanwhile."""
        found = self.batches_at_hand(together)
        if not found and (asked := self.asking.on_its_way()) is not None:
            asked.connection.take_in()
            found = self.batches_at_hand(together)
        return found

    def put_back(self, batches: Iterable[Leased]) -> None:
        """Have batches that were taken wait for their turn again."""
        self.asking.granted.put_back(batches)

    def batches_at_once(self, listed: int) -> list[Leased]:
        """Return more for the first list, of what there is."""
        return _at_once(self, self._prefetch, self._desk, listed)

    def _set_right(self) -> None:
        """Ctrl-C struck while messages came in or went out: those that nobody has come again."""
        with self._desk.lock:
            if self.is_giving or self.asking.is_taking:
                self.asking.granted.clear()
                self._desk.give_back_buffered()
                self.is_giving = self.asking.is_taking = False

    def _verify(self, lease: HeldLease, error: TidelogError, until: float) -> None:
        """Have the broker verify what arrived damaged, then give the lease back: what is left of it comes again."""
        desk = self._desk
        try:
            self._damaged_grants.verify(desk.link, lease, error, Deadline(until, self._timeout))
        finally:
            self._damaged = None
            with desk.lock:
                desk.book.settle(lease, lease.open_offsets(lease.handed), RETURNED)
            desk.pump()

    def handed_out(self, count: int) -> None:
        """So many messages go to the user's code now, perhaps after others of the same list."""
        self._desk.seen_at = now = self._time.now()
        self._prefetch.gave(count, now)

    # -- joining ---------------------------------------------------------------------------------------------------

    def _open(self, until: float) -> bool:
        """Join, if need be; return whether to go on: without a group not at `until` or after `stop`."""
        if self._joining.group is None and not self.is_stopped and self._joining.open(self, until):
            self._joined()
        return self._joining.group is not None or self._may_go_on(until)  # a pattern may match nothing yet

    def _begin_anew(self, why: TidelogError, until: float) -> None:
        """The group was reset: every lease is void."""
        with self._desk.lock:
            self.asking.granted.clear()
            self._desk.book.end_all()
        with suppress(TimedOutError):
            self._joining.again(why, until)
        self._joined()

    def _joined(self) -> None:
        group = self._joining.group
        if group is not None:
            visibility_us = group.settings.visibility_timeout_us or DEFAULT_VISIBILITY_US
            self._prefetch = Prefetch(self._plan.max_in_flight, visibility_us / 1_000_000)

    def change(self, version: int, until: float) -> bool:
        """Wait until topics changed; return False at `until` or after `stop`."""
        self._change.wait(self._desk.link, version, until)
        return self._may_go_on(until)

    def _refresh(self, until: float) -> None:
        """Topics changed: what is asked for on its way may not name all that there are now."""
        before = self._joining.topics
        self._joining.refresh(until)
        if self._joining.topics != before:
            self.asking.withdraw()

    # -- asking ----------------------------------------------------------------------------------------------------

    def _advance(self, until: float) -> bool:
        """Wait for the next answer, asking if need be; return False at `until` or after `stop`."""
        if not self._joining.topics:
            self._change.wait(self._desk.link, self._joining.version, until)
            self._joining.refresh(until)
            self._joined()
            return self._may_go_on(until)
        if self.asking.problem is not None:  # answered while nobody asked for messages
            return self._after_answer(until)
        desk = self._desk
        try:
            connection = desk.connect(Deadline(until, None if until == math.inf else self._timeout))
        except (CannotConnectError, TimedOutError):
            if desk.link.has_connected and self._time.now() >= until:
                return False
            raise
        desk.pump()
        waiter = self._idle = Waiter()  # before it is looked for room, so that no answer that makes some is missed
        asked = self.asking.on_its_way() or self.asking.ask(
            connection, self._prefetch, is_waited_for=True, listed=self.listed, is_hasty=self.is_looking
        )
        wakes_at = desk.next_end()
        if asked is not None:
            waiter, wakes_at = asked.call, asked.give_up_at
            self._idle, waiter.is_stirred = waiter, False
        try:
            if asked is None and self.asking.problem is not None:  # read by another thread: nobody would wake us
                return self._after_answer(until)
            if self.is_stopped:  # looked at after it can be stirred, so that no stop is missed
                waiter.stir()
            connection.wait(waiter, min(until, wakes_at, desk.retry_at))
        except ConnectionLostError:
            return self._may_go_on(until)
        finally:
            self._idle = None
        if asked is not None and not waiter.done and self._time.now() >= asked.give_up_at:
            connection.fail(ConnectionLostError(f"lost {connection.address} (no answer)"))
        return self._after_answer(until)

    def _after_answer(self, until: float) -> bool:
        problem, self.asking.problem = self.asking.problem, None
        if problem is not None:
            if isinstance(problem, UnknownGroupError) and "generation" in problem.details:
                self._begin_anew(problem, until)
            elif not problem.retriable and not is_passed_over(problem, self._plan):
                raise problem
            else:
                self._sleep(min(until, self._time.now() + self.asking.backoff.pause(runtime.chance())))
        return self._may_go_on(until)

    def _ask_ahead(self) -> None:
        """Ask for more before a batch is handed out, if there is room."""
        connection = self._desk.link.current
        if connection is None or connection.error is not None:
            return
        if self.asking.on_its_way() is not None or self._desk.book.settles.flights:
            connection.take_in()
        self._desk.pump()
        if self.asking.on_its_way() is None:
            self.asking.ask(connection, self._prefetch, is_waited_for=False)

    # -- ending ----------------------------------------------------------------------------------------------------

    def notify(self) -> None:
        """Let a pull that waits look again. Takes no lock, so that a signal handler may call it."""
        idle, bell, link = self._idle, self._bell, self._desk.link
        current = link.current
        if idle is not None and (self.is_stopped or not isinstance(idle, Call)):
            idle.stir()
            if current is not None:
                current.wake()
        if bell is not None:
            bell.set()
        if self.is_stopped:
            self._change.notify(is_stopped=True)

    def leave(self, deadline: Deadline) -> None:
        """Say that nothing more is taken, and nothing is held."""
        leave(self._desk.link, self._joining.group, self._desk.book.settles.member, deadline)

    def _may_go_on(self, until: float) -> bool:
        return not self.is_stopped and self._time.now() < until

    def _sleep(self, until: float) -> None:
        self._bell = self._time.Bell()
        if not self.is_stopped:
            self._bell.wait(until)
        self._bell = None


def _at_once(acquirer: Acquirer, prefetch: Prefetch, desk: QueueDesk, listed: int) -> list[Leased]:
    """Return more for the first list: partitions that nobody has read are opened one by one."""
    asking, connection = acquirer.asking, desk.link.current
    if prefetch.is_measured or acquirer.is_stopped or connection is None or connection.error is not None:
        return []
    asking.is_pulling = True
    found: list[Leased] = []
    try:
        if asking.on_its_way() is None:
            asked = asking.ask(connection, prefetch, is_waited_for=True, listed=listed, is_hasty=True)
            if asked is not None:
                connection.wait(asked.call, desk.time.now() + FIRST_LIST_S)
                found = acquirer.batches_at_hand(TOGETHER)
        return found
    finally:
        asking.is_pulling = False
        if not found:
            asking.withdraw()
