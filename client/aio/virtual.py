"""Waiting in tasks by a virtual clock; `client.virtual_clock` says when time passes."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakKeyDictionary

import anyio
import anyio.lowlevel

from ...protocol.errors import WouldBlockForever
from ..virtual_clock import INTERNAL, LOOK_S, VirtualClock, Wait
from .runtime import Bell, Poller, Time, call_soon, home, readable_or_writable

WATCH = INTERNAL + "watch"

MANY_TURNS = 10
"""Of an event loop, in which tasks that are about to get blocked; what is not by then is at work."""


def time_on(clock: VirtualClock) -> Time:
    """Return the time of clients that go by this clock."""
    return Time(clock.now, clock.wall_us, partial(_Bell, clock), partial(_Poller, clock), _never)


def _never(_seconds: float) -> float:
    return math.inf


class _Bell(Bell):
    __slots__ = ("_clock",)

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    async def wait(self, until: float) -> bool:
        """Return whether it rang before that moment of the clock. Raises WouldBlockForever."""
        await _wait(self._clock, until, self._event.is_set, self._event.wait)
        return self._event.is_set()


class _Poller(Poller):
    __slots__ = ("_clock",)

    def __init__(self, clock: VirtualClock, sock: socket.socket) -> None:
        super().__init__(sock)
        self._clock = clock

    async def wait(self, *, write: bool, until: float) -> bool:
        """Return True once the socket is readable, or writable if asked, or `wake` was called; False at `until`."""
        happens = partial(readable_or_writable, self._socket) if write else partial(anyio.wait_readable, self._socket)
        is_woken = False
        with anyio.CancelScope() as scope:
            self._scope = scope
            try:
                if self._is_woken:
                    await anyio.lowlevel.checkpoint()
                    return True
                return await _wait(self._clock, until, lambda: self.is_ready(write), happens)
            finally:
                self._scope = None
                is_woken, self._is_woken = self._is_woken, False
        return is_woken


async def _wait(
    clock: VirtualClock, until: float, is_ready: Callable[[], bool], happens: Callable[[], Awaitable[object]]
) -> bool:
    """Return whether it happened before that moment of the clock."""
    if clock.now() >= until:
        await anyio.lowlevel.checkpoint()
        return is_ready()
    here, is_over, failure = home(), False, None
    is_internal = (anyio.get_current_task().name or "").startswith(INTERNAL)

    def end() -> None:
        group.cancel_scope.cancel()

    async def watch() -> None:
        nonlocal failure
        while clock.now() < until:
            await _until_all_are_blocked()
            try:
                is_moved = clock.rest(wait)
            except WouldBlockForever as error:
                failure = error
                break
            if not is_moved:
                await anyio.sleep(LOOK_S)
        end()

    wait = Wait(until, clock.now(), is_ready, lambda: call_soon(here, end), is_internal=is_internal, is_of_a_task=True)
    clock.begin(wait)
    try:
        async with anyio.create_task_group() as group:
            if not is_internal:  # else it never moves time, and is woken by whoever does
                group.start_soon(watch, name=WATCH)
            await happens()
            is_over = True
            end()
    finally:
        clock.end(wait)
    if failure is not None and not is_over:
        raise failure
    return is_over


async def _until_all_are_blocked() -> None:
    native = anyio.lowlevel.current_token().native_token
    if not isinstance(native, asyncio.AbstractEventLoop):
        await anyio.wait_all_tasks_blocked()
        return
    turns = 0  # by hand: AnyIO's pauses for 100 ms where a task is not blocked yet
    while turns == 0 or _is_busy(native):
        turns += 1
        if turns > MANY_TURNS:
            await asyncio.sleep(LOOK_S)
            continue
        _turning[native] = _turning.get(native, 0) + 1
        try:
            await asyncio.sleep(0)
        finally:
            _turning[native] -= 1


_turning: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()
"""How many in each loop do nothing but look whether the others are blocked."""


def _is_busy(loop: asyncio.AbstractEventLoop) -> bool:
    if len(getattr(loop, "_ready", ())) > _turning.get(loop, 0):
        return True
    mine = asyncio.current_task()
    for task in asyncio.all_tasks():
        waits_for: asyncio.Future[object] | None = getattr(task, "_fut_waiter", None)
        if task is not mine and task.get_name() != WATCH and (waits_for is None or waits_for.done()):
            return True
    return False
