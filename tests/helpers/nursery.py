"""A process that has loaded `tidelog serve` and forks it when asked: most of a broker's start is loading libraries.

A forked broker runs the same `main` with the same arguments, streams, folder and environment as one that is started,
and ends as the interpreter ends. It shares with its siblings what a process draws once: the seed of hashes. What is
about the process itself (its environment before anything is loaded, its limits) starts an interpreter instead.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).parent.parent.parent
MODULES = (
    "importlib.metadata",
    "tidelog.broker.app",
    "tidelog.broker.cli.serve",
    "tidelog.broker.config.values",
    "tidelog.client.cli.run",
    "typer._adapters",
)
"""What serving loads, but for what only some brokers need."""

ORDER_BYTES_MAX = 1 << 17
"""The largest order: an environment is a few kilobytes, and a packet of a Unix socket may be as large as this."""

START_TIMEOUT_S = 30
FIRST_FREE = 3
DESCRIPTORS_MAX = 4096
"""Above every descriptor that a nursery has; those of a forked broker are closed up to it."""


class Forked:
    """A forked broker, as its test sees it: the part of `subprocess.Popen` that a broker needs."""

    def __init__(self, pid: int, args: list[str], stdout: BinaryIO, ending: int) -> None:
        self.pid = pid
        self.args = args
        self.stdout: BinaryIO | None = stdout
        self.returncode: int | None = None
        self._ending = ending

    def __repr__(self) -> str:
        return f"<Forked pid={self.pid} args={self.args} returncode={self.returncode}>"

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait until it has ended; return its exit code, below zero for the signal that ended it."""
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._ending, select.POLLIN)
            if not waiting.poll(timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout)
            code = os.read(self._ending, 16)
            os.close(self._ending)
            assert code, "the nursery ended before its broker"
            self.returncode = int(code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Nursery:
    """The forking process of this test process, and the orders to it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._orders.settimeout(START_TIMEOUT_S)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.helpers.nursery", str(theirs.fileno())],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self.close)

    def close(self) -> None:
        """End the forking process; what it forked goes on. A fork of this process that ends does not end it."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):  # it has ended already
            self._orders.shutdown(socket.SHUT_RDWR)  # closing is not enough where forks of this process hold it too
        self._orders.close()
        self._process.wait()

    def fork(self, arguments: list[str], stderr: int) -> Forked:
        """Run `tidelog` with arguments, in the folder and environment that this process has now."""
        output, its_output = os.pipe()
        ending, its_ending = os.pipe()
        order = json.dumps([arguments, str(Path.cwd()), dict(os.environ)]).encode()
        try:
            assert len(order) <= ORDER_BYTES_MAX, f"an order of {len(order)} bytes"
            socket.send_fds(self._orders, [order], [its_output, stderr, its_ending])
            pid = int(self._orders.recv(16))
        except BaseException:
            os.close(output)
            os.close(ending)
            raise
        finally:
            os.close(its_output)
            os.close(its_ending)
        return Forked(pid, arguments, os.fdopen(output, "rb"), ending)


def nursery() -> Nursery:
    """Return the nursery of this process: a process that was forked from a test's makes its own."""
    if os.getpid() not in _nurseries:
        _nurseries[os.getpid()] = Nursery()
    return _nurseries[os.getpid()]


_nurseries: dict[int, Nursery] = {}


# -- in the forking process --------------------------------------------------------------------------------------------


def _become(order: bytes, descriptors: list[int]) -> list[str]:
    """Be the broker of an order: return its arguments."""
    arguments, folder, environment = json.loads(order)
    null = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate([null, *descriptors[:2]]):
        os.dup2(descriptor, number)
    os.closerange(FIRST_FREE, DESCRIPTORS_MAX)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for module in list(sys.modules.values()):  # Trio's own, of which each process has another
        if isinstance(drawn := getattr(module, "_r", None), random.Random):
            drawn.seed()
    return arguments


def _serve_orders(number: int) -> list[str] | None:
    """Fork a broker for each order and tell how it ended, until nobody orders; in a fork, return its arguments."""
    orders = socket.socket(fileno=number)
    waiting = select.poll()
    waiting.register(number, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}  # by descriptor: the process and where its end is told
    while True:
        for ready, _ in waiting.poll():
            if ready != number:
                waiting.unregister(ready)
                pid, ending = running.pop(ready)
                os.close(ready)
                _, status = os.waitpid(pid, 0)
                with contextlib.suppress(BrokenPipeError):  # nobody waits for it
                    os.write(ending, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(ending)
                continue
            order, descriptors, _, _ = socket.recv_fds(orders, ORDER_BYTES_MAX, FIRST_FREE)
            if not order:
                return None
            pid = os.fork()
            if pid == 0:
                orders.detach()
                return _become(order, descriptors)
            descriptor = os.pidfd_open(pid)
            running[descriptor] = (pid, descriptors[2])
            waiting.register(descriptor, select.POLLIN)
            for each in descriptors[:2]:
                os.close(each)
            orders.send(str(pid).encode())


def _main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which end their brokers
    for module in MODULES:
        importlib.import_module(module)
    from tidelog.__main__ import commands, main

    commands("serve")
    gc.collect()
    gc.freeze()
    arguments = _serve_orders(int(sys.argv[1]))
    if arguments is None:
        return 0
    sys.argv = ["tidelog", *arguments]
    return main()


if __name__ == "__main__":
    sys.exit(_main())
