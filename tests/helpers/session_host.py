"""A session over a socket pair, with a handler of the test's own in place of the broker."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio

from tests.helpers.raw_peer import RawPeer
from tidelog.broker.clock import VirtualClock
from tidelog.broker.deferred import Deferred, Reply
from tidelog.broker.metrics import Metrics
from tidelog.broker.session import Answer, Session, SessionLimits, Surroundings
from tidelog.broker.session_memory import MemoryBudget
from tidelog.broker.timers import Timers
from tidelog.protocol.errors import UnsupportedError
from tidelog.protocol.messages import BrokerLimits, FetchReply, Hello, HelloReply, Message, Ping, PingReply

MIB = 1 << 20
LIMITS = SessionLimits(
    max_frame_bytes=MIB,
    max_requests_in_flight=8,
    max_connection_bytes=4 * MIB,
    hello_timeout_us=10_000_000,
    idle_timeout_us=60_000_000,
)
Handler = Callable[[Session, Message, memoryview], Answer]


def answer_ping(_session: Session, _message: Message, _bulk: memoryview) -> Answer:
    """Answer any request as a ping."""
    return Reply(PingReply(7))


class SessionHost:
    """What a session needs around it; `handler` answers everything but Hello."""

    def __init__(self, nursery: trio.Nursery, limits: SessionLimits = LIMITS, memory_bytes: int = 64 * MIB) -> None:
        self.handler: Handler = answer_ping
        self.refuse_hello = False
        self.clock = VirtualClock()
        self.timers = Timers()
        self.metrics = Metrics()
        self.memory = MemoryBudget(memory_bytes)
        self.sessions: list[Session] = []
        self.turns = 0
        self.waiting: list[Deferred[Reply]] = []
        self._nursery = nursery
        self.around = Surroundings(
            handle=self._handle,
            end_turn=self._end_turn,
            empty_reply=lambda _api: Reply(FetchReply(9, [])),
            limits=limits,
            memory=self.memory,
            metrics=self.metrics,
            timers=self.timers,
            monotonic_us=self.clock.monotonic_us,
            nursery=nursery,
            warming=trio.CapacityLimiter(1),
        )

    def connect(self, *, send_buffer_bytes: int | None = None) -> RawPeer:
        """Start a session and return its other end."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        if send_buffer_bytes is not None:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        session = Session(ours, "test", self.around)
        self.sessions.append(session)
        self._nursery.start_soon(session.run)
        return RawPeer(theirs)

    async def greeted(self, *, send_buffer_bytes: int | None = None) -> RawPeer:
        """Start a session that has said Hello."""
        peer = self.connect(send_buffer_bytes=send_buffer_bytes)
        await peer.greet()
        return peer

    def pass_time(self, duration_us: int) -> None:
        """Let virtual time pass, and call what is due."""
        self.clock.advance(duration_us)
        for action in self.timers.expired(self.clock.monotonic_us()):
            action()

    def defer(self, _session: Session, message: Message, _bulk: memoryview) -> Answer:
        """Be a handler whose answers the test gives later, in `waiting`; pings are answered at once."""
        if isinstance(message, Ping):
            return Reply(PingReply(7))
        self.waiting.append(Deferred())
        return self.waiting[-1]

    def _handle(self, session: Session, message: Message, bulk: memoryview) -> Answer:
        if isinstance(message, Hello) and self.refuse_hello:
            raise UnsupportedError("no")
        if isinstance(message, Hello):
            session.greet(message.client_name)
            return Reply(HelloReply("1", "node", 0, BrokerLimits(MIB, MIB, MIB, MIB, 8, 1, 1)))
        return self.handler(session, message, bulk)

    def _end_turn(self) -> None:
        self.turns += 1


@asynccontextmanager
async def session_host(limits: SessionLimits = LIMITS, memory_bytes: int = 64 * MIB) -> AsyncIterator[SessionHost]:
    """Run sessions until the block is left; leaving cancels what still runs."""
    async with trio.open_nursery() as nursery:
        yield SessionHost(nursery, limits, memory_bytes)
        nursery.cancel_scope.cancel()
