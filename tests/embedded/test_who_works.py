"""Which threads of a program can do something, as the virtual clock sees it: what was given something is not waiting."""

from __future__ import annotations

import asyncio
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from trio.lowlevel import start_thread_soon

from tests.client.flavours import eventually
from tidelog.client import who_works

Give = Callable[[Callable[[], object]], object]


@contextmanager
def queued() -> Iterator[Give]:
    """A thread that takes from a queue, as asyncio's workers under anyio do."""
    calls: queue.Queue[Callable[[], object] | None] = queue.Queue()

    def work() -> None:
        while (call := calls.get()) is not None:
            call()

    thread = threading.Thread(target=work)
    thread.start()
    yield calls.put
    calls.put(None)
    thread.join()


@contextmanager
def pooled() -> Iterator[Give]:
    """A pool of one thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


@contextmanager
def of_trio() -> Iterator[Give]:
    """Threads of trio's cache, which are daemons."""
    yield lambda call: start_thread_soon(call, lambda _outcome: None)


def waits(thread: int) -> bool:
    """Return whether a thread can only be woken by another."""
    frame = sys._current_frames()[thread]  # pyright: ignore[reportPrivateUsage]
    return who_works.waits_for_a_thread(frame)


@pytest.mark.parametrize("make", [queued, pooled, of_trio])
def test_a_worker_that_was_given_something_does_not_wait(make: Callable[[], object]) -> None:
    """It has not run yet, as the caller has not let go of the interpreter; before that it had nothing to do."""
    with make() as give:  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        known: list[int] = []
        give(lambda: known.append(threading.get_ident()))
        until = time.monotonic() + 10
        while not known or not waits(known[0]):
            assert time.monotonic() < until, "a worker with nothing to do waits"
            time.sleep(0.001)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            done = threading.Event()
            give(done.set)
            is_waiting = waits(known[0])
        finally:
            sys.setswitchinterval(interval)
        assert not is_waiting
        assert done.wait(10)


def test_a_worker_of_trio_is_no_watchdog() -> None:
    """What trio's threads run is the program's own work, though they are daemons; a daemon beside them is none."""
    begun, over = threading.Barrier(3), threading.Event()
    known: dict[str, int] = {}

    def work(name: str) -> None:
        known[name] = threading.get_ident()
        begun.wait()
        while not over.is_set():
            time.sleep(0.001)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, work, "trio's")
            await trio.to_thread.run_sync(begun.wait)
            frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
            found = {name: who_works.is_watchdog(thread, frames[thread], ()) for name, thread in known.items()}
            over.set()
            assert found == {"trio's": False, "a bar": True}

    threading.Thread(target=work, args=("a bar",), daemon=True).start()
    trio.run(main)


Wake = Callable[[], object]


@contextmanager
def asyncio_loop(called: threading.Event) -> Iterator[tuple[int, dict[str, Wake]]]:
    """A loop of asyncio whose tasks wait; its thread, and what wakes it: a call, a signal's byte, a socket's."""
    ours, theirs = socket.socketpair()
    begun: list[Any] = []

    def read() -> None:
        theirs.recv(1)
        called.set()

    async def main() -> None:
        loop, over = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(theirs, read)
        begun.extend((threading.get_ident(), loop, over))
        await asyncio.wait_for(over.wait(), 600)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    eventually(lambda: len(begun) == 3)
    ident, loop, over = begun
    yield ident, {"call": lambda: loop.call_soon_threadsafe(called.set), "socket": lambda: ours.send(b"x")}
    loop.call_soon_threadsafe(over.set)
    thread.join()
    ours.close()
    theirs.close()


@contextmanager
def trio_loop(called: threading.Event) -> Iterator[tuple[int, dict[str, Wake]]]:
    """The same of trio."""
    ours, theirs = socket.socketpair()
    begun: list[Any] = []

    async def main() -> None:
        with trio.fail_after(600):
            over = trio.Event()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(read)
                begun.extend((threading.get_ident(), trio.lowlevel.current_trio_token(), over))
                await over.wait()
                nursery.cancel_scope.cancel()

    async def read() -> None:
        await trio.lowlevel.wait_readable(theirs)
        called.set()

    thread = threading.Thread(target=lambda: trio.run(main))
    thread.start()
    eventually(lambda: len(begun) == 3)
    ident, token, over = begun
    yield ident, {"call": lambda: token.run_sync_soon(called.set), "socket": lambda: ours.send(b"x")}
    token.run_sync_soon(over.set)
    thread.join()
    ours.close()
    theirs.close()


def does_sleep(thread: int) -> bool:
    """Return whether a thread is in an event loop with nothing to do."""
    return who_works.sleeps(sys._current_frames()[thread])  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("way", ["call", "socket"])
@pytest.mark.parametrize("make", [asyncio_loop, trio_loop])
def test_an_event_loop_that_is_called_does_not_sleep(make: Callable[..., Any], way: str) -> None:
    """With nothing to do it sleeps, a timeout in ten minutes or not; with something that it has not seen yet, as its
    thread has not had the interpreter, it does not."""
    called = threading.Event()
    with make(called) as (thread, wakes):
        eventually(lambda: does_sleep(thread))
        interval = sys.getswitchinterval()
        sys.setswitchinterval(60)
        try:
            wakes[way]()
            is_sleeping, was_called = does_sleep(thread), called.is_set()
        finally:
            sys.setswitchinterval(interval)
        assert was_called or not is_sleeping
        assert called.wait(10)
        eventually(lambda: does_sleep(thread))
