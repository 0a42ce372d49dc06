"""Brokers inside this process, by the name in their URL: `memory://NAME`.

A broker that runs in the program itself (`tidelog.Broker`, `tidelog.testing.Broker`) enters itself here, and whoever
connects to its name gets one end of a socket pair, of which the broker serves the other. This knows no broker: what is
entered only has to hand out connected sockets, and to say by which clock its clients go.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

from ..protocol.errors import CannotConnectError
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
    """Return a socket connected to the broker of this name. Raises CannotConnectError that says what to do."""
    place, made = _places.get(name, (None, 0))
    if place is None or made != generation():
        raise CannotConnectError(_why_not(name), address=f"{SCHEME}://{name}")
    try:
        return place.connect()
    except ConnectionError:
        raise CannotConnectError(
            f"cannot reach {SCHEME}://{name}: the broker is closed; connect inside its `with` block",
            address=f"{SCHEME}://{name}",
        ) from None


def _why_not(name: str) -> str:
    process = name.partition("-")[0]
    if process.isdigit() and int(process) != os.getpid():
        return (
            f"cannot reach {SCHEME}://{name}: that broker is inside process {process}, this is process {os.getpid()}; "
            "give it a port with Broker(listen=True), and other processes its url"
        )
    known = ", ".join(f"{SCHEME}://{each}" for each in _places) or "none"
    return (
        f"cannot reach {SCHEME}://{name}: no broker of this name runs in this process (running: {known}); "
        "start one with tidelog.Broker(), or tidelog.testing.Broker() in a test, and take its url"
    )
