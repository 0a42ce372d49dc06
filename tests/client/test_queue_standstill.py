"""A program that stands still while it has messages of a queue in hand, or whose broker does."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import Stage, done, offsets, queue_broker, staged  # noqa: F401
from tests.client.test_queue_process import worker
from tests.client.test_silence import impatient
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.proxy import Proxy
from tidelog import Client, LeaseLostError, TidelogError
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process


def _is_late(message: Any) -> bool:
    return bool(message.lease_expires_at <= datetime.now(UTC))


@staged
async def test_a_loop_passes_over_what_expired_in_hand(stage: Stage) -> None:
    """After a handler that took longer than the lease nothing of its list is handed out: it comes again, as attempt 1,
    under a lease that runs; what was in hand counts."""
    async with stage.client() as client:
        await stage.fill(client, 20)
        late: list[int] = []
        attempts: dict[int, int] = {}
        async with stage.queue(client, max_in_flight=20, visibility_timeout=1, auto_extend=False) as queue:
            async for message in queue.messages(idle_timeout=5):
                late += [message.offset] if _is_late(message) else []
                time.sleep(1.2 if message.offset == 5 and message.attempt == 1 else 0.002)
                attempts[message.offset] = message.attempt
                await done(message.ack())
                if len(attempts) == 20 and attempts[5] == 2:
                    queue.stop()
            found = queue.statistics()
        assert late == []
        assert attempts == {at: 2 if at == 5 else 1 for at in range(20)}
        assert found.expired == 14


@staged
async def test_receive_and_batches_pass_over_it_too(stage: Stage) -> None:
    """What was left in hand of a list goes to nobody once its lease is over."""
    async with stage.client() as client:
        await stage.fill(client, 20)
        options = {"max_in_flight": 20, "visibility_timeout": 1, "auto_extend": False}
        async with stage.queue(client, **options) as queue:
            (first,) = await queue.receive(1)
            await done(first.ack(wait=True))
            time.sleep(1.2)
            received = await queue.receive(5)
            assert received
            assert not any(map(_is_late, received))
            assert queue.statistics().expired == 19
            time.sleep(1.2)
            batch = await anext(aiter(queue.batches()))
            assert len(batch)
            assert not any(map(_is_late, batch))


STOPPED = """
import contextlib, sys, time, tidelog
from datetime import datetime, timezone
late, seen, told = [], set(), False
with tidelog.Client(sys.argv[1]) as client:
    with client.queue(sys.argv[2], sys.argv[3], max_in_flight=1000, visibility_timeout=1) as queue:
        for message in queue.messages(idle_timeout=3):
            begun = time.monotonic()
            if message.lease_expires_at <= datetime.now(timezone.utc):
                late.append(message.offset)
            while time.monotonic() < begun + 0.0005:
                pass
            seen.add(message.offset)
            message.ack()
            if len(seen) == 300 and not told:
                told = True
                print("busy", flush=True)
        with contextlib.suppress(tidelog.LeaseLostError):  # acknowledged just before the stop, and not sent yet
            queue.flush()
        print(len(late), queue.statistics().acknowledged)
"""


def test_a_worker_that_was_stopped_passes_over_its_list(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """SIGSTOP in the middle of a list for longer than its lease: not more than a millisecond's work of it is done after
    SIGCONT, and everything is acknowledged once."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * 2000)
        with worker(STOPPED, queue_broker.url, stage.topic, stage.group) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "busy\n"
            process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            process.send_signal(signal.SIGCONT)
            late, acknowledged = process.stdout.readline().split()
        assert int(late) <= 3
        assert int(acknowledged) == 2000


@staged
async def test_a_loss_is_raised_once(stage: Stage) -> None:
    """What `ack(wait=True)` raised for a message, or a batch for some of its own, no flush and no leaving raises again;
    what nobody was told of the next flush raises, and the one after it does not."""
    async with stage.client() as client, stage.client() as other:
        await stage.fill(client, 8)
        async with stage.queue(client, max_in_flight=8) as queue:
            batch = await anext(aiter(queue.batches()))
            held = list(batch)
            assert offsets(held) == [*range(8)]
            for at in (0, 3, 6, 7):
                await other.settle(held[at].lease_token, "reject")
            with pytest.raises(LeaseLostError):
                await done(held[0].ack(wait=True))
            with pytest.raises(LeaseLostError):  # contradicts what was said before
                await done(held[0].nack(wait=True))
            with pytest.raises(LeaseLostError):
                await done(batch[1:6].ack(wait=True))
            await queue.flush()
            assert (queue.statistics().acknowledged, queue.statistics().lost) == (4, 3)
            await done(held[6].ack())
            with pytest.raises(LeaseLostError, match="found 1 messages"):
                await queue.flush()
            await queue.flush()
            with pytest.raises(LeaseLostError):
                await done(held[7].ack(wait=True))
        assert queue.statistics().lost == 5


async def _all_of(stage: Stage, proxy: Proxy, vanish: Callable[[Proxy], object]) -> None:
    """Take and acknowledge ten messages, five at a time, over a connection that goes silent in the middle."""
    async with stage.client() as direct, World(stage.world.flavour, None).client(proxy.url) as client:  # type: ignore[arg-type]
        await stage.fill(direct, 10)
        begun = time.monotonic()
        async with stage.queue(client, max_in_flight=5) as queue:
            held = [message async for message in queue.messages(limit=3)]
            await done(held[0].ack(wait=True))
            vanish(proxy)
            await done(held[1].ack())
            seen = [(message.offset, message.attempt) for message in held]
            async for message in queue.messages(limit=7):
                seen.append((message.offset, message.attempt))
                await done(message.ack())
            await done(held[2].ack(wait=True))
            await queue.flush()
            found = queue.statistics()
        assert time.monotonic() - begun < 10
        assert sorted(seen) == [(at, 1) for at in range(10)]
        assert (found.acknowledged, found.lost, found.expired) == (10, 0, 0)
        assert proxy.connections == 2  # the queue's own one, made again once
        states = ["available", "leased", "waiting", "suspect"]
        assert [each async for each in direct.groups.messages(stage.group, states=states)] == []


SILENCES: dict[str, Callable[[Proxy], object]] = {
    "everything": lambda proxy: proxy.black_hole(),
    "an acquire": lambda proxy: proxy.vanish(Api.ACQUIRE, replies=False),
    "leases": lambda proxy: proxy.vanish(Api.ACQUIRE, replies=True),
    "a settle": lambda proxy: proxy.vanish(Api.SETTLE, replies=False),
    "its answer": lambda proxy: proxy.vanish(Api.SETTLE, replies=True),
}


@pytest.mark.parametrize("silence", SILENCES)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_connection_that_goes_silent(flavour: str, silence: str, queue_broker: BrokerProcess) -> None:  # noqa: F811
    """A half-open connection is found in twice the time that silence is borne (5 s outside of tests): what is held
    stays held, what was leased to nobody comes at once and uncounted, nothing twice."""

    async def body(world: World) -> None:
        await _all_of(Stage(world, queue_broker), proxy, SILENCES[silence])

    with Proxy(*queue_broker.address) as proxy, impatient():
        run(flavour, body)


@pytest.mark.parametrize("has_connected", [True, False])
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_stop_ends_a_wait_for_a_broker_that_is_away(flavour: str, has_connected: bool, tmp_path: Path) -> None:
    """A thread or a signal handler stops a loop that waits for nothing but a connection: it ends at once, and what cannot
    be told any more is said by the end of the block."""

    async def body(world: World) -> None:
        stage = Stage(world, broker)
        async with stage.client(timeout=1) as client:
            await stage.fill(client, 3)
            with pytest.raises(TidelogError) if has_connected else nullcontext():
                async with stage.queue(client, max_in_flight=3) as queue:
                    held = [message async for message in queue.messages(limit=3)] if has_connected else []
                    broker.kill()
                    for message in held:
                        await done(message.ack())
                    timer = threading.Timer(0.5, queue.stop)
                    timer.start()
                    begun = time.monotonic()
                    assert [message async for message in queue] == []
                    took_s = time.monotonic() - begun
                    timer.join()
            assert 0.4 < took_s < 3

    with BrokerProcess(tmp_path / "data") as broker:
        run(flavour, body)
