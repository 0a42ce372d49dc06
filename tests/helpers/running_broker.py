"""A whole broker inside the test's process: in memory, on a virtual clock or the machine's, over socket pairs."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
import trio.testing

from tests.helpers.raw_peer import RawPeer
from tests.helpers.trio_clock import jump_while_idle
from tidelog.broker.app import Broker
from tidelog.broker.clock import Clock, SystemClock
from tidelog.broker.config import Config
from tidelog.broker.storage.files import Files, MemoryFiles
from tidelog.protocol.messages import CreateTopic, TopicReply


class RunningBroker:
    """A broker that serves, and ways to talk to it."""

    def __init__(self, broker: Broker, finished: trio.Event) -> None:
        self.broker = broker
        self.finished = finished
        """Set once it has stopped and closed everything."""
        self.peers: list[RawPeer] = []

    def connect(self) -> RawPeer:
        """Return a connection that has said nothing."""
        ours, theirs = socket.socketpair()
        self.broker.attach(ours)
        self.peers.append(RawPeer(theirs))
        return self.peers[-1]

    async def greeted(self) -> RawPeer:
        """Return a connection that has said Hello."""
        peer = self.connect()
        await peer.greet()
        return peer

    async def topic(self, peer: RawPeer, name: str = "default/t", **given: object) -> int:
        """Make a topic of one partition (unless said) and return its id."""
        reply = (await peer.ask(CreateTopic(name, **{"partitions": 1, **given}))).message  # pyright: ignore
        assert isinstance(reply, TopicReply)
        return reply.topic.id


@asynccontextmanager
async def running_broker(
    sections: dict[str, dict[str, object]] | None = None,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    listen: bool = False,
) -> AsyncIterator[RunningBroker]:
    """Run a broker until the block is left, then stop it cleanly."""
    config = Config.model_validate(sections or {})
    broker = Broker(files or MemoryFiles(), clock or SystemClock(), config)
    finished = trio.Event()

    async def run(task_status: trio.TaskStatus[Broker]) -> None:
        try:
            await broker.run(listen=listen, task_status=task_status)
        finally:
            finished.set()

    async with trio.open_nursery() as nursery:
        if isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock):
            nursery.start_soon(jump_while_idle, broker)
        await nursery.start(run)
        running = RunningBroker(broker, finished)
        yield running
        for peer in running.peers:
            peer.sock.close()
        broker.stop()
        await finished.wait()
        nursery.cancel_scope.cancel()
