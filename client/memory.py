"""Brokers inside this process, by the name in their URL: `memory://NAME`.

A broker that runs in the program itself (`tidelog.Broker`, `tidelog.testing.Broker`) enters itself here, and whoever
connects to its name gets one end of a socket pair, of which the broker serves the other. This knows no broker: what is
entered only has to hand out connected sockets, and to say by which clock its clients go.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from ..protocol.errors import CannotConnectError, ClosedError, ForkedError
from .process import generation

if TYPE_CHECKING:
    from .virtual_clock import VirtualClock

SCHEME = "memory"


class Place(Protocol):
    """A broker of this process, as its clients find it."""

    @property
    def clock(self) -> VirtualClock | None:
        """The clock that its clients go by; None is the machine's."""
        ...

    def connect(self) -> socket.socket:
        """Return a connected socket that the broker serves. Raises ConnectionError once it is closed."""
        ...


_places: dict[str, tuple[Place, int]] = {}
"""By name, with the process (counted in forks) that each is in."""

_entered = 0


def enter(place: Place) -> str:
    """Make a broker reachable, and return its name, which no other in this process ever had. Names hold the process id,
    so that whoever takes one to another process learns what is the matter."""
    global _entered
    _entered += 1
    name = f"{os.getpid()}-{_entered}"
    _places[name] = (place, generation())
    return name


def leave(name: str) -> None:
    """Forget a broker that is closed."""
    _places.pop(name, None)


def clock_of(name: str) -> VirtualClock | None:
    """Return the clock of a broker's clients; None, the machine's, also where there is no such broker."""
    found = _places.get(name)
    return None if found is None else found[0].clock


def connect(name: str) -> socket.socket:
    """Return a socket connected to the broker of this name.

    Raises what says what to do: CannotConnectError, ForkedError for the parent's broker in a child, ClosedError once it
    is closed, which is for good.
    """
    place, made = _places.get(name, (None, 0))
    if place is not None and made == generation():
        try:
            return place.connect()
        except ConnectionError:
            raise _closed(name) from None
    url, (process, _, number) = f"{SCHEME}://{name}", name.partition("-")
    if place is not None:
        raise ForkedError(f"{url} is a broker of the parent process; make one in the child, or give it a port: {_PORT}")
    if not (process.isdigit() and number.isdigit()):
        known = ", ".join(f"{SCHEME}://{each}" for each in _places) or "none"
        raise CannotConnectError(
            f"cannot reach {url}: no broker of this name runs in this process (running: {known}); "
            "start one with tidelog.Broker(), or tidelog.testing.Broker() in a test, and take its url",
            address=url,
        )
    if int(process) != os.getpid():
        raise CannotConnectError(
            f"cannot reach {url}: that broker is inside process {process}, this is process {os.getpid()}; {_PORT}",
            address=url,
        )
    raise _closed(name)


def _closed(name: str) -> ClosedError:
    return ClosedError(f"cannot reach {SCHEME}://{name}: the broker is closed; connect inside its `with` block")


_PORT = "with Broker(listen=True) its url is for other processes too"
