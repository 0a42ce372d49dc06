"""Which threads of a program can do something, and which can only wait, by what they are in the middle of.

Theory of operation. A thread waits when nothing but another thread can have it go on, and none has yet: it waits for
a thread or a lock without a timeout, is a pool's and was given nothing, or is in an event loop that sleeps. A loop
sleeps while its tasks are all blocked, those in a `sleep` of its own too; one that was called from another thread, or
has something at one of its sockets, is about to go on. So "all wait" cannot become untrue but by somebody outside the
program, if it was true of all at one moment: a thread that was looked at early may have been given something by one
that was at work then, and is looked at last, at rest again. That is why everybody must still be in the same call at the
end as in the beginning, and loops, which many others wake, are asked last.

What is seen here are frames and what they hold: of `threading`, of the pools of `concurrent.futures` and trio, of
asyncio's own loops and trio's on epoll. Whatever else a thread does is work.
"""

from __future__ import annotations

import select
import sys
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from selectors import EVENT_READ, EVENT_WRITE
from types import FrameType
from typing import cast

HANDLER = "tidelog handler"
"""The name of the threads in which a queue's `run` calls handlers: what they do is the program's own work."""

SERVERS = ("tidelog-broker", "tidelog-sync")
"""What the names of a broker's threads begin with: it says itself whether it has something to do."""

_THREADING = "/threading.py"
_WAITS = ("wait", "join", "_wait_for_tstate_lock")
_POOLS = (("concurrent/futures/thread.py", "_worker"), ("trio/_core/_thread_cache.py", "_work"))
_CREW = ("client/blocking/crew.py", "_next_call")
_ASYNCIO = (("/selectors.py", "select"), ("asyncio/base_events.py", "_run_once"))
_TRIO = ("trio/_core/_io_epoll.py", "get_events")


def do_all_wait(resting: Collection[int], users: Collection[int]) -> bool:
    """Whether no thread of the program can do anything before time passes. The caller and those that rest are known to
    wait; a daemon that is no user is no matter of the program's time."""
    known = {*resting, threading.get_ident()}
    frames = _frames()
    seen: dict[int, FrameType] = {}
    for thread in threading.enumerate():
        if thread.ident in known or thread.name.startswith(SERVERS):
            continue
        if thread.ident is None:  # it was begun a moment ago, and may do anything
            return False
        frame = frames.get(thread.ident)
        if frame is None or (thread.daemon and thread.name != HANDLER and is_watchdog(thread.ident, frame, users)):
            continue
        if not _is_loop(frame) and not waits_for_a_thread(frame):
            return False
        seen[thread.ident] = frame
    if not all(sleeps(frame) for frame in seen.values() if _is_loop(frame)):
        return False
    after = _frames()
    return all(after.get(thread) is frame for thread, frame in seen.items())


def _frames() -> dict[int, FrameType]:
    """Return what each other thread is in the middle of."""
    frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
    frames.pop(threading.get_ident(), None)  # it would hold itself
    return frames


def is_watchdog(thread: int, frame: FrameType, users: Collection[int]) -> bool:
    """Whether what a daemon does is no matter of the program's time, as of a progress bar: it never waited by the
    clock, is no pool's, and not just beginning."""
    stack = [*_stack(frame)]
    is_new = not _is_at(frame, _WAITS) and all(file.endswith(_THREADING) for file, _name in stack)
    return thread not in users and not is_new and not any(_is_a_pools(*place) for place in stack)


def waits_for_a_thread(frame: FrameType) -> bool:
    """Whether a thread can only be woken by another, and was not: it joins, or waits for a lock or future with no
    timeout; or it is a pool's and has nothing to do. One that was given something goes on once it is its turn."""
    file, name, names = frame.f_code.co_filename, frame.f_code.co_name, frame.f_locals
    if _is_at(frame, _WAITS):
        lock = names.get("waiter", names.get("lock"))
        is_woken = names.get("gotit", False) or (lock is not None and not lock.locked())
        return names.get("timeout") in (None, -1) and not is_woken
    if file.endswith(_CREW[0]) and name == _CREW[1]:
        return getattr(names.get("self"), "has_given_all", False) is True
    if not _is_a_pools(file, name):
        return False
    work = names.get("work_queue")
    given = names.get("work_item") if work is not None else getattr(names.get("self"), "_job", None)
    return given is None and (work is None or work.empty())


def sleeps(frame: FrameType) -> bool:
    """Whether a thread is in an event loop whose tasks are all blocked, and nothing is there that would wake it."""
    names = frame.f_locals
    if _is_place(frame, _TRIO):  # with a task that is ready the timeout is 0, and no other thread makes one ready
        return names.get("timeout", 0) > 0 and not _has_something(_trios_events(names.get("self")))
    if not _is_of_asyncio(frame) or frame.f_back is None:
        return False
    loop = frame.f_back.f_locals
    if loop.get("timeout") == 0 or getattr(loop.get("self"), "_ready", True):
        return False
    return not _has_something(_asyncios_events(names.get("self")))


def _asyncios_events(selector: object) -> dict[int, int] | None:
    """Return what a selector waits for, by descriptor; None if that cannot be seen."""
    keys = _copied(getattr(selector, "_fd_to_key", None))
    if keys is None:
        return None
    wanted: dict[int, int] = {fd: getattr(key, "events", 0) for fd, key in keys.items()}
    return {
        fd: (select.POLLIN if events & EVENT_READ else 0) | (select.POLLOUT if events & EVENT_WRITE else 0)
        for fd, events in wanted.items()
    }


def _trios_events(manager: object) -> dict[int, int] | None:
    """Return what tasks wait for, by descriptor: the kernel forgets it as soon as it told the loop."""
    tasks = _copied(getattr(manager, "_registered", None))
    if tasks is None:
        return None
    return {
        fd: (select.POLLIN if getattr(waiting, "read_task", None) is not None else 0)
        | (select.POLLOUT if getattr(waiting, "write_task", None) is not None else 0)
        for fd, waiting in tasks.items()
    }


def _copied(found: object) -> dict[int, object] | None:
    """Return a copy of another thread's dict, made in one step."""
    return dict(cast("dict[int, object]", found)) if isinstance(found, dict) else None


def _has_something(events: Mapping[int, int] | None) -> bool:
    """Whether one of these descriptors is ready, asked anew: what a loop was told but has not acted on counts."""
    if events is None:
        return True
    poll = select.poll()
    for fd, mask in events.items():
        poll.register(fd, mask)
    return bool(poll.poll(0))


def _is_loop(frame: FrameType) -> bool:
    return _is_place(frame, _TRIO) or _is_of_asyncio(frame)


def _is_of_asyncio(frame: FrameType) -> bool:
    below = frame.f_back
    return below is not None and _is_place(frame, _ASYNCIO[0]) and _is_place(below, _ASYNCIO[1])


def _is_place(frame: FrameType, place: tuple[str, str]) -> bool:
    return frame.f_code.co_filename.endswith(place[0]) and frame.f_code.co_name == place[1]


def _is_at(frame: FrameType, names: Sequence[str]) -> bool:
    return frame.f_code.co_filename.endswith(_THREADING) and frame.f_code.co_name in names


def _stack(frame: FrameType | None) -> Iterator[tuple[str, str]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_code.co_name
        frame = frame.f_back


def _is_a_pools(file: str, name: str) -> bool:
    return any(file.endswith(place) and name == function for place, function in _POOLS)
