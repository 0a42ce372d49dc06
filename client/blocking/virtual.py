"""Waiting in threads by a virtual clock; `client.virtual_clock` says when time passes."""

from __future__ import annotations

import _thread
import math
import select
import socket
import threading
from contextlib import suppress
from functools import partial

from ..virtual_clock import INTERNAL, VirtualClock, Wait
from .runtime import Bell, Poller, Time


def time_on(clock: VirtualClock) -> Time:
    """Return the time of clients that go by this clock."""
    return Time(clock.now, clock.wall_us, partial(_Bell, clock), partial(_Poller, clock), _never)


def _never(_seconds: float) -> float:
    return math.inf


def _wait_of(clock: VirtualClock, until: float) -> Wait:
    is_internal = threading.current_thread().name.startswith(INTERNAL)
    return Wait(until, clock.now(), _nothing, _do_nothing, is_internal=is_internal, is_of_a_task=False)


def _nothing() -> bool:
    return False


def _do_nothing() -> None:
    pass


class _Bell(Bell):
    __slots__ = ("_clock", "_gates", "_is_rung")

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self._is_rung = False
        self._gates: tuple[_thread.LockType, ...] = ()

    def set(self) -> None:
        """Ring."""
        self._is_rung = True
        for gate in self._gates:
            _open(gate)

    def wait(self, until: float) -> bool:
        """Return whether it rang before that moment of the clock. Raises WouldBlockForever."""
        gate = _thread.allocate_lock()
        gate.acquire()
        self._gates = (*self._gates, gate)

        def sleep(seconds: float) -> bool:
            if not self._is_rung:
                gate.acquire(timeout=seconds)
            return self._is_rung

        wait = _wait_of(self._clock, until)
        wait.is_ready = lambda: self._is_rung
        wait.wake = lambda: _open(gate)
        return self._clock.wait(wait, sleep)


def _open(gate: _thread.LockType) -> None:
    with suppress(RuntimeError):  # open before
        gate.release()


class _Poller(Poller):
    __slots__ = ("_clock",)

    def __init__(self, clock: VirtualClock, sock: socket.socket) -> None:
        super().__init__(sock)
        self._clock = clock

    def wait(self, *, write: bool, until: float) -> bool:
        """Return True once the socket is readable, or writable if asked, or `wake` was called; False at `until`."""
        wait = _wait_of(self._clock, until)
        wait.is_ready = partial(self._is_ready, write)
        wait.wake = self.wake
        return self._clock.wait(wait, partial(self._sleep, write))

    def _is_ready(self, write: bool) -> bool:
        poll = select.poll()  # of its own: another thread's would be in use
        poll.register(self._socket_fd, select.POLLIN | select.POLLOUT if write else select.POLLIN)
        poll.register(self._wake_fd, select.POLLIN)
        return bool(poll.poll(0))

    def _sleep(self, write: bool, seconds: float) -> bool:
        return self.wait_for(write=write, seconds=seconds)
