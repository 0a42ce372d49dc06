"""A replay as frames of data: Arrow, pandas, polars and DuckDB."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from tests.client.fake_broker import FakeBroker, Fault
from tests.client.flavours import BASE, World, eventually, everywhere, in_loops, store
from tests.helpers.broker_process import broker_process
from tidelog import Client, ClosedError, RangeNotAvailableError, UnknownTopicError
from tidelog.client.arrow import schema
from tidelog.codecs import Json
from tidelog.protocol.api import Api

duckdb, pl = pytest.importorskip("duckdb"), pytest.importorskip("polars")

ROWS = [
    {
        "key": b"k",
        "value": b"first",
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": BASE,
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        "priority": 4,
    },
    {
        "key": None,
        "value": None,
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "timestamp": BASE,
        "headers": [],
        "priority": 9,
    },
]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    """A scripted broker for the blocking client, which alone can be pulled by others."""
    with FakeBroker() as running:
        yield running


@everywhere
async def test_a_range_as_a_frame(world: World) -> None:
    """to_arrow, to_pandas and to_polars have every message as a row, with the types that their users expect."""
    world.broker.store.create("default/t", 1)
    async with world.client() as client:
        await client.produce("t", b"first", key=b"k", headers=[("a", b"1"), ("a", None)], timestamp=BASE)
        await client.produce("t", None, priority=9, timestamp=BASE)
        async with client.replay("t") as replay:
            assert (await replay.to_arrow()).to_pylist() == ROWS
            assert (await replay.to_polars()).to_dicts() == ROWS
            frame = await replay.to_pandas()
    assert {name: str(kind) for name, kind in frame.dtypes.items()} | {"topic": "text"} == {
        "key": "object",
        "value": "object",
        "topic": "text",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "datetime64[us, UTC]",
        "headers": "object",
        "priority": "int8",
    }
    assert frame["value"].tolist() == [b"first", None]
    assert frame["topic"].tolist() == ["t", "t"]
    assert frame["timestamp"].tolist() == [BASE, BASE]
    assert [*map(list, frame["headers"])] == [ROWS[0]["headers"], []]


@everywhere
async def test_a_frame_is_the_whole_range_each_time(world: World) -> None:
    """Whatever was iterated over or framed before, and whatever was appended since the range was resolved."""
    store(world, "t", 40, partitions=2)
    peers = world.broker._peers
    eventually(lambda: not peers)
    async with world.client() as client:
        replay = client.replay("t")
        async for _ in replay:
            break
        for _ in range(2):
            offsets = [(row["partition"], row["offset"]) for row in (await replay.to_arrow()).to_pylist()]
            assert sorted(offsets) == [(partition, offset) for partition in (0, 1) for offset in range(40)]
            await client.produce_many("t", [b"later"] * 10, partition=0)
        assert sum([len(batch) async for batch in replay]) == 70
        assert (await client.replay("t").to_arrow()).num_rows == 100
        eventually(lambda: len(peers) == 1)  # what produced


@everywhere
async def test_an_empty_range_has_the_same_columns(world: World) -> None:
    """Of an empty topic: no row, every column with its type."""
    world.broker.store.create("default/empty", 3)
    async with world.client() as client, client.replay("empty") as replay:
        table = await replay.to_arrow()
        assert (table.num_rows, table.schema) == (0, schema())
        assert (await replay.to_polars()).schema == pl.from_arrow(schema().empty_table()).schema
        assert [*(await replay.to_pandas()).columns] == [field.name for field in schema()]


@everywhere
async def test_single_calls_do_not_become_single_row_batches(world: World) -> None:
    """A thousand messages sent one by one are one chunk."""
    world.broker.store.create("default/t", 1)
    async with world.client() as client:
        for at in range(300):
            await client.produce("t", b"%d" % at)
        table = await client.replay("t").to_arrow()
    assert table.column("value").to_pylist() == [b"%d" % at for at in range(300)]
    assert table.column("value").num_chunks == 1


@everywhere
async def test_frames_that_are_kept_stay_as_they_are(world: World) -> None:
    """Their columns lie in the receive buffer, which is not written over while a frame holds it; compressed or not."""
    values = [b"%06d" % at + b"x" * 1000 for at in range(6000)]
    world.broker.store.create("default/t", 1)
    async with world.client() as client:
        await client.produce_many("t", values)
        first = await client.replay("t").to_arrow()
        batches = [batch.to_arrow() async for batch in client.replay("t")]
        assert (await client.replay("t").to_arrow()).equals(first)
    assert first.column("value").to_pylist() == values
    assert pa.concat_tables(batches).column("value").to_pylist() == values


@everywhere
async def test_a_range_that_begins_and_ends_within_batches(world: World) -> None:
    """By offsets it is cut out of the first and the last batch, by timestamps filtered."""
    world.broker.store.create("default/t", 1)
    async with world.client() as client:
        times = [BASE + timedelta(seconds=at % 10) for at in range(100)]
        await client.produce_many("t", [b"%d" % at for at in range(100)], timestamps=times)
        table = await client.replay("t", start=13, end=57, partition=0).to_arrow()
        assert table.column("offset").to_pylist() == [*range(13, 57)]
        some = client.replay("t", start=BASE + timedelta(seconds=3), end=BASE + timedelta(seconds=5), by="timestamp")
        assert (await some.to_arrow()).column("value").to_pylist() == [
            b"%d" % at for at in range(100) if at % 10 in (3, 4)
        ]


@everywhere
async def test_a_codec_leaves_frames_as_they_are(world: World) -> None:
    """The value column has the bytes, whatever a replay's codec makes of them message by message."""
    world.broker.store.create("default/t", 1)
    async with world.client() as client:
        await client.produce_many("t", [b'{"a": 1}', b"no json", None])
        replay = client.replay("t", codec=Json())
        assert (await replay.to_arrow()).column("value").to_pylist() == [b'{"a": 1}', b"no json", None]
        [batch] = [each async for each in replay]
        assert batch.to_arrow().column("value").to_pylist() == [b'{"a": 1}', b"no json", None]


@everywhere
async def test_holes_raise_their_own_error_or_are_skipped(world: World) -> None:
    """A frame over a hole raises RangeNotAvailableError; with missing="skip" it has what there is."""
    store(world, "t", 100)
    async with world.client() as client:
        replay, skipping = client.replay("t"), client.replay("t", missing="skip")
        assert await replay.ranges() == await skipping.ranges() == {0: (0, 100)}
        partition = world.broker.store.topics["default/t"].partitions[0]
        partition.start = 30
        del partition.batches[:3], partition.ranges[:3]
        with pytest.raises(RangeNotAvailableError) as caught:
            await replay.to_arrow()
        assert caught.value.details["start"] == 30
        assert (await skipping.to_arrow()).column("offset").to_pylist() == [*range(30, 100)]
        with pytest.raises(UnknownTopicError):
            await client.replay("nothing").to_polars()


@everywhere
async def test_a_stopped_frame_is_no_whole_one(world: World) -> None:
    """stop() and close() end a frame that is being read with ClosedError, never with a part of the rows."""
    store(world, "t", 100)
    async with world.client() as client:
        for end in ("stop", "close"):
            replay = client.replay("t")
            await replay.ranges()
            world.broker.when(Api.FETCH, Fault.HANG)

            async def read(replay: object = replay) -> None:
                with pytest.raises(ClosedError):
                    await replay.to_arrow()  # type: ignore[attr-defined]

            async def finish(replay: object = replay, end: str = end, count: int = len(world.broker.requests)) -> None:
                await world.elsewhere(lambda: world.broker.wait_until(lambda: len(world.broker.requests) > count))
                ended = getattr(replay, end)()
                if end == "close":
                    await ended

            await world.at_once(read, finish)
            with pytest.raises(ClosedError):
                await replay.to_arrow()


@in_loops
async def test_an_async_replay_cannot_be_pulled(world: World) -> None:
    """Nobody awaits inside `pa.table(replay)`: a TypeError says what to write instead."""
    store(world, "t", 10)
    async with world.client() as client:
        with pytest.raises(TypeError, match=r"await its to_arrow\(\)"):
            pa.table(client.replay("t"))


def test_a_replay_is_an_arrow_stream(broker: FakeBroker) -> None:
    """pyarrow, polars and DuckDB take it as it is, any number of times, twice in one query too."""
    store(World("blocking", broker), "t", 100, partitions=3)
    with Client(broker.url) as client, client.replay("t") as replay:
        table = pa.table(replay)
        assert table.num_rows == 300
        assert table.equals(replay.to_arrow())
        with pa.RecordBatchReader.from_stream(replay) as reader:
            assert reader.schema == schema()
            assert reader.read_all().num_rows == 300
        assert pl.DataFrame(replay).shape == (300, 8)
        assert pl.from_arrow(replay).len() == 300
        assert duckdb.sql('select partition, count(*), sum("offset") from replay group by 1 order by 1').fetchall() == [
            (0, 100, 4950),
            (1, 100, 4950),
            (2, 100, 4950),
        ]
        twice = 'select count(*) from replay a join replay b using (partition, "offset")'
        assert duckdb.sql(twice).fetchall() == [(300,)]


def test_a_stream_reads_while_it_is_pulled(broker: FakeBroker) -> None:
    """Nothing is fetched before the first record batch is asked for, little ahead of it, and nothing after it is left."""
    world = World("blocking", broker)
    broker.store.create("default/t", 1)
    with Client(broker.url) as client:
        client.produce_many("t", [b"x" * 1000] * 20_000, partition=0)
        client.close()
    eventually(lambda: not broker._peers)
    replay = Client(broker.url).replay("t")
    reader = pa.RecordBatchReader.from_stream(replay)
    fetches = [type(request).__name__ for request in world.broker.requests].count("Fetch")
    assert fetches == 0
    batches = iter(reader)
    assert next(batches).num_rows > 50
    assert [type(request).__name__ for request in broker.requests].count("Fetch") <= 3
    del batches, reader
    eventually(lambda: not broker._peers)


def test_an_error_inside_a_stream_says_what_it_is(broker: FakeBroker) -> None:
    """Arrow has one kind of error for all, so its text names ours."""
    store(World("blocking", broker), "t", 100)
    with Client(broker.url) as client, client.replay("t") as replay:
        replay.ranges()
        partition = broker.store.topics["default/t"].partitions[0]
        partition.start = 30
        with pytest.raises(pa.ArrowInvalid, match="RangeNotAvailableError"):
            pa.table(replay)
        with pytest.raises(pl.exceptions.ComputeError, match="RangeNotAvailableError"):
            pl.DataFrame(replay)
        with pytest.raises(duckdb.Error, match="RangeNotAvailableError"):
            duckdb.sql("select * from replay").fetchall()
        with pytest.raises(UnknownTopicError):  # before the stream begins there is none to tell it
            pa.table(client.replay("nothing"))


def test_a_stream_may_be_pulled_from_another_thread(broker: FakeBroker) -> None:
    """As DuckDB's and Arrow's own threads do."""
    store(World("blocking", broker), "t", 100)
    with Client(broker.url) as client, client.replay("t") as replay:
        reader = pa.RecordBatchReader.from_stream(replay)
        counts: list[int] = []
        thread = threading.Thread(target=lambda: counts.append(reader.read_all().num_rows))
        thread.start()
        thread.join(30)
        assert counts == [100]


@pytest.mark.process
@pytest.mark.parametrize("ordered", [None, "time"])
def test_a_broker_killed_in_the_middle_of_a_stream(tmp_path: Path, ordered: str | None) -> None:
    """It goes on after the connection is back, with nothing lost and nothing twice."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("t", partitions=3)
        for _ in range(4):
            client.produce_many("t", [b"x" * 1000] * 6000, partition=[at % 3 for at in range(6000)])
        with client.replay("t", ordered=ordered) as replay:
            offsets: dict[int, list[int]] = {0: [], 1: [], 2: []}
            for number, batch in enumerate(pa.RecordBatchReader.from_stream(replay)):
                for partition, offset in zip(*(batch.column(at).to_pylist() for at in (3, 4)), strict=True):
                    offsets[partition].append(offset)
                if number in (0, 40):
                    broker.restart()
    assert broker.starts == 3
    assert offsets == {0: [*range(8000)], 1: [*range(8000)], 2: [*range(8000)]}


WITHOUT = """
import sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, *where):
        return None if name == sys.argv[1] else self.finder.find_spec(name, *where)

sys.meta_path[:] = map(Without, sys.meta_path)
from tests.client.fake_broker import FakeBroker
from tidelog import Client
with FakeBroker() as broker, Client(broker.url) as client:
    client.produce("t", b"v")
    replay = client.replay("t")
    for thing in (replay, next(iter(client.replay("t")))):
        for name in ("to_arrow", "to_pandas", "to_polars", "__arrow_c_stream__"):
            try:
                getattr(thing, name)()
                print(name, "works")
            except ImportError as error:
                print(name, error)
"""


@pytest.mark.parametrize(
    ("missing", "told"),
    [
        (
            "pandas",
            ['to_pandas expected pandas to be installed, found none: pip install "tidelog[pandas]"'],
        ),
        (
            "polars",
            ['to_polars expected polars to be installed, found none: pip install "tidelog[polars]"'],
        ),
        (
            "pyarrow",
            [
                'to_arrow expected pyarrow to be installed, found none: pip install "tidelog[arrow]"',
                'to_pandas expected pyarrow to be installed, found none: pip install "tidelog[pandas]"',
                'to_polars expected pyarrow to be installed, found none: pip install "tidelog[polars]"',
                '__arrow_c_stream__ expected pyarrow to be installed, found none: pip install "tidelog[arrow]"',
            ],
        ),
    ],
)
def test_what_is_not_installed_is_named(missing: str, told: list[str]) -> None:
    """Each missing library is an ImportError that names the extra to install; the rest works."""
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing],
        cwd=Path(__file__).parent.parent.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    names = ["to_arrow", "to_pandas", "to_polars", "__arrow_c_stream__"]
    errors = {line.split()[0]: line for line in told}
    assert run.stdout.splitlines() == [errors.get(name, f"{name} works") for name in names] * 2


def test_frames_are_not_loaded_before_they_are_asked_for(broker: FakeBroker) -> None:
    """Producing and iterating load neither pyarrow nor pandas nor polars."""
    script = (
        "import sys; from tidelog import Client; client = Client(sys.argv[1]); client.produce('t', b'v');"
        "print([len(batch) for batch in client.replay('t')]);"
        "print([name for name in ('pyarrow', 'pandas', 'polars', 'duckdb') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, broker.url], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout == "[1]\n[]\n"
