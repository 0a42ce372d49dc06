"""Slices of a queue's batches: each message is the one that its offset says, and settling one settles no other."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401

pytestmark = pytest.mark.process


async def next_batch(queue: Any) -> Any:
    """Return the next batch of a queue."""
    async for batch in queue.batches(idle_timeout=10):
        return batch
    raise AssertionError("expected a batch, found none")


def shown(batch: Any) -> list[tuple[int, bytes]]:
    """Return offset and value of each message."""
    return [(message.offset, message.value) for message in batch]


async def unsettled(client: Any, stage: Stage) -> list[int]:
    """Return the offsets that the group has not settled."""
    return [int(each.id.rpartition("@")[2]) async for each in client.groups.messages(stage.group)]


@staged
async def test_every_second_message_of_a_batch_is_settled(stage: Stage) -> None:
    """Of 0 to 7, `batch[::2]` is 0, 2, 4, 6 with their own values; acknowledged, 1, 3, 5, 7 are left. Backwards too."""
    async with stage.client() as client:
        await stage.fill(client, 8)
        async with stage.queue(client, max_in_flight=8) as queue:
            batch = await next_batch(queue)
            assert shown(batch[::2]) == [(0, b"0"), (2, b"2"), (4, b"4"), (6, b"6")]
            assert shown(batch[6:2:-1]) == [(6, b"6"), (5, b"5"), (4, b"4"), (3, b"3")]
            assert shown(batch[::-1][::3]) == [(7, b"7"), (4, b"4"), (1, b"1")]
            assert (batch[-1].offset, batch[::-1][0].offset, batch[2:][1:3][-1].offset) == (7, 7, 4)
            for message in batch[::2]:
                await done(message.ack(wait=True))
            assert await unsettled(client, stage) == [1, 3, 5, 7]
            await done(batch[::-1][:2].ack(wait=True))
            assert await unsettled(client, stage) == [1, 3, 5]
            await done(batch[5:0:-4].ack(wait=True))
            assert await unsettled(client, stage) == [3]


@staged
async def test_slices_of_a_batch_with_gaps(stage: Stage) -> None:
    """Of what is left of a batch, 0, 1, 3, 4 and 6, slices hold what they say, the tail of it and none of it too."""
    async with stage.client() as client:
        await stage.fill(client, 7)
        async with stage.queue(client, max_in_flight=7) as queue:
            batch = await next_batch(queue)
            await done(batch[2].ack())
            await done(batch[5].ack(wait=True))
        async with stage.queue(client, max_in_flight=7) as queue:
            batch = await next_batch(queue)
            assert batch.offsets.tolist() == [0, 1, 3, 4, 6]
            assert shown(batch[1:4]) == [(1, b"1"), (3, b"3"), (4, b"4")]
            assert shown(batch[::-2]) == [(6, b"6"), (3, b"3"), (0, b"0")]
            assert (shown(batch[5:]), shown(batch[2:2]), shown(batch[3:][2:])) == ([], [], [])
            await done(batch[1::2].ack(wait=True))
            assert await unsettled(client, stage) == [0, 3, 6]


@staged
async def test_an_empty_slice_settles_nothing(stage: Stage) -> None:
    """Whatever is said of no messages does nothing, waits for nothing, and raises nothing."""
    async with stage.client() as client:
        await stage.fill(client, 3)
        async with stage.queue(client, max_in_flight=3) as queue:
            batch = await next_batch(queue)
            for empty in (batch[:0], batch[3:], batch[::-1][3:]):
                assert (len(empty), shown(empty), empty.offsets.tolist()) == (0, [], [])
                for wait in (False, True):
                    await done(empty.ack(wait=wait))
                    await done(empty.nack("why", wait=wait))
                    await done(empty.reject("why", wait=wait))
                    await done(empty.extend(60, wait=wait))
            await queue.flush()
            assert (queue.statistics().acknowledged, queue.statistics().renewals) == (0, 0)
            assert await unsettled(client, stage) == [0, 1, 2]


@staged
async def test_what_is_begun_message_by_message_goes_on_by_batches(stage: Stage) -> None:
    """Of batches of 2, 2 and 3, which come as one list, three messages are taken one by one: the batches then are what
    is left of the second, and the third. Keys, headers, offsets and values are each message's own; all is settled."""
    async with stage.client() as client:
        await stage.fill(client, 0)
        rows = [
            (b"%d" % at, None if at % 2 else b"k%d" % at, {"at": b"%d" % at} if at == 4 else None) for at in range(7)
        ]
        for some in (rows[:2], rows[2:4], rows[4:]):
            await done(
                client.produce_many(
                    stage.topic,
                    [value for value, _, _ in some],
                    keys=[key for _, key, _ in some],
                    headers=[headers for _, _, headers in some],
                )
            )
        async with stage.queue(client, max_in_flight=7) as queue:
            received = await queue.receive(3, timeout=10)
            assert [(each.offset, each.value, each.key) for each in received] == [
                (0, b"0", b"k0"),
                (1, b"1", None),
                (2, b"2", b"k2"),
            ]
            second = await next_batch(queue)
            assert shown(second) == [(3, b"3")]
            (fifth,) = await queue.receive(1, timeout=10)
            assert (fifth.offset, fifth.key, fifth.headers["at"]) == (4, b"k4", b"4")
            third = await next_batch(queue)
            assert shown(third) == [(5, b"5"), (6, b"6")]
            for each in (*received, second, fifth, third):
                await done(each.ack())
            await queue.flush()
            assert await unsettled(client, stage) == []
