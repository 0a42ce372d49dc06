"""What waits, under asyncio and trio: the only module of `aio` that `blocking` has written by hand for itself.

Nothing here reads or writes a socket; everything here may be cancelled at any await and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
import select
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import NamedTuple, TypeVar, cast

import anyio
from anyio.lowlevel import EventLoopToken, current_token

from ...protocol.errors import ForkedError, WrongLoopError
from ..core.url import MemoryServer, Server
from ..lookup import Address, lookup
from ..memory import clock_of
from ..process import generation

Item = TypeVar("Item")

TRIES_FIRST = True
"""Whether to read before waiting: a pass through the event loop costs more than a read that finds nothing."""


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


class Home(NamedTuple):
    """The process and the event loop that a connection belongs to."""

    generation: int
    token: EventLoopToken


def home() -> Home:
    """Return where the caller runs."""
    return Home(generation(), current_token())


def is_forked(made: Home) -> bool:
    """Return whether the caller runs in another process than what was made there."""
    return made.generation != generation()


def is_gone(made: Home) -> bool:
    """Return whether nothing that waits there will ever go on: another process, or an event loop that is closed."""
    is_closed: Callable[[], bool] | None = getattr(made.token.native_token, "is_closed", None)
    return is_forked(made) or (is_closed is not None and is_closed())


def may_leave(made: Home, is_in_use: bool) -> None:
    """Raise WrongLoopError if calls wait in the event loop that a client would leave for the caller's."""
    if is_in_use and not is_gone(made):
        raise WrongLoopError("this client has calls waiting in another event loop; use a client for each loop")


def check_home(made: Home, what: str) -> None:
    """Raise ForkedError or WrongLoopError unless the caller runs where `what` was first used."""
    if made.generation != generation():
        raise ForkedError(f"this {what} was opened before a fork; make a new one in the child")
    if not is_here(made):
        raise WrongLoopError(f"this {what} is used in another event loop or thread than the one it was opened in")


def is_here(made: Home) -> bool:
    """Whether the caller runs there; a thread that has no event loop does not."""
    try:
        return made == home()
    except RuntimeError:
        return False


class _SettledAwaitable:
    """What settling returns: it is done already, and may be awaited."""

    __slots__ = ()

    def __await__(self) -> Iterator[None]:
        return iter(())

    def __repr__(self) -> str:
        return "<settled>"


Settled = Awaitable[None]
"""What the calls return that settle a message."""

SETTLED: Settled = cast("Settled", _SettledAwaitable())


def cancellations() -> tuple[type[BaseException], ...]:
    """Return what is raised in a task that is cancelled."""
    return (anyio.get_cancelled_exc_class(),)


class Lock(nullcontext[None]):
    """Holds off other threads where there are any; the tasks of one loop need none between two awaits."""


def _scope(until: float) -> anyio.CancelScope:
    return anyio.move_on_after(None if until == math.inf else max(0.0, until - now()))


class Bell:
    """Wakes one waiting task; rung once, it stays rung."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def set(self) -> None:
        """Ring."""
        self._event.set()

    async def wait(self, until: float) -> bool:
        """Return whether it rang before that moment of the monotonic clock."""
        with _scope(until):
            await self._event.wait()
        return self._event.is_set()


class Poller:
    """Waits for one socket."""

    __slots__ = ("_home", "_is_woken", "_scope", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._scope: anyio.CancelScope | None = None
        self._is_woken = False
        self._home = home()

    async def wait(self, *, write: bool, until: float) -> bool:
        """Return True once the socket is readable, or writable if asked, or `wake` was called; False at `until`."""
        is_woken = False
        with _scope(until) as scope:
            self._scope = scope
            try:
                if self._is_woken:
                    await anyio.lowlevel.checkpoint()
                elif write:
                    await readable_or_writable(self._socket)
                else:
                    await anyio.wait_readable(self._socket)
                return True
            finally:
                self._scope = None
                is_woken, self._is_woken = self._is_woken, False
        return is_woken

    def is_ready(self, write: bool) -> bool:
        """Return whether a wait would end at once."""
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLIN | select.POLLOUT if write else select.POLLIN)
        except (OSError, ValueError):  # closed: whoever waits finds out
            return True
        return self._is_woken or bool(poll.poll(0))

    def wake(self) -> None:
        """End the wait in progress, or else the next one."""
        self._is_woken = True
        if self._scope is not None:
            self._scope.cancel()

    def wake_from_anywhere(self) -> None:
        """Do the same from another thread or a signal handler."""
        call_soon(self._home, self.wake)


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


async def readable_or_writable(sock: socket.socket) -> None:
    async with anyio.create_task_group() as group:

        async def readable() -> None:
            await anyio.wait_readable(sock)
            group.cancel_scope.cancel()

        group.start_soon(readable)
        await anyio.wait_writable(sock)
        group.cancel_scope.cancel()


def call_soon(where: Home, action: Callable[[], None]) -> None:
    """Have the event loop call `action`, from any thread or a signal handler; nothing happens if the loop has ended."""
    native = where.token.native_token
    schedule = getattr(native, "call_soon_threadsafe", None) or getattr(native, "run_sync_soon", None)
    try:
        cast("Callable[[Callable[[], None]], object]", schedule)(action)
    except RuntimeError:  # the loop is closed, so nobody waits there
        pass


async def resolve(host: str, port: int, until: float) -> list[Address] | None:
    """Return the addresses of a host, those to try first in front; None at `until`. Raises OSError."""
    found = lookup(host, port)
    if not found.is_done:
        here, bell = home(), Bell()
        found.when_done(lambda: call_soon(here, bell.set))
        await bell.wait(until)
    return found.addresses() if found.is_done else None


async def checkpoint() -> None:
    """Let other tasks run, and notice a cancellation."""
    await anyio.lowlevel.checkpoint()


def at_once(call: Callable[[], Awaitable[Item]]) -> Item:
    """Return what a call returns that would have to be awaited: only the blocking client can."""
    raise TypeError(
        "expected the blocking Client where Arrow pulls, found an AsyncClient's replay: await its to_arrow() instead"
    )


HAS_LOOPS = True
"""Whether a caller may be in another event loop than the one that something belongs to."""


def place() -> tuple[Callable[[], object], object]:
    """Return a cheap question and its answer here, which is another one in most other loops: `home` takes longer than
    taking a message does."""
    ask: Callable[[], object] = asyncio.events._get_running_loop if _asyncio_loop() is not None else get_ident
    return ask, ask()


def me() -> object:
    """Return what is different for every task."""
    return anyio.get_current_task().id


async def notify(callback: Callable[[Item], object], subject: Item) -> None:
    """Call what the user gave, and wait for it if it is to be awaited."""
    result = callback(subject)
    if isinstance(result, Awaitable):
        await cast("Awaitable[object]", result)


def is_interruptible() -> bool:
    """Whether a signal or a cancellation can strike the caller: in an event loop always."""
    return True


def shield() -> AbstractContextManager[object]:
    """Hold off cancellation for a while."""
    return anyio.CancelScope(shield=True)


def background(
    name: str, run: Callable[[], Coroutine[object, object, None]], ended: Callable[[], object] | None = None
) -> None:
    """Run something beside the caller, until it returns or the loop ends; it raises nothing but a cancellation.

    `ended` is called afterwards, also where a task was cancelled before it began.
    """
    loop = _asyncio_loop()
    if loop is None:
        from trio.lowlevel import spawn_system_task

        try:
            spawn_system_task(run, name=name)
        except RuntimeError:  # the loop is ending: nothing begins there any more
            if ended is not None:
                ended()
        return
    task = loop.create_task(run(), name=name)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    if ended is not None:
        task.add_done_callback(lambda _task: ended())


_tasks: set[asyncio.Task[None]] = set()
"""The loop itself refers to its tasks only weakly."""


def _asyncio_loop() -> asyncio.AbstractEventLoop | None:
    running = asyncio.events._get_running_loop()
    if running is not None:  # also in a callback of it, where anyio finds no task
        return running
    native = current_token().native_token
    return native if isinstance(native, asyncio.AbstractEventLoop) else None


def each(next_item: Callable[[], Awaitable[Item | None]]) -> AsyncIterator[Item]:
    """Iterate over what a function returns until it returns None."""
    return _Each(next_item)


def flatten(next_items: Callable[[], Awaitable[Iterator[Item] | None]], most: int | None = None) -> AsyncIterator[Item]:
    """Iterate over the items of the lists that a function returns, until it returns None, or over so many."""
    return _Flatten(next_items, math.inf if most is None else most)


class _Each(AsyncIterator[Item]):
    """Not an async generator: one of those that is left early wants to be closed, which a `for` loop does not do."""

    __slots__ = ("_next",)

    def __init__(self, next_item: Callable[[], Awaitable[Item | None]]) -> None:
        self._next = next_item

    async def __anext__(self) -> Item:
        item = await self._next()
        if item is None:
            raise StopAsyncIteration
        return item


class _Flatten(AsyncIterator[Item]):
    __slots__ = ("_items", "_left", "_next")

    def __init__(self, next_items: Callable[[], Awaitable[Iterator[Item] | None]], left: float) -> None:
        self._next = next_items
        self._left = left
        self._items: Iterator[Item] = iter(())

    async def __anext__(self) -> Item:
        while self._left > 0:
            for item in self._items:
                self._left -= 1
                return item
            items = await self._next()
            if items is None:
                break
            self._items = items
        raise StopAsyncIteration
