"""What one connection may take: each limit by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import trio
import trio.testing
from tests.helpers.session_host import LIMITS, MIB, session_host

from tidelog.broker.deferred import Reply
from tidelog.broker.session import FRAMES_PER_TURN
from tidelog.protocol.errors import FrameTooLargeError, ProtocolError, UnsupportedError
from tidelog.protocol.messages import Cancel, CancelReply, Hello, Ping, PingReply, Produce, ProduceReply

pytestmark = pytest.mark.trio
PRODUCE = Produce(1, 0)
DONE = Reply(ProduceReply(1, 3, []))


async def test_max_requests_in_flight() -> None:
    """So many unanswered requests are taken; the next is read when one was answered, and none is lost."""
    async with session_host(replace(LIMITS, max_requests_in_flight=3)) as host:
        host.handler = host.defer
        peer = await host.greeted()
        for _ in range(5):
            await peer.send(PRODUCE)
        await trio.testing.wait_all_tasks_blocked()
        assert len(host.waiting) == 3
        assert host.metrics.session_stalls == 1
        host.waiting[1].resolve(DONE)
        await trio.testing.wait_all_tasks_blocked()
        assert len(host.waiting) == 4
        for deferred in host.waiting:
            if deferred.is_pending:
                deferred.resolve(DONE)
        await trio.testing.wait_all_tasks_blocked()
        host.waiting[4].resolve(DONE)
        assert sorted([(await peer.reply()).correlation_id for _ in range(5)]) == [2, 3, 4, 5, 6]


async def test_replies_that_are_not_read_count_as_in_flight() -> None:
    """A client that asks and never reads is not read either, so that replies do not pile up."""
    async with session_host(replace(LIMITS, max_requests_in_flight=4)) as host:
        taken = 0

        def answer(*_: object) -> Reply:
            nonlocal taken
            taken += 1
            return Reply(PingReply(7), [bytes(100_000)])

        host.handler = answer
        peer = await host.greeted(send_buffer_bytes=8192)
        for _ in range(20):
            await peer.send(Ping())
        await trio.testing.wait_all_tasks_blocked()
        assert taken == 4
        for _ in range(20):
            assert len((await peer.reply()).bulk) == 100_000
        assert taken == 20


async def test_max_connection_bytes_of_replies() -> None:
    """Replies beyond `max_connection_bytes` that the kernel has not taken stop the reading."""
    async with session_host(replace(LIMITS, max_requests_in_flight=1000, max_connection_bytes=MIB)) as host:
        peer = await host.greeted(send_buffer_bytes=8192)
        host.handler = lambda *_: Reply(PingReply(7), [bytes(400_000)])
        for _ in range(10):
            await peer.send(Ping())
        await trio.testing.wait_all_tasks_blocked()
        assert 2 <= host.metrics.values()['tidelog_requests_total{api="ping"}'] <= 4
        for _ in range(10):
            await peer.reply()


async def test_max_connection_bytes_of_requests() -> None:
    """Requests that wait count with what they hold."""
    async with session_host(replace(LIMITS, max_requests_in_flight=1000, max_connection_bytes=MIB)) as host:
        host.handler = host.defer
        peer = await host.greeted()
        async with trio.open_nursery() as nursery:

            async def send() -> None:
                for _ in range(10):
                    await peer.send(PRODUCE, bytes(200_000))

            nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            assert 3 <= len(host.waiting) <= 5
            answered = 0
            while answered < 10:
                host.waiting[answered].resolve(DONE)
                await peer.reply()
                answered += 1
                await trio.testing.wait_all_tasks_blocked()


async def test_max_memory_bytes_makes_connections_wait_their_turn() -> None:
    """When the budget of all is spent one connection finishes its frame, then the next: nothing is lost."""
    async with session_host(memory_bytes=100_000) as host:
        host.handler = lambda *_: DONE
        peers = [await host.greeted() for _ in range(3)]
        frames = [peer.wire.request(PRODUCE, 600_000)[1] + bytes(600_000) for peer in peers]
        for peer, frame in zip(peers, frames, strict=True):
            await peer.send_bytes(frame[:100_000])
        await trio.testing.wait_all_tasks_blocked()
        assert host.memory.waits >= 2
        async with trio.open_nursery() as nursery:
            for peer, frame in zip(peers, frames, strict=True):
                nursery.start_soon(peer.send_bytes, frame[100_000:])
            for peer in peers:
                assert (await peer.reply()).message == DONE.message


async def test_idle_buffers_are_given_back() -> None:
    """A buffer that one large request made grow shrinks once the connection was idle for two sweeps."""
    async with session_host() as host:
        host.handler = lambda *_: DONE
        peer = await host.greeted()
        await peer.ask(PRODUCE, bytes(600_000))
        assert host.memory.used_bytes >= 600_000
        await trio.testing.wait_all_tasks_blocked()
        host.memory.sweep()
        assert host.memory.used_bytes >= 600_000
        host.memory.sweep()
        assert host.memory.used_bytes == 1024
        await peer.ask(PRODUCE, bytes(600_000))


async def test_a_frame_above_max_frame_bytes_is_refused_on_its_first_bytes() -> None:
    """Four bytes are enough: the connection ends before anything is allocated for the claim."""
    async with session_host() as host:
        peer = await host.greeted()
        await peer.send_bytes((MIB + 1).to_bytes(4, "little"))
        with pytest.raises(FrameTooLargeError, match=r"1048576"):
            await peer.reply()
        assert await peer.is_closed()
        assert host.memory.used_bytes <= 1024


async def test_a_hello_must_fit_into_8_kib() -> None:
    """Before Hello a frame is bounded by 8 KiB, whatever `max_frame_bytes` is."""
    async with session_host() as host:
        peer = host.connect()
        await peer.send_bytes((8193).to_bytes(4, "little"))
        with pytest.raises(FrameTooLargeError):
            await peer.reply()


async def test_hello_must_succeed_within_8_kib() -> None:
    """Refused Hellos may not go on for ever."""
    async with session_host() as host:
        host.refuse_hello = True
        peer = host.connect()
        for _ in range(4):
            assert isinstance((await peer.ask(Hello("c", "1"), bytes(2000))).error, UnsupportedError)
        await peer.send(Hello("c", "1"), bytes(2000))
        assert isinstance((await peer.reply()).error, UnsupportedError)
        with pytest.raises(ProtocolError):
            await peer.reply()


async def test_a_flood_of_small_requests_lets_others_run() -> None:
    """After a turn's worth of frames another connection is served, however many more are there."""
    async with session_host() as host:
        order: list[str] = []

        def note(session: object, message: object, _bulk: memoryview) -> Reply:
            order.append("flood" if isinstance(message, Cancel) else "other")
            return Reply(CancelReply(False) if isinstance(message, Cancel) else PingReply(1))

        host.handler = note
        flood, other = await host.greeted(), await host.greeted()
        heads = b"".join(flood.wire.request(Cancel(1))[1] for _ in range(500))
        flood.sock.send(heads)
        other.sock.send(other.wire.request(Ping())[1])
        await other.reply()
        assert order.index("other") <= FRAMES_PER_TURN
