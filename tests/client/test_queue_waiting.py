"""While somebody waits for messages: leases that end make room, what was said goes out, and what was lost is told."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

import tidelog
from tests.client.flavours import FLAVOURS, run
from tests.client.queues import Stage, done, offsets, queue_broker, staged  # noqa: F401
from tidelog import Backoff, Client, LeaseLostError
from tidelog.broker.queues.queues import Queues
from tidelog.protocol.errors import DiskFullError

pytestmark = pytest.mark.process

SOON = Backoff("constant", initial=0.1, jitter=0)


@staged
async def test_a_lease_that_ended_makes_room(stage: Stage) -> None:
    """With room for one message, one that is left alone comes again a second later, and counts as tried; nothing is in
    hand once its lease is over."""
    async with stage.client() as client:
        await stage.fill(client, 1)
        async with stage.queue(client, visibility_timeout=1, auto_extend=False, max_in_flight=1, backoff=SOON) as queue:
            (first,) = await queue.receive(timeout=10)
            (again,) = await queue.receive(timeout=10)
            assert (first.attempt, again.attempt, again.offset, queue.statistics().in_hand) == (1, 2, 0, 1)
            await _pass(client, 1.2)
            assert (queue.statistics().in_hand, queue.statistics().received) == (0, 2)


@staged
async def test_what_is_held_too_long_makes_room(stage: Stage) -> None:
    """Past `max_lease` two messages that the program dropped are over, and the places that they had are free again."""
    async with stage.client() as client:
        await stage.fill(client, 4)
        options = {"visibility_timeout": 1, "max_lease": 0.5, "max_in_flight": 2, "backoff": SOON}
        async with stage.queue(client, **options) as queue:
            assert offsets(await queue.receive(2, timeout=10)) == [0, 1]
            seen: set[int] = set()
            until = time.monotonic() + 20
            while len(seen) < 4 and time.monotonic() < until:
                for message in await queue.receive(2, timeout=10):
                    seen.add(message.offset)
                    await done(message.ack())
            assert seen == {0, 1, 2, 3}


@staged
async def test_a_hand_over_is_told_while_the_queue_waits(stage: Stage) -> None:
    """A message that was handed out before the wait for the next one has had its attempt when its lease ends."""
    async with stage.client() as client:
        await stage.fill(client, 1)
        async with stage.queue(client, visibility_timeout=1, auto_extend=False, max_in_flight=9, backoff=SOON) as queue:
            (first,) = await queue.receive(timeout=10)
            (again,) = await queue.receive(timeout=10)
            assert (first.attempt, again.attempt) == (1, 2)


@staged
async def test_a_lost_lease_is_told_while_the_queue_waits(stage: Stage) -> None:
    """`on_lease_lost` hears of an acknowledgement that came too late at once, not when the wait is over."""
    told: list[float] = []
    async with stage.client() as client:
        await stage.fill(client, 1)
        options: dict[str, Any] = {"visibility_timeout": 1, "auto_extend": False, "backoff": SOON}
        async with stage.queue(client, on_lease_lost=lambda _lost: told.append(time.monotonic()), **options) as queue:
            (message,) = await queue.receive(timeout=10)
            await _pass(client, 1.3)
            with Client(stage.broker.url) as other, other.queue(stage.topic, stage.group) as second:
                second.receive(timeout=10)[0].ack(wait=True)
            timer = threading.Timer(0.3, message.ack)
            timer.start()
            began = time.monotonic()
            assert await queue.receive(timeout=4) == []
            timer.join()
        assert len(told) == 1
        assert told[0] - began < 3


@staged
async def test_what_is_said_when_nothing_is_asked_for_is_told(stage: Stage) -> None:
    """Acknowledgements of a program that goes on with something else reach the broker at once, the second as the first:
    they waited for the answer to the first one, which nobody took in before the lease was half over, or ended."""
    async with stage.client() as client:
        await stage.fill(client, 5)
        async with stage.queue(client, visibility_timeout=60, auto_extend=False, max_in_flight=5) as queue:
            batch = await queue.receive(5, timeout=10)
            assert not await queue.receive(5, timeout=0.1)
            for message in batch[:3]:
                await done(message.ack())
            await _pass(client, 0.3)  # whatever looks after the queue has gone to sleep
            for message in batch[3:]:
                await done(message.ack())
            until = time.monotonic() + 5
            while (await client.groups.describe(stage.group)).topics[0].backlog:
                assert time.monotonic() < until, queue.statistics()
                await _pass(client, 0.05)


@staged
async def test_saying_once_more_what_was_lost_raises(stage: Stage) -> None:
    """Waiting for an acknowledgement whose first time changed nothing raises each time, alone and with a batch; `flush`
    then has nothing more to tell."""
    async with stage.client() as client:
        await stage.fill(client, 2)
        async with stage.queue(client, visibility_timeout=1, auto_extend=False, max_in_flight=2) as queue:
            (batch,) = [each async for each in queue.batches(idle_timeout=0.3)]
            await _pass(client, 1.3)
            for message in batch:
                await done(message.ack())
            until = time.monotonic() + 5
            while queue.statistics().lost < 2:
                assert time.monotonic() < until, queue.statistics()
                await _pass(client, 0.05)
            for again in (batch[0], batch[0], batch):
                with pytest.raises(LeaseLostError):
                    await done(again.ack(wait=True))
            await queue.flush()
            assert queue.statistics().lost == 2
            assert [each.attempts async for each in client.groups.messages(stage.group)] == [1, 1]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_the_broker_could_not_take_is_said_again_while_the_queue_waits(
    flavour: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A settle that is refused once for want of room goes out again within the second, not at the end of the wait."""
    taken: list[float] = []
    settle = Queues.settle

    def refusing(self: Queues, request: Any, *rest: Any) -> Any:
        if request.items:
            taken.append(time.monotonic())
            if len(taken) == 1:
                raise DiskFullError("expected room, found none")
        return settle(self, request, *rest)

    monkeypatch.setattr(Queues, "settle", refusing)
    with tidelog.Broker(topics={"partitions": 1}) as broker:

        async def body(world: Any) -> None:
            async with world.client(broker.url) as client:
                await client.produce("t", b"0")
                async with client.queue("t", "g") as queue:
                    (message,) = await queue.receive(timeout=10)
                    timer = threading.Timer(0.3, message.ack)
                    timer.start()
                    assert await queue.receive(timeout=4) == []
                    timer.join()
                    assert queue.statistics().acknowledged == 1

        run(flavour, body)
    assert len(taken) == 2
    assert taken[1] - taken[0] < 2


async def _pass(client: Any, seconds: float) -> None:
    """Let time pass without asking the queue."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await client.ping()
        time.sleep(0.01)
