"""Consumers of a group as others see them: there while they are, gone when they leave."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401
from tests.helpers.broker_process import BrokerProcess, broker_process

pytestmark = pytest.mark.process


async def members(client: Any, stage: Stage) -> list[tuple[str, int]]:
    """Return the consumers of the group, and how many messages each holds."""
    found = (await client.groups.describe(stage.group)).members
    return sorted((one.client.split()[0], one.leased) for one in found)


@staged
async def test_who_left_is_no_consumer_any_more(stage: Stage) -> None:
    """However the block is left: normally, by an exception, by SystemExit, and after stop(); nothing is left leased."""
    async with stage.client(client_name="a") as client:
        await stage.fill(client, 10)
        for error in (None, ValueError("broke"), KeyboardInterrupt(), SystemExit(1)):
            with contextlib.suppress(ValueError, SystemExit, KeyboardInterrupt):
                async with stage.queue(client, max_in_flight=3) as queue:
                    await queue.receive(timeout=10)
                    assert await members(client, stage) == [("a", 3)]
                    if error is not None:
                        raise error
            assert await members(client, stage) == []
            (part,) = (await client.groups.describe(stage.group)).topics[0].partitions
            assert part.leased == 0


@staged
async def test_another_queue_of_the_same_client_stays(stage: Stage) -> None:
    """What it holds, and what it waits for, is its own."""
    async with stage.client(client_name="a") as client:
        await stage.fill(client, 4)
        async with stage.queue(client, max_in_flight=2) as stays:
            held = await stays.receive(2, timeout=10)
            async with stage.queue(client, max_in_flight=2) as leaves:
                await leaves.receive(2, timeout=10)
                assert await members(client, stage) == [("a", 2), ("a", 2)]
            assert await members(client, stage) == [("a", 2)]
            for message in held:
                await done(message.ack(wait=True))
            assert [message.offset for message in await stays.receive(2, timeout=10)] == [2, 3]
        assert await members(client, stage) == []


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("fault", ["stopped", "killed"])
def test_a_broker_that_is_away_is_not_waited_for(flavour: str, fault: str, tmp_path: Path) -> None:
    """A queue that holds nothing is left at once although nobody can be told, also where the broker only stands still;
    one that stood still hears of it when it goes on."""

    async def body(world: World) -> None:
        stage = Stage(world, broker)
        async with stage.client(client_name="a") as client:
            await stage.fill(client, 1)
            async with stage.queue(client, max_in_flight=1) as queue:
                (message,) = await queue.receive(timeout=10)
                await done(message.ack(wait=True))
                assert await members(client, stage) == [("a", 0)]
                if fault == "killed":
                    broker.kill()
                else:
                    broker.pause()
                begun = time.monotonic()
            assert time.monotonic() - begun < 1
            if fault == "stopped":
                broker.resume()
                for _ in range(1_000):  # it reads its connections in any order
                    if not await members(client, stage):
                        break
                assert await members(client, stage) == []

    with broker_process(tmp_path) as broker:
        try:
            run(flavour, body)
        finally:
            if fault == "stopped":
                broker.resume()


DIES = """
import os, sys, tidelog
with tidelog.Client(sys.argv[1], client_name="dies") as client:
    with client.queue(sys.argv[2], sys.argv[3], max_in_flight=1) as queue:
        queue.receive()
        os._exit(0)
"""


def test_who_dies_is_listed_until_it_was_silent_for_long(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """A worker that ends without a word is a consumer still, with what it held: it may come back."""

    async def body(world: World) -> None:
        stage = Stage(world, queue_broker)
        async with stage.client() as client:
            await stage.fill(client, 1)
            subprocess.run([sys.executable, "-c", DIES, queue_broker.url, stage.topic, stage.group], check=True)
            assert await members(client, stage) == [("dies", 1)]

    run("blocking", body)
