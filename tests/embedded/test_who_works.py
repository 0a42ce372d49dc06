"""Which threads of a program can do something, as the virtual clock sees it: what was given something is not waiting."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import trio
from trio.lowlevel import start_thread_soon

from tidelog.client import virtual_clock

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
    return virtual_clock._waits_for_a_thread(frame)  # pyright: ignore[reportPrivateUsage]


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
    clock = virtual_clock.VirtualClock.__new__(virtual_clock.VirtualClock)
    clock._users = set()  # pyright: ignore[reportPrivateUsage]
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
            found = {name: clock._is_watchdog(thread, frames[thread]) for name, thread in known.items()}  # pyright: ignore[reportPrivateUsage]
            over.set()
            assert found == {"trio's": False, "a bar": True}

    threading.Thread(target=work, args=("a bar",), daemon=True).start()
    trio.run(main)
