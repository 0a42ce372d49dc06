"""Addresses of hosts, looked up in a thread: the system's call has no time limit of its own, and Ctrl-C waits for it.

While a lookup of a host runs, whoever needs the same one joins it: a name server that does not answer costs one thread
for each host, however often it is tried. Nothing is remembered afterwards, as a broker may move.
"""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable

from .process import generation

Address = tuple[int, tuple[str | int, ...]]
"""A family, and an address of it as `connect` takes it."""


class Lookup:
    """One lookup, running or done."""

    def __init__(self, host: str, port: int) -> None:
        self._place = (host, port)
        self._found: list[Address] | OSError | None = None
        self._rings: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        """Whether there is an answer."""
        return self._found is not None

    def addresses(self) -> list[Address]:
        """Return what was found, what to try first in front. Raises OSError; only once it is done."""
        assert self._found is not None
        if isinstance(self._found, OSError):
            raise self._found
        return self._found

    def when_done(self, ring: Callable[[], None]) -> None:
        """Call `ring` once it is done, now or from another thread; perhaps twice."""
        self._rings.append(ring)
        if self.is_done:
            ring()

    def run(self) -> None:
        """Ask the system."""
        try:
            self._found = _ask(*self._place)
        except OSError as error:
            self._found = error
        while self._rings:
            self._rings.pop()()


_running: dict[tuple[int, str, int], Lookup] = {}
"""By process, host and port: after a fork the parent's threads are not there."""


def lookup(host: str, port: int) -> Lookup:
    """Return the lookup of a host: done at once for an address in numbers, else in progress. Raises OSError."""
    key = (generation(), host, port)
    fresh = Lookup(host, port)
    if _is_number(host):
        fresh.run()
        return fresh
    found = _running.setdefault(key, fresh)
    if found is fresh:
        try:
            threading.Thread(target=_run, args=(key, fresh), name=f"lookup {host}", daemon=True).start()
        except BaseException as error:  # Ctrl-C too: nobody must join what never began
            _running.pop(key, None)
            if isinstance(error, RuntimeError):
                raise OSError(errno.EAGAIN, "no thread to look up the name in") from error
            raise
    return found


def _run(key: tuple[int, str, int], running: Lookup) -> None:
    try:
        running.run()
    finally:
        _running.pop(key, None)


def _is_number(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return True
    return False


def _ask(host: str, port: int) -> list[Address]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:
        raise OSError(errno.EINVAL, "not the name of a host") from None
    return [(family, tuple(address)) for family, _, _, _, address in found]
