"""What waits, in threads: poll on one socket, a lock for each waiting thread. No loop and no thread of its own.

Every wait ends with KeyboardInterrupt when a signal comes, and is cut into pieces of at most MAX_WAIT_S.
"""

from __future__ import annotations

import _thread
import math
import os
import random
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import TypeAlias, TypeVar

from ...protocol.errors import ForkedError
from ..core.url import MemoryServer, Server
from ..lookup import Address, lookup
from ..memory import clock_of
from ..process import generation

Item = TypeVar("Item")
Home = int

TRIES_FIRST = False
"""Whether to read before waiting: poll is as cheap as a read that finds nothing, and is never in vain."""

MAX_WAIT_S = 1.0
"""A signal that comes in the instant between Python's last look and the system call does not end that call: it is
noticed after this long. Besides, poll takes milliseconds in an int, which holds 24 days, and a timeout may be longer.
"""

Lock = threading.RLock


now = time.monotonic
"""The clock of all deadlines, in seconds. Not wrapped: it is asked several times in a call that takes 60 us."""


def wall_us() -> int:
    """Return the wall clock in microseconds since the epoch."""
    return time.time_ns() // 1000


chance = random.random
"""A number from 0 to 1."""


def draw() -> int:
    """Return a number that nobody else has: 1 and more, below 2 to the 62th."""
    return 1 + secrets.randbelow((1 << 62) - 1)


def home() -> Home:
    """Return the process that the caller runs in."""
    return generation()


def is_forked(made: Home) -> bool:
    """Return whether the caller runs in another process than what was made there."""
    return made != generation()


def is_gone(made: Home) -> bool:
    """Return whether nothing that waits there will ever go on: it is another process."""
    return is_forked(made)


def may_leave(made: Home, is_in_use: bool) -> None:
    """Any thread may use a client: there is no loop to leave, and after a fork nobody waits in the parent's place."""


def call_soon(where: Home, action: Callable[[], None]) -> None:
    """Call `action`, which takes no lock, from any thread or a signal handler."""
    if where == generation():
        action()


def check_home(made: Home, what: str) -> None:
    """Raise ForkedError unless the caller runs in the process where `what` was first used."""
    if made != generation():
        raise ForkedError(f"this {what} was opened before a fork; make a new one in the child")


def is_here(made: Home) -> bool:
    """Whether the caller runs in that process."""
    return made == generation()


Settled: TypeAlias = None
"""What the calls return that settle a message."""

SETTLED = None


def cancellations() -> tuple[type[BaseException], ...]:
    """Threads are not cancelled."""
    return ()


class Bell:
    """Wakes one waiting thread; rung once, it stays rung. Safe in a signal handler, as threading.Event is not."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def set(self) -> None:
        """Ring."""
        try:
            self._lock.release()
        except RuntimeError:  # rung before
            pass

    def wait(self, until: float) -> bool:
        """Return whether it rang before that moment of the monotonic clock."""
        if _acquire(self._lock, until):
            self.set()
            return True
        return False


def _acquire(lock: _thread.LockType, until: float) -> bool:
    while not lock.acquire(timeout=min(max(0.0, until - now()), MAX_WAIT_S)):
        if now() >= until:
            return False
    return True


class Poller:
    """Waits for one socket."""

    __slots__ = ("_poll", "_socket_fd", "_wake_fd", "_watches_write")

    def __init__(self, sock: socket.socket) -> None:
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._socket_fd = sock.fileno()
        self._watches_write = False
        self._poll = select.poll()
        self._poll.register(self._socket_fd, select.POLLIN)
        self._poll.register(self._wake_fd, select.POLLIN)

    def __del__(self) -> None:
        # Not before nobody can call `wake` any more: the number may be another file's a moment later.
        wake_fd = getattr(self, "_wake_fd", -1)
        if wake_fd >= 0:
            os.close(wake_fd)

    def wait(self, *, write: bool, until: float) -> bool:
        """Return True once the socket is readable, or writable if asked, or `wake` was called; False at `until`."""
        if write != self._watches_write:
            self._poll.modify(self._socket_fd, select.POLLIN | select.POLLOUT if write else select.POLLIN)
            self._watches_write = write
        while True:
            left = until - now()
            found = self._poll.poll(math.ceil(min(max(left, 0.0), MAX_WAIT_S) * 1000) if left != math.inf else None)
            if found:
                if len(found) > 1 or found[0][0] == self._wake_fd:
                    self._slept()
                return True
            if left <= 0:
                return False

    def wait_for(self, *, write: bool, seconds: float) -> bool:
        """Do the same for so long by the machine's clock, whatever the time of the client is."""
        return Poller.wait(self, write=write, until=now() + seconds)

    def _slept(self) -> None:
        try:
            os.eventfd_read(self._wake_fd)
        except BlockingIOError:  # two events of the socket alone
            pass

    def wake(self) -> None:
        """End the wait in progress, or else the next one."""
        os.eventfd_write(self._wake_fd, 1)

    def wake_from_anywhere(self) -> None:
        """Do the same from another thread or a signal handler."""
        self.wake()


class Time:
    """The clock that a client goes by, and what waits by it: the machine's, or the virtual one of a broker for tests.

    Whoever belongs to a client asks its time, not this module, for `now`, bells and pollers.
    """

    __slots__ = ("Bell", "Poller", "at_most", "now", "wall_us")

    def __init__(
        self,
        now: Callable[[], float],
        wall_us: Callable[[], int],
        bell: Callable[[], Bell],
        poller: Callable[[socket.socket], Poller],
        at_most: Callable[[float], float],
    ) -> None:
        self.now = now
        self.wall_us = wall_us
        self.Bell = bell
        self.Poller = poller
        self.at_most = at_most
        """After how long to look whether all is well, although nobody said so; on a virtual clock never."""


MACHINE = Time(now, wall_us, Bell, Poller, float)


def time_of(server: Server | MemoryServer) -> Time:
    """Return the time of a server's clients."""
    clock = clock_of(server.name) if isinstance(server, MemoryServer) else None
    if clock is None:
        return MACHINE
    from .virtual import time_on

    return time_on(clock)


def resolve(host: str, port: int, until: float) -> list[Address] | None:
    """Return the addresses of a host, those to try first in front; None at `until`. Raises OSError."""
    found = lookup(host, port)
    if not found.is_done:
        bell = Bell()
        found.when_done(bell.set)
        bell.wait(until)
    return found.addresses() if found.is_done else None


def checkpoint() -> None:
    """Threads are let go on by the interpreter."""


def at_once(call: Callable[[], Item]) -> Item:
    """Return what a call returns."""
    return call()


HAS_LOOPS = False
"""Whether a caller may be in another event loop than the one that something belongs to."""


def place() -> tuple[Callable[[], object], object]:
    """There are no loops to tell apart."""
    return _nowhere, None


def _nowhere() -> None:
    pass


me = threading.get_ident
"""What is different for every thread."""


def notify(callback: Callable[[Item], object], subject: Item) -> None:
    """Call what the user gave."""
    callback(subject)


def is_interruptible() -> bool:
    """Whether a signal can strike the caller: Python's handlers run in the main thread alone."""
    return threading.current_thread() is threading.main_thread()


def shield() -> AbstractContextManager[object]:
    """Threads are not cancelled."""
    return nullcontext()


def background(name: str, run: Callable[[], None], ended: Callable[[], object] | None = None) -> None:
    """Run something beside the caller, until it returns; the interpreter does not wait for it at its end. `ended` is
    for event loops, whose tasks may be cancelled before they begin: a thread begins."""
    threading.Thread(target=run, name=name, daemon=True).start()


def each(next_item: Callable[[], Item | None]) -> Iterator[Item]:
    """Iterate over what a function returns until it returns None."""
    return iter(next_item, None)


def flatten(next_items: Callable[[], Iterator[Item] | None], most: int | None = None) -> Iterator[Item]:
    """Iterate over the items of the lists that a function returns, until it returns None, or over so many.

    In C: a generator would cost 30 ns more for each item.
    """
    items = chain.from_iterable(iter(next_items, None))
    return items if most is None else islice(items, min(most, sys.maxsize))
