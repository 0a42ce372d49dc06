"""The same client against the real broker, in a process of its own that is killed under it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.helpers.broker_process import BrokerProcess, broker_process
from tidelog import OutcomeUnknownError, TidelogError, UnknownTopicError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_produced_is_read(flavour: str, broker: BrokerProcess) -> None:
    """All ways in, all ways out, byte for byte."""
    name = f"round-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=3)
            values = [b"%d" % at + b"x" * (at % 300) for at in range(5000)]
            keys = [None if at % 7 == 0 else b"%d" % (at % 50) for at in range(5000)]
            receipts = await client.produce_many(name, values, keys=keys)
            single = await client.produce(name, None, key=b"", headers=[("a", b"1"), ("a", None)], priority=9)
            async with client.consumer(name, end="latest") as consumer:
                messages = {message.id: message async for message in consumer}
            assert len(messages) == 5001
            assert [messages[receipt.id].value for receipt in receipts] == values
            assert [messages[receipt.id].key for receipt in receipts] == keys
            assert list(messages[single.id].headers.items()) == [("a", b"1"), ("a", None)]
            assert (await client.get(single.id)) == messages[single.id]
            async with client.replay(name, start=messages[single.id].append_time, partition=single.partition) as replay:
                replayed = [message async for message in replay.messages()]
            assert replayed[-1] == messages[single.id]
            described = await client.topics.describe(name)
            assert sum(partition.end_offset for partition in described.partitions) == 5001
            assert (await client.health()).ok
            with pytest.raises(UnknownTopicError, match="did you mean"):
                await client.topics.describe(name + "x")

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_many_callers_over_one_connection(flavour: str, broker: BrokerProcess) -> None:
    """16 callers, each with its own messages: every receipt is the caller's own and offsets are dense."""
    name = f"callers-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)

            async def call(caller: int) -> list[tuple[int, bytes]]:
                return [
                    ((await client.produce(name, b"%d-%d" % (caller, at))).offset, b"%d-%d" % (caller, at))
                    for at in range(20)
                ]

            told = [pair for pairs in await world.at_once(*[partial(call, at) for at in range(16)]) for pair in pairs]
            async with client.consumer(name, end="latest") as consumer:
                stored = [(message.offset, message.value) async for message in consumer]
            assert sorted(told) == stored

    run(flavour, body)


@pytest.mark.parametrize("flavour", ["blocking", "trio"])
def test_a_broker_killed_under_load(flavour: str, tmp_path: Path) -> None:
    """kill -9 while messages are sent: each acknowledged one is there once, at its offset, in order."""

    async def body(world: World) -> None:
        with broker_process(tmp_path) as broker:
            async with world.client(broker.url) as client:
                await client.topics.create("t", partitions=1)
                told: list[tuple[int, int]] = []
                done: list[bool] = []

                async def send() -> None:
                    number = 0
                    while not done:
                        number += 1
                        told.append(((await client.produce("t", b"%d" % number, timeout=60)).offset, number))

                async def kill() -> None:
                    for count in (40, 80) if flavour == "blocking" else (40,):
                        while len(told) < count:
                            await world.elsewhere(lambda: None)
                        await world.elsewhere(broker.restart)
                    done.append(True)

                await world.at_once(send, kill)
                async with client.consumer("t", end="latest") as consumer:
                    stored = [(message.offset, int(message.value)) async for message in consumer]
                assert stored == told
                assert broker.starts > 1

    run(flavour, body)


def test_a_paused_broker_is_a_timeout_and_not_a_loss(tmp_path: Path) -> None:
    """SIGSTOP: the call ends at its timeout with an unknown outcome; after SIGCONT everything goes on."""

    async def body(world: World) -> None:
        with broker_process(tmp_path) as broker:
            async with world.client(broker.url) as client:
                await client.produce("t", b"0", partition=0)
                broker.pause()
                with pytest.raises(OutcomeUnknownError):
                    await client.produce("t", b"perhaps", partition=0, timeout=0.3)
                with pytest.raises(TidelogError):
                    await client.ping(timeout=0.1)
                broker.resume()
                await client.produce("t", b"1", partition=0)
                async with client.consumer("t", end="latest", partition=0) as consumer:
                    assert [message.value async for message in consumer] == [b"0", b"perhaps", b"1"]

    run("blocking", body)
