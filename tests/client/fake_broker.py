"""A broker for tests: real sockets, the real protocol, and a script of what goes wrong when.

It runs in one thread of the test's process and keeps everything in memory. It stores batches, answers repeats with
their first offset and refuses gaps like a real one; what it does not do (durability, retention) its tests do not
need. `rules` say what happens to the n-th request of an api instead of the ordinary: see `Fault`.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from tests.client.fake_store import FakeStore, Reply
from tidelog.protocol.api import Api
from tidelog.protocol.connection import Request, ServerConnection
from tidelog.protocol.errors import TidelogError, UnsupportedError
from tidelog.protocol.frames import Flags, encode_head
from tidelog.protocol.messages import Cancel, CancelReply, Fetch, Hello, Message, encode

MAX_UNREAD_BYTES = 64 * 1024
"""A connection with more than this waiting to be taken is not read from: the back-pressure of a real broker."""


class Fault(Enum):
    """What to do with a request instead of answering it."""

    DROP = "close the connection, the request not acted on"
    ACT_AND_DROP = "act on it, then close the connection instead of answering"
    ACT_AND_HANG = "act on it, never answer"
    HANG = "neither act nor answer"
    CUT = "act on it, send only the first bytes of the answer, then close"
    REFUSE = "answer with an error"


@dataclass
class Rule:
    """One fault, for requests of one api: after `skip` of them, `times` times."""

    api: Api
    fault: Fault
    error: TidelogError | None = None
    cut: int = 0
    skip: int = 0
    times: int = 1
    fired: int = 0


@dataclass(eq=False)
class Peer:
    """One accepted connection."""

    socket: socket.socket
    protocol: ServerConnection = field(default_factory=ServerConnection)
    outgoing: bytearray = field(default_factory=bytearray)
    waiting: dict[int, tuple[Fetch, float]] = field(default_factory=dict)
    is_closing: bool = False
    is_held: bool = False


class FakeBroker:
    """Serves on a free port of localhost from `start` to `stop`."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.rules: list[Rule] = []
        self.requests: list[Message] = []
        self.accepted = 0
        self.port = 0
        self._peers: dict[socket.socket, Peer] = {}
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._todo: list[Callable[[], object]] = []
        self._arrived = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_running = False

    def __enter__(self) -> FakeBroker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    @property
    def url(self) -> str:
        """What a client takes."""
        return f"tidelog://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Host and port as messages show them."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Serve; after a `stop` on the same port again, with everything stored still there."""
        listener = socket.create_server(("127.0.0.1", self.port))
        listener.setblocking(False)
        self.port = listener.getsockname()[1]
        self._is_running = True
        self._thread = threading.Thread(target=self._run, args=(listener,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close every connection and the port."""
        if self._thread is not None:
            self._is_running = False
            self._wake.send(b"x")
            self._thread.join()
            self._thread = None

    def when(
        self, api: Api, fault: Fault, *, error: TidelogError | None = None, cut: int = 0, skip: int = 0, times: int = 1
    ) -> Rule:
        """Add a rule and return it; `rule.fired` counts how often it applied."""
        rule = Rule(api, fault, error, cut, skip, times)
        self.rules.append(rule)
        return rule

    def count(self, kind: type[Message]) -> int:
        """Return how many requests of this kind came so far."""
        return sum(isinstance(request, kind) for request in self.requests)

    def wait_for(self, kind: type[Message], count: int) -> None:
        """Return once so many requests of this kind came."""
        self.wait_until(lambda: self.count(kind) >= count)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once a condition holds that a request changes."""
        with self._arrived:
            assert self._arrived.wait_for(condition, 10)

    def do(self, action: Callable[[], None]) -> None:
        """Run something in the broker's thread, and wait for it."""
        done = threading.Event()
        self.post(lambda: (action(), done.set()))
        assert done.wait(10)

    def post(self, action: Callable[[], object]) -> None:
        """Have something run in the broker's thread, which serves nobody meanwhile."""
        self._todo.append(action)
        self._wake.send(b"x")

    def cut_connections(self) -> None:
        """Close every connection at once."""
        self.do(lambda: [self._close(peer) for peer in list(self._peers.values())] and None)

    def _run(self, listener: socket.socket) -> None:
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        while self._is_running:
            for key, events in self._selector.select(self._next_due()):
                if key.fileobj is listener:
                    self._accept(listener)
                elif key.fileobj is self._woken:
                    self._woken.recv(1024)
                else:
                    self._serve(self._peers[key.fileobj], events)  # type: ignore[index]
            while self._todo:
                self._todo.pop(0)()
            self._answer_fetches()
        for peer in list(self._peers.values()):
            self._close(peer)
        self._selector.unregister(listener)
        self._selector.unregister(self._woken)
        listener.close()

    def _next_due(self) -> float | None:
        due = [until for peer in self._peers.values() for _, until in peer.waiting.values()]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self, listener: socket.socket) -> None:
        connection, _ = listener.accept()
        connection.setblocking(False)
        self.accepted += 1
        self._peers[connection] = Peer(connection)
        self._selector.register(connection, selectors.EVENT_READ)

    def _serve(self, peer: Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE:
                self._flush(peer)
            if events & selectors.EVENT_READ:
                self._read(peer)
        except (OSError, TidelogError):
            self._close(peer)

    def _read(self, peer: Peer) -> None:
        with peer.protocol.buffer.writable() as room:
            count = peer.socket.recv_into(room)
        if not count:
            self._close(peer)
            return
        peer.protocol.buffer.received(count)
        while not peer.is_closing and (request := peer.protocol.next_request()) is not None:
            self._take(peer, request)
        if peer.socket in self._peers:
            self._flush(peer)

    def _take(self, peer: Peer, request: Request) -> None:
        if request.problem is not None or request.message is None:
            self._send_error(peer, request, request.problem or UnsupportedError("nothing to do"))
            return
        with self._arrived:
            self.requests.append(request.message)
            rule = self._rule_for(request)
            self._arrived.notify_all()
        if rule is not None and rule.fault is Fault.DROP:
            self._close(peer)
        elif rule is not None and rule.fault is Fault.REFUSE:
            self._send_error(peer, request, rule.error or UnsupportedError("scripted"))
        elif rule is None or rule.fault is not Fault.HANG:
            self._act(peer, request, rule)

    def _rule_for(self, request: Request) -> Rule | None:
        for rule in self.rules:
            if rule.api == request.api and rule.times:
                if rule.skip:
                    rule.skip -= 1
                    continue
                rule.times -= 1
                rule.fired += 1
                return rule
        return None

    def _act(self, peer: Peer, request: Request, rule: Rule | None) -> None:
        message = request.message
        assert message is not None
        if isinstance(message, Hello):
            peer.protocol.greeted()
        if isinstance(message, Fetch) and rule is None:
            peer.waiting[request.correlation_id] = (message, time.monotonic() + message.max_wait_us / 1e6)
            return
        if isinstance(message, Cancel):
            self._cancel(peer, request, message)
            return
        try:
            reply = self.store.act(message, request.bulk)
        except TidelogError as error:
            self._send_error(peer, request, error)
            return
        self._send(peer, request.api, request.correlation_id, reply, rule)

    def _cancel(self, peer: Peer, request: Request, message: Cancel) -> None:
        waiting = peer.waiting.pop(message.correlation_id, None)
        if waiting is not None:
            self._send(peer, Api.FETCH, message.correlation_id, self.store.empty_fetch(), None)
        self._send(peer, Api.CANCEL, request.correlation_id, Reply(CancelReply(waiting is not None)), None)

    def _answer_fetches(self) -> None:
        for peer in list(self._peers.values()):
            for correlation_id, (fetch, until) in list(peer.waiting.items()):
                reply = self.store.act(fetch, memoryview(b""))
                if reply.is_worth_it or time.monotonic() >= until:
                    del peer.waiting[correlation_id]
                    self._send(peer, Api.FETCH, correlation_id, reply, None)
                    self._flush(peer)

    def _send(self, peer: Peer, api: int, correlation_id: int, reply: Reply, rule: Rule | None) -> None:
        frame = encode_head(api, Flags.REPLY, correlation_id, encode(reply.message), len(reply.bulk)) + reply.bulk
        fault = None if rule is None else rule.fault
        if fault is Fault.CUT and rule is not None:
            peer.outgoing += frame[: rule.cut]
        elif fault is None:
            peer.outgoing += frame
        if fault in (Fault.CUT, Fault.ACT_AND_DROP):
            peer.is_closing = True

    def _send_error(self, peer: Peer, request: Request, error: TidelogError) -> None:
        peer.outgoing += peer.protocol.error_reply(request.api, request.correlation_id, error)

    def say(self, error: TidelogError) -> None:
        """Send last words over every connection, and close."""

        def last_words() -> None:
            for peer in list(self._peers.values()):
                peer.outgoing += peer.protocol.last_words(error)
                peer.is_closing = True
                self._flush(peer)

        self.do(last_words)

    def _flush(self, peer: Peer) -> None:
        try:
            while peer.outgoing:
                del peer.outgoing[: peer.socket.send(peer.outgoing)]
        except BlockingIOError:
            pass
        except OSError:
            self._close(peer)
            return
        if peer.is_closing and not peer.outgoing:
            self._close(peer)
            return
        events = selectors.EVENT_WRITE if peer.outgoing else 0
        if len(peer.outgoing) <= MAX_UNREAD_BYTES:
            events |= selectors.EVENT_READ
        self._selector.modify(peer.socket, events)

    def _close(self, peer: Peer) -> None:
        peer.is_closing = True
        if self._peers.pop(peer.socket, None) is not None:
            self._selector.unregister(peer.socket)
            peer.socket.close()
