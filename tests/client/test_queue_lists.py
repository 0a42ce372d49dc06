"""Lists of messages: as long as was asked for, of what there is."""

from __future__ import annotations

import pytest

from tests.client.queues import Stage, queue_broker, staged  # noqa: F401

pytestmark = pytest.mark.process


@staged
async def test_a_list_is_as_long_as_was_asked_for(stage: Stage) -> None:
    """`receive(12)` of 20 gets 12 from the first call on: of one batch, of many, of partitions nobody has read yet."""
    async with stage.client() as client:
        topic, group = stage.topic, stage.group
        for partitions, at_once in ((1, 20), (1, 1), (3, 1)):
            stage.topic, stage.group = f"{topic}-{partitions}-{at_once}", f"{group}-{partitions}-{at_once}"
            await stage.fill(client, 0, partitions)
            for at in range(0, 20, at_once):
                await client.produce_many(stage.topic, [b"x"] * at_once, partition=at % partitions)
            async with stage.queue(client) as queue:
                assert len(await queue.receive(12, timeout=10)) == 12
                rest = await queue.receive(12, timeout=10)
                while len(rest) < 8:  # a partition that is read for the first time is opened meanwhile
                    assert partitions > 1
                    rest += await queue.receive(12, timeout=10)
                assert len(rest) == 8


@staged
async def test_lists_stay_as_long_while_there_are_enough(stage: Stage) -> None:
    """Of 120 in turn, whatever is fetched ahead meanwhile; nobody who asks for one gets more ahead than that."""
    async with stage.client() as client:
        await stage.fill(client, 120)
        async with stage.queue(client) as queue:
            sizes = []
            while sum(sizes) < 120:
                sizes.append(len(await queue.receive(12, timeout=10)))
            assert sizes[0] == 12
            assert len(sizes) <= 12
        stage.group += "-2"
        async with stage.queue(client) as queue:
            await queue.receive(timeout=10)
            assert (queue.statistics().received, queue.statistics().buffered) == (1, 0)
