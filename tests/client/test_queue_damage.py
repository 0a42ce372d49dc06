"""A bit that turned on the disk under a running queue: found by the consumer, passed over, and told."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import done
from tests.helpers.broker_process import broker_process
from tests.helpers.stored_data import flip
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES

pytestmark = pytest.mark.process


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_damaged_on_the_disk_is_passed_over(
    flavour: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The consumer warns and goes on with the batches before and behind; the group counts what it never got."""
    with broker_process(tmp_path) as broker:

        async def body(world: World) -> None:
            async with world.client(broker.url) as client:
                await client.topics.create("orders", partitions=1)
                for first in (0, 100, 200):
                    await client.produce_many("orders", [b"%040d" % at for at in range(first, first + 100)])
                (segment,) = (tmp_path / "data").rglob("messages/*.log")
                size = segment.read_bytes().rindex(b"%040d" % 100) - SEGMENT_HEADER_BYTES
                flip(segment, SEGMENT_HEADER_BYTES + size + 20)
                seen: list[int] = []
                async with client.queue("orders", "g") as queue:
                    async for message in queue.messages(limit=200):
                        seen.append(message.offset)
                        await done(message.ack())
                assert seen == [*range(100), *range(200, 300)]
                (part,) = (await client.groups.describe("g")).topics[0].partitions
                assert (part.floor, part.leased) == (300, 0)

        with caplog.at_level(logging.WARNING, "tidelog"):
            run(flavour, body)
    assert [record.getMessage() for record in caplog.records if "passed over what is damaged" in record.message]
