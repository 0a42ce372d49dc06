"""The clock of a broker for tests, as its clients see it: time passes when somebody says so, or when everybody waits.

Theory of operation. Every wait of a client of such a broker is entered here while it lasts. Who waits and finds
nothing `rests`; whoever rests when nobody else can do anything moves the time:

    rest --something is there, for this wait or another--------------------> back, look
         --another thread works: it may send, or advance the clock----------> back, sleep a little
         --all wait, and a timeout ends or the broker has work at a time----> the clock jumps there
         --all wait, and nothing will ever happen---------------------------> WouldBlockForever

"All" is every thread of the program; `who_works` says which of those that do not rest here can do nothing either. A
task rests when all tasks of its event loop are blocked.
The broker's housekeeping (retention, idle connections, the turns of a fetch that waits) is no reason to jump: it would
be one for ever. While another thread works, a wait with a timeout ends after that in real time at the latest.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..protocol.errors import WouldBlockForever
from .who_works import SERVERS, do_all_wait

MAX_JUMPS = 2_000
"""In one wait without a timeout; then what happens at these times (a lease renewed again and again) will not end it."""

FIRST_LOOK_S = 0.0005
"""What a broker answers comes within this, mostly, and nobody needs to ask whether all wait."""

LOOK_S = 0.005
"""How often a thread looks again while another works."""

CALM_S = 5.0
"""How long `advance` waits for the client's own threads to do what is due."""

GRACE_S = 0.05
"""How long `advance` waits for the program's own threads that it woke; they may be doing anything."""

INTERNAL = "tidelog-"
"""What the names of the client's own threads and tasks begin with: their waits never raise, nor do they move time."""


class Engine(Protocol):
    """The broker behind a clock; its methods are called by one thread at a time, none of them the broker's own."""

    def now_us(self) -> int:
        """Return the monotonic time."""
        ...

    def wall_us(self) -> int:
        """Return the wall time."""
        ...

    def settle(self) -> None:
        """Return once the broker has nothing to do at this time: what it was sent is answered."""
        ...

    def next_due_us(self) -> int | None:
        """Return when the next of all deadlines of the broker is due."""
        ...

    def next_work_us(self) -> int | None:
        """Return the same, housekeeping left out."""
        ...

    def pass_until(self, us: int, is_noticed: Callable[[], bool]) -> None:
        """Let time pass and do what is due, in order; up to `us`, or to when `is_noticed` says that clients got
        something."""
        ...


class Wait:
    """One wait in progress."""

    __slots__ = (
        "began",
        "began_real",
        "is_internal",
        "is_of_a_task",
        "is_ready",
        "jumps",
        "thread",
        "until",
        "wake",
    )

    def __init__(
        self,
        until: float,
        now: float,
        is_ready: Callable[[], bool],
        wake: Callable[[], None],
        *,
        is_internal: bool,
        is_of_a_task: bool,
    ) -> None:
        self.until = until
        self.began = now
        self.began_real = time.monotonic()
        self.is_internal = is_internal
        self.is_of_a_task = is_of_a_task
        """Its thread may be at work on other tasks meanwhile, unless it rests here."""
        self.is_ready = is_ready
        """Whether what it waits for is there; asked by other threads."""
        self.wake = wake
        """Makes it look at the time again; called by other threads."""
        self.thread = threading.get_ident()
        self.jumps = 0

    def __repr__(self) -> str:
        return f"<Wait of thread {self.thread} until {self.until}>"

    @property
    def is_overdue(self) -> bool:
        """Whether it took as long as it would against a broker on the machine's clock."""
        return not self.is_internal and time.monotonic() - self.began_real >= self.until - self.began


class VirtualClock:
    """The time of one broker's clients."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waits: dict[Wait, None] = {}
        self._users: set[int] = set()
        """Threads that ever waited here."""
        self._met: dict[int, float] = {}
        """Threads of clients that have not waited here, and since when they are known, in real time."""
        self._lock = threading.Lock()
        self._moving = threading.RLock()
        """Held by whoever lets time pass."""

    def __repr__(self) -> str:
        return f"<VirtualClock at {self.now():.6f}, {len(self._waits)} wait>"

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return self._engine.now_us() / 1e6

    def wall_us(self) -> int:
        """Return the wall time."""
        return self._engine.wall_us()

    # -- waiting -----------------------------------------------------------------------------------------------------

    def begin(self, wait: Wait) -> None:
        """Enter a wait."""
        with self._lock:
            self._waits[wait] = None
            self._users.add(wait.thread)

    def end(self, wait: Wait) -> None:
        """It is over."""
        with self._lock:
            self._waits.pop(wait, None)

    def wait(self, wait: Wait, sleep: Callable[[float], bool]) -> bool:
        """Wait in a thread: `sleep(seconds)` sleeps for real and returns whether what is waited for is there. Returns
        False when the time is over. Raises WouldBlockForever."""
        self.begin(wait)
        try:
            pause = 0.0
            while True:
                if sleep(pause):
                    return True
                if self.now() >= wait.until:
                    return False
                pause = (0.0 if self.rest(wait) else LOOK_S) if pause else FIRST_LOOK_S
        finally:
            self.end(wait)

    def rest(self, wait: Wait) -> bool:
        """Let time pass if all that the caller and everybody else can do is wait; return whether there is something to
        look at. Raises WouldBlockForever."""
        if wait.is_internal or not self._moving.acquire(blocking=False):
            return False
        try:
            self._engine.settle()
            waits = self._all()
            if any(each.is_ready() or (each.until <= self.now() and not _is_mine(each)) for each in waits):
                return wait.is_ready()  # else another has something to look at, and goes on in a moment
            if not self._all_wait(waits):
                return self._pass_overdue(wait)
            if not self._last(waits, self._all):
                return wait.is_ready()
            self._jump(wait, waits)
            return True
        finally:
            self._moving.release()

    def _last(self, waits: list[Wait], there_are: Callable[[], list[Wait]]) -> bool:
        """Whether waits last although the broker has done all there is to do: one may have begun after it settled, with
        a request that it had not seen."""
        self._engine.settle()
        return there_are() == waits and not any(each.is_ready() for each in waits)

    def _jump(self, wait: Wait, waits: list[Wait]) -> None:
        work_us = self._engine.next_work_us()
        now = self.now()  # tasks of a loop that the caller blocks may be due already
        moments = [_us(each.until) for each in waits if now < each.until < math.inf]
        if work_us is not None:
            moments.append(work_us)
        wait.jumps += 1
        if not moments or (wait.until == math.inf and wait.jumps > MAX_JUMPS):
            raise WouldBlockForever(_why(wait))
        self._pass_until(min(moments))

    def _pass_overdue(self, wait: Wait) -> bool:
        if wait.until < math.inf and wait.is_overdue:
            self._pass_until(_us(wait.until))
            return True
        return False

    def _pass_until(self, us: int) -> None:
        self._engine.pass_until(us, self._is_noticed)
        now = self.now()
        for each in self._all():
            if each.until <= now:
                each.wake()

    def _is_noticed(self) -> bool:
        return any(each.is_ready() for each in self._all())

    def _all(self) -> list[Wait]:
        with self._lock:
            return [*self._waits]

    def _internal(self) -> list[Wait]:
        return [each for each in self._all() if each.is_internal]

    # -- being told --------------------------------------------------------------------------------------------------

    def advance(self, duration_us: int) -> None:
        """Let time pass, and return once all that is due by then is done and visible, by clients' own threads too."""
        with self._moving:
            target_us = self._engine.now_us() + duration_us
            grace_until = time.monotonic() + GRACE_S
            self._calm(grace_until)
            while (now_us := self._engine.now_us()) < target_us:
                mine = threading.get_ident()
                moments = [each.until for each in self._all() if each.thread != mine and each.until > now_us / 1e6]
                self._pass_until(min([_us(each) for each in moments if each < math.inf] + [target_us]))
                self._calm(grace_until)

    def settle(self) -> None:
        """Return once the broker has nothing to do at this time, nor its clients' own threads."""
        with self._moving:
            self._calm(time.monotonic() + GRACE_S)

    def _calm(self, grace_until: float) -> None:
        """Wait until those who have something to look at have done so."""
        until = time.monotonic() + CALM_S
        mine = threading.get_ident()
        while True:
            self._engine.settle()
            now, waits = self.now(), self._all()
            real = time.monotonic()
            due = [
                each
                for each in waits
                if each.thread != mine
                and (each.is_ready() or each.until <= now)
                and (each.is_internal or real < grace_until)
            ]
            is_calm = not due and self._own_threads_rest(waits)
            internal = [each for each in waits if each.is_internal]
            if real > until or (is_calm and self._last(internal, self._internal)):
                return
            time.sleep(0.0002)

    def _own_threads_rest(self, waits: list[Wait]) -> bool:
        resting = {each.thread for each in waits}
        threads = [each.ident or 0 for each in threading.enumerate() if _is_a_clients(each)]
        return all(thread in resting for thread in threads if thread in self._users or self._is_new(thread, threads))

    def _is_new(self, thread: int, threads: list[int]) -> bool:
        """Whether a thread may be a client's of this broker that has just begun. One that had time to wait here and did
        not belongs to a client of another broker, whose work is no matter of this clock."""
        self._met = {each: since for each, since in self._met.items() if each in threads}
        real = time.monotonic()
        return real - self._met.setdefault(thread, real) <= GRACE_S

    def _all_wait(self, waits: list[Wait]) -> bool:
        """Whether no thread of the program can do anything before time passes. The caller is one that waits."""
        return do_all_wait([each.thread for each in waits if not each.is_of_a_task], self._users)


def _is_a_clients(thread: threading.Thread) -> bool:
    return thread.name.startswith(INTERNAL) and not thread.name.startswith(SERVERS)


def _is_mine(wait: Wait) -> bool:
    return wait.thread == threading.get_ident()


def _us(moment: float) -> int:
    """Return a moment in whole microseconds, none of which a comparison with the moment finds to be before it."""
    us = math.ceil(moment * 1e6)
    return us if us / 1e6 >= moment else us + 1


def _why(wait: Wait) -> str:
    if wait.jumps > MAX_JUMPS:
        return f"nothing new came at the next {MAX_JUMPS} moments at which the broker or a client had something to do"
    return (
        "nothing can end this wait: everybody waits, no timeout runs and the broker has nothing to do later; "
        "produce first, advance the clock from another thread, or give the call a timeout"
    )
