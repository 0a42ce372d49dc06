"""Messages with a retry policy of their own, sent in every way and read back from a real broker."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.stored_data import segments_of
from tidelog import Backoff, Client, DeliveryError, Retry
from tidelog.protocol.columns import RETRY
from tidelog.spark.places import Place, Range
from tidelog.spark.segments import SealedSegments

pytestmark = pytest.mark.process

LINEAR = Retry(5, Backoff("linear", initial=timedelta(milliseconds=250), max=30, jitter=0))
NONE = (0, 0, 0, 0, 0, 0)
THREE = (3, 0, 0, 0, 0, 0)
STORED = (5, 2, 255, 2_000, 250, 30_000)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


async def stored(client: Any, topic: str) -> dict[bytes | None, tuple[int, ...]]:
    """Return the policy stored with each value of a topic."""
    found: dict[bytes | None, tuple[int, ...]] = {}
    async with client.consumer(topic, end="latest") as consumer:
        async for batch in consumer.batches():
            retries = batch._records.routing.retries
            policies = [NONE] * len(batch) if retries is None else retries.tolist()
            found.update(zip(batch.values, policies, strict=True))
    return found


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_way_to_send_stores_the_policy(flavour: str, broker: BrokerProcess) -> None:
    """Single calls, lists (one for all, or of each), a producer's messages and columns: with and without one, together
    with keys, headers and priorities."""
    name = f"every-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)
            await client.produce(name, b"one", retry=LINEAR, key=b"k")
            await client.produce(name, b"none")
            await client.produce_many(name, [b"all-0", b"all-1"], retry=Retry(3))
            await client.produce_many(name, [b"each-0", b"each-1", b"each-2"], retry=[LINEAR, None, Retry(3)])
            async with client.producer() as producer:
                await producer.send(name, b"plain")
                await producer.send(name, b"sent", retry=LINEAR, tag=1)
                await producer.send(name, b"keyed", key=b"k")
                await producer.send(name, b"urgent", retry=Retry(3), priority=9)
                await producer.send_many(name, [b"c-0", b"c-1"], retry=[None, LINEAR], headers=[[("h", b"x")], None])
            assert await stored(client, name) == {
                **dict.fromkeys([b"none", b"each-1", b"plain", b"keyed", b"c-0"], NONE),
                **dict.fromkeys([b"all-0", b"all-1", b"each-2", b"urgent"], THREE),
                **dict.fromkeys([b"one", b"each-0", b"sent", b"c-1"], STORED),
            }

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_policies_stay_with_their_rows(flavour: str, broker: BrokerProcess) -> None:
    """Over several batches, partitions and priorities, compressed, and where duplicates are left out."""
    name = f"rows-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=3)
            count = 5_000
            values = [b"%d" % at + b"x" * 200 for at in range(count)]
            retries = [Retry(at % 999 + 1) if at % 3 else None for at in range(count)]
            options = {
                "keys": [b"%d" % (at % 7) for at in range(count)],
                "priority": [at % 2 + 4 for at in range(count)],
                "retry": retries,
                "dedup_ids": [b"%d" % (at // 2) for at in range(count)],
            }
            async with client.producer(compression="zstd") as producer:
                await producer.send_many(name, values, **options)
            found = await stored(client, name)
            expected = {value: (at % 999 + 1 if at % 3 else 0, 0, 0, 0, 0, 0) for at, value in enumerate(values)}
            assert len(found) >= count // 2
            assert {value: expected[value or b""] for value in found} == found

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_failed_is_told_with_its_policy(flavour: str, broker: BrokerProcess) -> None:
    """A message that was not delivered can be sent again as it was, be it one by one or of columns."""
    name = f"failed-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create(name, partitions=1)
            producer = client.producer(delivery_timeout=0.5)
            await producer.send(name, b"first")
            await producer.flush()
            broker.process.send_signal(signal.SIGSTOP)
            try:
                await producer.send(name, b"sent", retry=LINEAR)
                await producer.send_many(name, [b"c-0", b"c-1"], retry=[None, Retry(3)])
                with pytest.raises(DeliveryError) as failure:
                    await producer.close(timeout=5)
            finally:
                broker.process.send_signal(signal.SIGCONT)
            assert {failed.record.value: failed.record.retry for failed in failure.value.failed} == {
                b"sent": LINEAR,
                b"c-0": None,
                b"c-1": Retry(3),
            }

    run(flavour, body)


def test_arrow_columns_go_out_and_come_back_beside_policies(broker: BrokerProcess) -> None:
    """Values and keys from an Arrow table with a policy for each row; read as a table, nothing of it is missing."""
    sent = pa.table({"key": [b"k", None, b""], "value": [b"1", b"", None]})
    with Client(broker.url) as client:
        client.topics.create("arrow", partitions=1)
        client.produce_many("arrow", sent["value"], keys=sent["key"], retry=[LINEAR, None, Retry(3)])
        table = pa.table(client.replay("arrow", start="earliest", end="latest"))  # pyright: ignore
        (batch,) = client.replay("arrow", start="earliest", end="latest")
    assert table.select(["key", "value"]).to_pydict() == sent.to_pydict()
    assert batch._records.routing.retries.tolist() == [STORED, NONE, THREE]  # pyright: ignore


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_is_no_policy_is_refused(flavour: str, broker: BrokerProcess) -> None:
    """Another type, another number of rows: an error that names argument and row, and nothing is stored."""
    name = f"refused-{flavour}"

    async def body(world: World) -> None:
        async with world.client(broker.url) as client, client.producer() as producer:
            await client.topics.create(name, partitions=1)
            for call, value in ((client.produce, b"x"), (client.produce_many, [b"x"]), (producer.send, b"x")):
                with pytest.raises(TypeError, match=r"^retry: expected .*, found .*"):
                    await call(name, value, retry=3)
            with pytest.raises(TypeError, match=r"^retry\[1\]: expected a tidelog.Retry, found int$"):
                await client.produce_many(name, [b"x", b"y"], retry=[None, 3])
            with pytest.raises(ValueError, match=r"^retry: expected 2 entries, one for each value, found 1$"):
                await client.produce_many(name, [b"x", b"y"], retry=[Retry(3)])
            await producer.flush()
            assert (await client.topics.describe(name)).partitions[0].end_offset == 0

    run(flavour, body)


def test_sealed_segments_with_policies_are_read_past_the_broker(tmp_path: Path) -> None:
    """Spark's reader takes such batches from the files: the values, and the policies too."""
    keys = ("SEGMENT_BYTES", "MAX_BATCH_BYTES", "MAX_BATCH_PAYLOAD")
    environment = {f"TIDELOG_LOG__{key}": size for key, size in zip(keys, ("1MiB", "512KiB", "512KiB"), strict=True)}
    environment["TIDELOG_TOPICS__MAX_MESSAGE_BYTES"] = "256KiB"
    with broker_process(tmp_path, environment=environment) as running, Client(running.url) as client:
        client.topics.create("t", partitions=1)
        for at in range(30):
            client.produce_many("t", [b"%d" % at + b"v" * 100_000], retry=Retry(at + 1))
        files = segments_of(tmp_path / "data")
        sealed = int(files[-1].stem)
        assert sealed > 10
        parts = [*SealedSegments(str(tmp_path / "data"), Range(Place("t", 0), 0, sealed, 1, 1)).parts()]
    attempts = [part.records.routing.retries["max_attempts"].tolist() for part in parts]  # pyright: ignore
    assert attempts == [[at + 1] for at in range(sealed)]
    assert RETRY.itemsize == 16


def test_a_batch_tells_the_policies_of_its_messages(broker: BrokerProcess) -> None:
    """Each as it was given, in slices and steps too; none at all where nobody gave one."""
    with Client(broker.url) as client:
        client.topics.create("told", partitions=1)
        client.produce_many("told", [b"0", b"1", b"2", b"3"], retry=[LINEAR, None, Retry(3), None])
        client.produce_many("told", [b"4", b"5"])
        with client.consumer("told", end="latest") as consumer:
            first, second = consumer.batches()
        assert [*first.retries] == [LINEAR, None, Retry(3), None]
        assert [*first[1:3].retries] == [None, Retry(3)]
        assert [*first[::2].retries] == [LINEAR, Retry(3)]
        assert [*second.retries] == [*second[:].retries] == [None, None]
        assert [*second[2:].retries] == []
