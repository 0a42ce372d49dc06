"""Producing many messages at once."""

from __future__ import annotations

import numpy as np
import pytest

from tests.client.flavours import World, everywhere
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.messages import Produce


@everywhere
async def test_receipts_are_in_the_order_of_the_values(world: World) -> None:
    """Each receipt is where its value is, over several partitions, by index, slice and column."""
    world.broker.store.auto_create_partitions = 4
    values = [b"%d" % at for at in range(1000)]
    async with world.client() as client:
        receipts = await client.produce_many("t", values, keys=[b"%d" % (at % 13) for at in range(1000)])
    assert len(receipts) == 1000
    stored = [world.broker.store.values("t", partition) for partition in range(4)]
    assert [stored[receipt.partition][receipt.offset] for receipt in receipts] == values
    assert receipts.offsets.dtype == np.int64
    assert receipts[-1].id == f"t/{receipts.partitions[999]}@{receipts.offsets[999]}"
    assert [receipt.offset for receipt in receipts[10:12]] == receipts.offsets[10:12].tolist()
    assert receipts.timestamps.dtype == np.dtype("datetime64[us]")


@everywhere
async def test_batches_are_cut_near_256_kib(world: World) -> None:
    """A long list becomes batches that fit the cache; a short one a single batch."""
    async with world.client() as client:
        await client.produce_many("t", [b"x" * 100] * 10_000)
        assert world.broker.count(Produce) == 5
        await client.produce_many("u", [b"x" * 100] * 1_000)
        assert world.broker.count(Produce) == 6
    sizes = [BatchHeader.read(batch).batch_length for batch in world.broker.store.topic("t").partitions[0].batches]
    assert max(sizes) < 270 * 1024
    assert len(world.broker.store.values("t")) == 10_000


@everywhere
async def test_sizes_that_change_do_not_make_huge_batches(world: World) -> None:
    """After many small values a run of large ones is cut again; one value above the target goes alone."""
    values = [b"s"] * 5_000 + [b"l" * 50_000] * 20 + [b"h" * 1_000_000] + [b"s"] * 5_000
    async with world.client() as client:
        await client.produce_many("t", values)
    assert world.broker.store.values("t") == values
    sizes = [BatchHeader.read(batch).batch_length for batch in world.broker.store.topic("t").partitions[0].batches]
    assert sorted(sizes)[-1] < 1_001_000
    assert sorted(sizes)[-2] < 2 * 256 * 1024 + 60_000


@everywhere
async def test_each_row_may_have_its_partition_and_priority(world: World) -> None:
    """Rows are grouped by both and keep their order inside a group."""
    world.broker.store.auto_create_partitions = 2
    values = [b"%d" % at for at in range(8)]
    async with world.client() as client:
        receipts = await client.produce_many("t", values, partition=[0, 1] * 4, priority=[4, 4, 9, 9] * 2)
        messages = [await client.get(receipt.id) for receipt in receipts]
    assert [message.value for message in messages] == values
    assert [message.priority for message in messages] == [4, 4, 9, 9] * 2
    assert receipts.partitions.tolist() == [0, 1] * 4
    assert world.broker.store.values("t", 0) == [b"0", b"4", b"2", b"6"]


@everywhere
async def test_columns_of_other_lengths_are_refused(world: World) -> None:
    """Every column has one entry for each value; the error names the one that does not."""
    async with world.client() as client:
        for column in ({"keys": [b""]}, {"headers": [{}]}, {"timestamps": []}, {"priority": [4]}, {"partition": [0]}):
            with pytest.raises(ValueError, match=f"{next(iter(column))}: expected 2 entries"):
                await client.produce_many("t", [b"", b""], **column)
        for wrong in ("text", b"bytes"):
            with pytest.raises(TypeError, match="expected a list of messages"):
                await client.produce_many("t", wrong)


@everywhere
async def test_nothing_is_produced_from_nothing(world: World) -> None:
    """An empty list has no receipts, and a generator is a list too."""
    async with world.client() as client:
        assert len(await client.produce_many("t", [])) == 0
        world.broker.store.create("default/w", 1, {"durability": "written"})
        assert (await client.produce_many("w", [])).durability == "written"
        assert (await client.produce_many("w", [], durability="synced")).durability == "synced"
        assert len(await client.produce_many("t", (b"%d" % at for at in range(3)))) == 3
    assert world.broker.store.values("t") == [b"0", b"1", b"2"]


@everywhere
async def test_times_may_come_as_an_array(world: World) -> None:
    """datetime64 of any unit is taken as UTC and stored in microseconds; NaT is refused."""
    async with world.client() as client:
        times = np.array(["2025-01-14T15:00:00.000001", "1969-12-31T23:59:59"], dtype="datetime64[us]")
        await client.produce_many("t", [b"", b""], timestamps=times)
        await client.produce_many("t", [b""], timestamps=np.array(["2025-01-14"], dtype="datetime64[D]"))
        with pytest.raises(ValueError, match="NaT"):
            await client.produce_many("t", [b""], timestamps=np.array(["NaT"], dtype="datetime64[us]"))
        for unit, wrong in (("s", "9999999999-01-02"), ("us", "10000-01-01"), ("D", "0000-12-31"), ("Y", "-5")):
            column = np.array(["2025-01-14", wrong], dtype=f"datetime64[{unit}]")
            with pytest.raises(ValueError, match=r"timestamps\[1\]: expected a time in the years 1 to 9999, found"):
                await client.produce_many("t", [b"", b""], timestamps=column)
        async with client.replay("t") as replay:
            batches = [batch async for batch in replay]
    assert batches[0].timestamps.tolist() == times.tolist()
    assert batches[1].timestamps_us.tolist() == [1_736_812_800_000_000]


@everywhere
async def test_without_keys_batches_take_turns(world: World) -> None:
    """A long list without keys is spread over the partitions batch by batch."""
    world.broker.store.auto_create_partitions = 3
    async with world.client() as client:
        receipts = await client.produce_many("t", [b"x" * 1000] * 1200)
    assert {int(partition) for partition in receipts.partitions} == {0, 1, 2}
    assert sum(len(world.broker.store.values("t", partition)) for partition in range(3)) == 1200
