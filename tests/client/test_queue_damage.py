"""A bit that turned on the disk under a running queue: found by the consumer, passed over, and told."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import done
from tests.helpers.broker_process import broker_process
from tests.helpers.command_line import CommandLine
from tests.helpers.stored_data import flip
from tidelog import Client

pytestmark = pytest.mark.process


BATCHES = [[b"%040d" % at for at in range(first, first + 100)] for first in (0, 100, 200)]


def damage(folder: Path) -> None:
    """Turn a bit of the second of three batches of a hundred."""
    (segment,) = (folder / "data").rglob("messages/*.log")
    flip(segment, segment.read_bytes().rindex(b"%040d" % 100) + 20)


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("how", "in_flight"), [("messages", 1_000), ("messages", 5), ("run", 5)])
def test_what_is_damaged_on_the_disk_is_passed_over(
    flavour: str, how: str, in_flight: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer warns and goes on at once with the batches before and behind; the group counts what it never got.
    Where few messages are leased at a time the broker cuts them out, and so finds it itself."""
    with broker_process(tmp_path) as broker:

        async def body(world: World) -> None:
            async with world.client(broker.url) as client:
                await client.topics.create("orders", partitions=1)
                for values in BATCHES:
                    await client.produce_many("orders", values)
                damage(tmp_path)
                await client.groups.create("g", "orders", start="earliest", max_in_flight=in_flight)
                seen: list[int] = []
                async with client.queue("orders", "g") as queue:

                    def handle(message: Any) -> None:
                        seen.append(message.offset)
                        if len(seen) == 200:
                            queue.stop()

                    if how == "run":
                        await queue.run(handle)
                    else:
                        async for message in queue.messages(limit=200, idle_timeout=5):
                            seen.append(message.offset)
                            await done(message.ack())
                assert seen == [*range(100), *range(200, 300)]
                (part,) = (await client.groups.describe("g")).topics[0].partitions
                assert (part.floor, part.leased) == (300, 0)

        with caplog.at_level(logging.WARNING, "tidelog"):
            run(flavour, body)
    assert [record.getMessage() for record in caplog.records if "passed over what is damaged" in record.message]


def test_what_is_left_leased_is_verified_too(tmp_path: Path) -> None:
    """`consume --settle none` prints the batches before and behind, says what it passed over, and leaves nothing of the
    damaged one leased; the messages count as attempted once, when they were printed."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1)
        for values in BATCHES:
            client.produce_many("orders", values)
        damage(tmp_path)
        tidelog = CommandLine(broker.url, tmp_path)
        options = ("--group", "g", "--mode", "queue", "--settle", "none", "--limit", "200", "--output", "json")
        run = tidelog.run("consume", "orders", *options)
        lines = [json.loads(line) for line in run.lines]
        assert sorted(line["offset"] for line in lines) == [*range(100), *range(200, 300)]
        assert {line["attempt"] for line in lines} == {1}
        assert b"passed over what is damaged" in run.err
        for line in lines:
            client.settle(line["lease_token"], "ack")
        (part,) = client.groups.describe("g").topics[0].partitions
        assert (part.floor, part.leased, part.available) == (300, 0, 0)


def test_what_is_damaged_in_a_part_of_a_batch_that_is_left_leased_is_passed_over(tmp_path: Path) -> None:
    """`consume --settle none` of a hundred messages and five goes on behind what the broker found."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1)
        for values in BATCHES:
            client.produce_many("orders", values)
        damage(tmp_path)
        tidelog = CommandLine(broker.url, tmp_path)
        options = ("--group", "g", "--mode", "queue", "--settle", "none", "--limit", "105", "--output", "json")
        run = tidelog.run("consume", "orders", *options)
        assert [json.loads(line)["offset"] for line in run.lines] == [*range(100), *range(200, 205)]
        assert b"g: passed over what is damaged" in run.err
