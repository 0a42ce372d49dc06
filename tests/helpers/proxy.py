"""A TCP proxy between a client and a broker that cuts, holds or swallows chosen frames, or vanishes with them.

    with Proxy("127.0.0.1", port) as proxy:
        rule = proxy.cut(Api.PRODUCE, replies=True)        # the broker stores; the answer never arrives
        client = Client(proxy.url)
        ...
        assert rule.fired == 1

A rule waits for whole frames of one api in one direction; the first rule that matches takes the frame.
Everything runs in threads of its own that end with `close`.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from types import TracebackType

from tidelog.protocol.api import Api

_HEAD = struct.Struct("<IHBB")
_PIECE_BYTES = 1 << 16


class Action(Enum):
    """What becomes of the frame that a rule takes."""

    CUT = auto()  # it is dropped, and the connection is reset on both sides
    HOLD = auto()  # it waits, with all that follows, until the rule is released
    SWALLOW = auto()  # it is dropped with all that follows, and the connection stays open: half-open to the sender
    VANISH = auto()  # the same in both directions, and no side hears of the other's end: a black hole


@dataclass
class Rule:
    """What to do to some frames, and how often it was done."""

    action: Action
    api: Api | None
    replies: bool
    after: int = 0
    times: int | None = 1
    seen: int = 0
    fired: int = 0
    happened: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Let go what is held, now and later."""
        self.released.set()

    def wait_fired(self, timeout: float = 10.0) -> None:
        """Wait until it fired once; fails the test when it does not."""
        assert self.happened.wait(timeout), f"{self} did not fire within {timeout} s"

    def takes(self, api: int, replies: bool) -> bool:
        """Say whether this frame is taken, and count."""
        if replies is not self.replies or (self.api is not None and api != self.api):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.times is not None and self.fired >= self.times):
            return False
        self.fired += 1
        return True


@dataclass(eq=False)
class _Pair:
    """The two sockets of one connection; once it vanished, nothing passes between them any more."""

    client: socket.socket
    broker: socket.socket
    has_vanished: bool = False


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes frames on to one target."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.connections = 0
        self._rules: list[Rule] = []
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._pairs: list[_Pair] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._closing = False
        self._start(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where a client connects to."""
        return f"tidelog://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self, api: Api | None = None, *, replies: bool, after: int = 0, times: int | None = 1) -> Rule:
        """Drop matching frames and reset their connections."""
        return self._add(Rule(Action.CUT, api, replies, after, times))

    def hold(self, api: Api | None = None, *, replies: bool, after: int = 0, times: int | None = 1) -> Rule:
        """Delay matching frames until the rule is released."""
        return self._add(Rule(Action.HOLD, api, replies, after, times))

    def swallow(self, api: Api | None = None, *, replies: bool, after: int = 0, times: int | None = 1) -> Rule:
        """Drop matching frames and all behind them, leaving the connection open."""
        return self._add(Rule(Action.SWALLOW, api, replies, after, times))

    def vanish(self, api: Api | None = None, *, replies: bool, after: int = 0, times: int | None = 1) -> Rule:
        """From a matching frame on, it included, lose all that either side of its connection sends, closes too."""
        return self._add(Rule(Action.VANISH, api, replies, after, times))

    def black_hole(self) -> None:
        """Lose all that is sent over every connection there is; new ones work."""
        with self._lock:
            for pair in self._pairs:
                pair.has_vanished = True

    def heal(self) -> None:
        """End all rules and let go what they hold."""
        with self._lock:
            for rule in self._rules:
                rule.release()
            self._rules.clear()

    def cut_all(self) -> int:
        """Reset every open connection; return how many sockets that were."""
        with self._lock:
            sockets = list(self._open)
        for one in sockets:
            _reset(one)
        return len(sockets)

    def close(self) -> None:
        """Stop listening, reset what is open, and wait for the threads."""
        self._closing = True
        self.heal()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), f"{thread} did not end"

    def _add(self, rule: Rule) -> Rule:
        with self._lock:
            self._rules.append(rule)
        return rule

    def _start(self, run: object, *arguments: object) -> None:
        assert callable(run)
        thread = threading.Thread(target=run, args=arguments, name="proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _address = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self.target, timeout=10)
            except OSError:
                _reset(client)
                client.close()
                continue
            broker.settimeout(None)
            with self._lock:
                self.connections += 1
                self._open |= {client, broker}
                pair = _Pair(client, broker)
                self._pairs.append(pair)
            if self._closing:
                self.cut_all()
            self._start(self._pump, pair, False)
            self._start(self._pump, pair, True)

    def _pump(self, pair: _Pair, replies: bool) -> None:
        source, sink = (pair.broker, pair.client) if replies else (pair.client, pair.broker)
        with contextlib.suppress(OSError):
            for api, frame in _frames(source):
                if pair.has_vanished:
                    continue
                rule = self._rule_for(api, replies)
                if rule is not None and rule.action is Action.VANISH:
                    rule.happened.set()
                    pair.has_vanished = True
                    continue
                if rule is not None and not self._apply(rule, source):
                    return self._end(source, sink)
                sink.sendall(frame)
            if not pair.has_vanished:
                sink.shutdown(socket.SHUT_WR)
            return self._end(source)
        return self._end(source) if pair.has_vanished else self._end(source, sink)

    def _rule_for(self, api: int, replies: bool) -> Rule | None:
        with self._lock:
            return next((rule for rule in self._rules if rule.takes(api, replies)), None)

    def _apply(self, rule: Rule, source: socket.socket) -> bool:
        """Do what the rule says; return whether the frame goes on afterwards."""
        rule.happened.set()
        if rule.action is Action.HOLD:
            return rule.released.wait()
        if rule.action is Action.SWALLOW:
            while source.recv(_PIECE_BYTES):
                pass
        return False

    def _end(self, *sockets: socket.socket) -> None:
        for one in sockets:
            _reset(one)
        with self._lock:
            self._open -= set(sockets)


def _reset(one: socket.socket) -> None:
    """End a connection at once: the peer gets a reset, and a thread that waits on it wakes."""
    with contextlib.suppress(OSError):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.shutdown(socket.SHUT_RDWR)


def _frames(source: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Whole frames as they arrive; bytes that are no frame end the iteration with an OSError."""
    buffer = bytearray()
    while True:
        while len(buffer) >= _HEAD.size:
            length, api, _version, _flags = _HEAD.unpack_from(buffer)
            if len(buffer) < length + 4:
                break
            yield api, bytes(buffer[: length + 4])
            del buffer[: length + 4]
        piece = source.recv(_PIECE_BYTES)
        if not piece:
            return
        buffer += piece
