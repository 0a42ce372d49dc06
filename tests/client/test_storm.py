"""Many callers, lost connections, refusals and short timeouts at once: what holds whatever happens."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from tests.client.fake_broker import Fault
from tests.client.flavours import World, everywhere
from tidelog import BrokerClosingError, OverloadedError, TidelogError
from tidelog.protocol.api import Api

FAULTS = (Fault.DROP, Fault.ACT_AND_DROP, Fault.REFUSE, Fault.CUT)


class Told:
    """What the callers were told."""

    def __init__(self) -> None:
        self.stored: list[tuple[int, int, bytes]] = []
        self.not_stored: set[bytes] = set()


def make_trouble(world: World, chance: random.Random) -> None:
    """Script faults at random places."""
    for _ in range(12):
        error = chance.choice([OverloadedError("busy"), BrokerClosingError("stopping")])
        skip, cut = chance.randint(0, 60), chance.randint(0, 40)
        world.broker.when(Api.PRODUCE, chance.choice(FAULTS), skip=skip, cut=cut, error=error)


async def send_one_by_one(client: Any, told: Told, caller: int, timeout: float) -> None:
    """Send messages, each with a short or a long timeout."""
    for at in range(10):
        value = b"%d-%d" % (caller, at)
        try:
            receipt = await client.produce("t", value, timeout=timeout)
        except TidelogError as error:
            if timeout >= 1:
                raise
            if error.details.get("stored") is False:
                told.not_stored.add(value)
        else:
            told.stored.append((receipt.partition, receipt.offset, value))


async def send_many(client: Any, told: Told, caller: int) -> None:
    """Send lists of messages."""
    for at in range(4):
        values = [b"%d-%d/%d" % (caller, at, row) + b"x" * 1000 for row in range(200)]
        receipts = await client.produce_many("t", values, timeout=60)
        told.stored += zip(receipts.partitions.tolist(), receipts.offsets.tolist(), values, strict=True)


@everywhere
async def test_what_holds_in_a_storm(world: World) -> None:
    """Nothing is stored twice, every receipt leads to its message, and what was called not stored is not."""
    for seed in range(3):
        chance, told = random.Random(seed), Told()
        world.broker.store.topics.clear()
        world.broker.store.auto_create_partitions = 1 + 2 * (seed % 2)
        make_trouble(world, chance)
        async with world.client() as client:

            async def cut(client: Any = client) -> None:
                for _ in range(2):
                    await client.ping(timeout=60)
                    await world.elsewhere(world.broker.cut_connections)

            callers = [
                partial(send_one_by_one, client, told, caller, (0.01, 60)[caller % 3 > 0]) for caller in range(9)
            ]
            await world.at_once(cut, *callers, *[partial(send_many, client, told, caller) for caller in (20, 21)])
            stored = [world.broker.store.values("t", at) for at in range(world.broker.store.auto_create_partitions)]
            everything = [value for values in stored for value in values]
            assert len(set(everything)) == len(everything)
            assert all(stored[partition][offset] == value for partition, offset, value in told.stored)
            assert not told.not_stored & set(everything)
            assert sum(rule.fired for rule in world.broker.rules) >= 3 * (seed + 1)
            assert len(told.stored) >= 6 * 10 + 2 * 4 * 200
