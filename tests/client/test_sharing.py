"""Many callers on one connection: who reads, who waits, and what a caller that leaves leaves behind."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import anyio
import pytest

from tests.client.fake_broker import Fault
from tests.client.flavours import Awaitable_, World, eventually, everywhere, in_loops
from tidelog import TidelogError, TimedOutError
from tidelog.protocol.api import Api
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.messages import Ping, Produce


def on_their_way(client: Any) -> int:
    """Return how many messages of a client are not answered yet."""
    outbox = (client._target if isinstance(client, Awaitable_) else client)._sessions._latest.session.outbox
    return sum(len(parcel.deliveries) for lane in outbox._lanes.values() for parcel in [*lane.unsent, *lane._in_flight])


@everywhere
async def test_many_callers_each_get_their_own_answer(world: World) -> None:
    """64 callers at once, many calls each: every receipt leads to the caller's own message."""
    async with world.client() as client:

        async def call(caller: int) -> list[tuple[bytes, int]]:
            sent: list[tuple[bytes, int]] = []
            for at in range(20):
                value = b"%d-%d" % (caller, at)
                sent.append((value, (await client.produce("t", value)).offset))
            return sent

        answers = await world.at_once(*[partial(call, caller) for caller in range(64)])
    stored = world.broker.store.values("t")
    assert len(stored) == 64 * 20
    assert all(stored[offset] == value for answer in answers for value, offset in answer)
    assert all([offset for _, offset in answer] == sorted(offset for _, offset in answer) for answer in answers)


@everywhere
async def test_callers_share_a_batch_while_two_are_on_their_way(world: World) -> None:
    """While nothing is answered two batches of single calls go out; all later callers become the third together."""
    async with world.client() as client:
        await client.produce("t", b"first")
        rule = world.broker.when(Api.PRODUCE, Fault.HANG, times=2)

        async def call(caller: int) -> None:
            await client.produce("t", b"%d" % caller)

        async def cut() -> None:
            await world.elsewhere(lambda: world.broker.wait_until(lambda: rule.fired == 2))
            await world.elsewhere(lambda: eventually(lambda: on_their_way(client) == 100))
            assert world.broker.count(Produce) == 3
            world.broker.cut_connections()

        await world.at_once(cut, *[partial(call, caller) for caller in range(100)])
    stored = world.broker.store.values("t")
    assert sorted(stored[1:]) == sorted(b"%d" % caller for caller in range(100))
    counts = [BatchHeader.read(batch).record_count for batch in world.broker.store.topic("t").partitions[0].batches]
    assert len(counts) == 4
    assert counts[3] == 100 - sum(counts[1:3])


@everywhere
async def test_at_most_32_batches_are_on_their_way(world: World) -> None:
    """Also of one long list: the broker remembers the last 64, so that a repeat is known."""
    async with world.client() as client:
        await client.ping()
        rule = world.broker.when(Api.PRODUCE, Fault.HANG, times=32)
        values = [b"%06d" % at + b"x" * 20_000 for at in range(600)]

        async def send() -> None:
            assert (await client.produce_many("t", values)).offsets.tolist() == list(range(600))

        async def cut() -> None:
            await world.elsewhere(lambda: world.broker.wait_until(lambda: rule.fired == 32))
            with pytest.raises(TimedOutError):
                await client.stats(timeout=0.05) if world.broker.when(Api.STATS, Fault.HANG) else None
            assert world.broker.count(Produce) == 32
            world.broker.cut_connections()

        await world.at_once(send, cut)
    assert world.broker.store.values("t") == values


@everywhere
async def test_who_gave_up_before_it_was_sent_is_not_sent_later(world: World) -> None:
    """A caller that waits behind two unanswered batches times out with stored=False: nobody sends its message after."""
    async with world.client() as client:
        await client.produce("t", b"first")
        rule = world.broker.when(Api.PRODUCE, Fault.HANG, times=2)

        async def call(value: bytes) -> None:
            await client.produce("t", value)

        async def give_up() -> None:
            await world.elsewhere(lambda: world.broker.wait_until(lambda: rule.fired == 2))
            with pytest.raises(TimedOutError) as caught:
                await client.produce("t", b"never", timeout=0.1)
            assert caught.value.details["stored"] is False
            world.broker.cut_connections()

        await world.at_once(partial(call, b"a"), partial(call, b"b"), give_up)
        await client.produce("t", b"last")
    assert sorted(world.broker.store.values("t")) == [b"a", b"b", b"first", b"last"]


@everywhere
async def test_a_caller_that_gives_up_hands_its_role_on(world: World) -> None:
    """The caller that reads times out while another still waits: that one reads from then on."""
    async with world.client() as client:
        await client.ping()
        rule = world.broker.when(Api.PING, Fault.HANG)

        async def give_up() -> None:
            with pytest.raises(TimedOutError, match=r"within 0\.2 s"):
                await client.ping(timeout=0.2)

        async def stay() -> int:
            await world.elsewhere(lambda: world.broker.wait_until(lambda: rule.fired == 1))
            held = world.broker.when(Api.PRODUCE, Fault.HANG)

            async def answered() -> int:
                return (await client.produce("t", b"x", timeout=20)).offset

            async def release() -> None:
                await world.elsewhere(lambda: world.broker.wait_until(lambda: held.fired == 1))
                with pytest.raises(TimedOutError):
                    await client.stats(timeout=0.3) if world.broker.when(Api.STATS, Fault.HANG) else None
                world.broker.cut_connections()

            return (await world.at_once(answered, release))[0]

        assert (await world.at_once(give_up, stay))[1] == 0


@everywhere
async def test_a_broker_that_stops_reading_does_not_block_both_sides(world: World) -> None:
    """Large requests and large answers at once: while the client waits for room it takes the answers in."""
    async with world.client() as client:
        await client.produce("big", b"x" * 4_000_000)

        async def read() -> int:
            return sum([len((await client.get("big/0@0")).value or b"") for _ in range(4)])

        async def write(caller: int) -> None:
            for _ in range(4):
                await client.produce("t", b"%d" % caller * 1_000_000)

        answers = await world.at_once(*[read] * 4, *[partial(write, caller) for caller in range(4)])
    assert answers[:4] == [16_000_000] * 4
    assert len(world.broker.store.values("t")) == 16


@everywhere
async def test_abandoned_calls_do_not_confuse_later_ones(world: World) -> None:
    """Calls that timed out get their answers late: nobody else gets them."""
    async with world.client() as client:
        await client.produce("t", b"0")
        for _ in range(20):
            world.broker.when(Api.PING, Fault.HANG)
            with pytest.raises(TimedOutError):
                await client.ping(timeout=0)
        for at in range(1, 5):
            assert (await client.produce("t", b"%d" % at)).offset == at
            assert (await client.get(f"t/0@{at}")).value == b"%d" % at
    assert world.broker.accepted == 1


@in_loops
async def test_a_thousand_cancelled_calls(world: World) -> None:
    """Case 30: each message is stored once or not at all, no later call gets a stranger's answer, nothing hangs."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("asyncio").addHandler(handler)
    async with world.client() as client:
        await client.ping()
        acknowledged: list[tuple[int, int]] = []
        for at in range(1000):
            with anyio.move_on_after((at % 20) * 0.0001):
                acknowledged.append((at, (await client.produce("t", b"%d" % at)).offset))
        last = await client.produce("t", b"last")
        stored = world.broker.store.values("t")
        assert stored[last.offset] == b"last"
        assert len(set(stored)) == len(stored)
        assert all(stored[offset] == b"%d" % at for at, offset in acknowledged)
        assert 0 < len(acknowledged) < 1000
        async with client.consumer("t", end="latest") as consumer:
            assert [message.value async for message in consumer] == stored
    assert world.broker.accepted == 2
    logging.getLogger("asyncio").removeHandler(handler)
    assert not logged


@in_loops
async def test_cancelling_one_of_many_disturbs_no_other(world: World) -> None:
    """Tasks that share a connection are cancelled at random points: those that are not get all their answers."""
    async with world.client() as client:
        await client.produce("t", b"first")

        async def cancelled(caller: int) -> None:
            for at in range(50):
                with anyio.move_on_after(((caller + at) % 7) * 0.0002):
                    await client.produce("t", b"c%d-%d" % (caller, at))

        async def steady(caller: int) -> list[int]:
            return [(await client.produce("t", b"s%d-%d" % (caller, at))).offset for at in range(50)]

        tasks: list[Any] = [partial(cancelled, caller) for caller in range(8)]
        tasks += [partial(steady, caller) for caller in range(8)]
        answers = await world.at_once(*tasks)
    stored = world.broker.store.values("t")
    assert len(set(stored)) == len(stored)
    for caller, offsets in enumerate(answers[8:]):
        assert [stored[offset] for offset in offsets] == [b"s%d-%d" % (caller, at) for at in range(50)]


@in_loops
async def test_everything_cancelled_at_once(world: World) -> None:
    """Case 49: after all tasks of the client were cancelled it has lost nothing: it has no task of its own."""
    client = world.client()
    await client.produce("t", b"0")
    rule = world.broker.when(Api.PING, Fault.HANG, times=10)
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(client.ping)
        await anyio.to_thread.run_sync(lambda: world.broker.wait_until(lambda: rule.fired == 10))
        group.cancel_scope.cancel()
    assert (await client.produce("t", b"1")).offset == 1
    await client.close()
    with pytest.raises(TidelogError):
        await client.ping()


@everywhere
async def test_a_call_without_a_limit_waits(world: World) -> None:
    """timeout=None waits for ever and 60 days works; no time at all ends at once."""
    async with world.client(timeout=None) as client:
        await client.ping()
        await client.ping(timeout=60 * 86_400)
        await client.produce("t", b"", timeout=60 * 86_400)
        world.broker.when(Api.PING, Fault.HANG)
        with pytest.raises(TimedOutError):
            await client.ping(timeout=0)
        for wrong in (-1, float("nan"), "1", True):
            with pytest.raises((ValueError, TypeError), match="timeout"):
                await client.ping(timeout=wrong)
        await world.elsewhere(lambda: world.broker.wait_for(Ping, 3))
    assert world.broker.count(Ping) == 3
    assert world.broker.count(Produce) == 1
