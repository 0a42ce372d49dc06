"""A client's sessions: one in each process and event loop that it is used in.

A session belongs to where it was made. In a forked child the client makes another and leaves the parent's alone; in
another event loop it moves, as long as nothing waits in the first. Several threads may come here at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ...protocol.errors import ClosedError
from ..core.url import Target
from ..core.vigil import READER_QUIET_S
from . import runtime
from .link import Acquaintance, Link
from .sender import Sender
from .session import Session


class Sessions:
    """Where a client's calls find their session. Making this does no I/O, and needs no event loop."""

    def __init__(self, target: Target, client_name: str, client_version: str) -> None:
        self._target = target
        self._names = (client_name, client_version)
        self._broker = Acquaintance()
        self.time = runtime.time_of(target.servers[0])
        self._closed: ClosedError | None = None
        self._latest: Sender | None = None
        self._all: dict[runtime.Home, Sender] = {}

    def __reduce__(self) -> tuple[Callable[..., Sessions], tuple[Target, str, str], dict[str, object]]:
        """Pickle what to connect to: in another process a client makes connections of its own."""
        return Sessions, (self._target, *self._names), {"_closed": self._closed}

    @property
    def address(self) -> str:
        """Where the latest session is connected, or what is tried first."""
        return str(self._target.servers[0]) if self._latest is None else self._latest.session.link.address

    def sender(self) -> Sender:
        """Return the sender, and so the session, of this process and event loop. Raises ClosedError, WrongLoopError."""
        latest = self._latest
        if latest is not None and latest.session.home == runtime.home() and self._closed is None:
            return latest
        return self._move()

    def close(self) -> None:
        """Close every connection that is this process's; whoever waits, and every later call, gets ClosedError."""
        self._closed = self._closed or ClosedError("the client is closed")
        for home, sender in [*self._all.items()]:
            if runtime.is_gone(home):
                sender.session.abandon()
            else:
                sender.session.close(self._closed)
        self._all.clear()

    def reader_link(self) -> Callable[[], Link]:
        """Return what makes the link of a reader, which has a connection of its own."""
        if self._closed is not None:
            raise ClosedError(self._closed.message)
        return self._make_link

    def producer_session(self) -> Callable[[], Session]:
        """Return what makes the session of a producer, which has a connection and batches in flight of its own."""
        if self._closed is not None:
            raise ClosedError(self._closed.message)
        return partial(Session, self._target, *self._names, self._broker)

    def _make_link(self) -> Link:
        return Link(self._target.servers, *self._names, runtime.Lock(), READER_QUIET_S, self._broker)

    def _move(self) -> Sender:
        """Begin anew in this process and event loop."""
        if self._closed is not None:
            raise ClosedError(self._closed.message)
        home = runtime.home()
        for made, sender in [*self._all.items()]:
            session = sender.session
            if made != home:
                runtime.may_leave(made, session.is_in_use)
                self._all.pop(made, None)
                if runtime.is_gone(made):
                    session.abandon()
                else:
                    session.retire()
        fresh = Sender(Session(self._target, *self._names, self._broker))
        self._latest = self._all.setdefault(home, fresh)  # of several threads one wins
        return self._latest
