"""Who keeps a segment's file open: nobody, once it is removed and what was being sent of it is sent.

The garbage collector stays off: what only it would close stays on the disk until it happens to come.
"""

from __future__ import annotations

import errno
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from tests.helpers.broker_core import SECOND, Core, batch, bulk_of
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.open_files import open_files
from tests.helpers.raw_peer import RawPeer
from tests.helpers.running_broker import running_broker

from tidelog.broker.fetcher import Fetched
from tidelog.broker.partition import Partition
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.errors import TidelogError
from tidelog.protocol.messages import (
    Cancel,
    DeleteTopic,
    Fetch,
    FetchPosition,
    Get,
    ListOffsets,
    Message,
    Metadata,
    OffsetKind,
    OffsetQuery,
    Produce,
)

MINUTE_US = 60_000_000
SMALL = {"segment_bytes": 65_536}


@pytest.fixture(autouse=True)
def uncollected() -> Iterator[None]:
    """Keep the collector from helping."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held(folder: Path) -> list[str]:
    """Files below a folder that are removed and yet open or mapped in this process."""
    maps = [line.partition("/")[2] for line in Path("/proc/self/maps").read_text().splitlines()]
    return [name for name in [*open_files(), *maps] if folder.name in name and name.endswith("(deleted)")]


def fill(core: Core, partition: Partition, count: int = 9) -> None:
    """Store batches of which two fill a segment."""
    for n in range(count):
        core.produce(partition, batch(b"%d" % n + bytes(25_000), timestamp_us=10 * n))
        core.advance(SECOND)


def delete(core: Core, name: str = "orders") -> None:
    """Delete a topic."""
    core.wait(core.topics.delete(f"default/{name}"))


def waits_for_its_sync(core: Core, _files: FaultyFiles) -> None:
    """A producer is told that its topic is gone."""
    core.send(core.topic("orders").partition(0), batch(b"x"))


def has_a_watch(core: Core, _files: FaultyFiles) -> None:
    """Somebody waits for more, and looks again when the topic goes."""
    partition = core.topic("orders").partition(0)
    partition.watch(lambda _why: core.fetch(partition, 0) and None)


def reads_closed_segments(core: Core, _files: FaultyFiles) -> None:
    """A reader had segments opened and indexed, another one asks for times."""
    partition = core.topic("orders").partition(0)
    core.read(partition)
    for kind in OffsetKind:
        partition.offsets(OffsetQuery(partition.topic_id, 0, kind, 25))
    partition.verify(FetchPosition(partition.topic_id, 0, 0, 0), max_bytes=1 << 20)


def is_refused_for_space(core: Core, files: FaultyFiles) -> None:
    """The disk is full for appends, for new segments and for what upkeep makes ahead."""
    for operation in ("write_at", "create", "reserve", "save_array", "write", "sync_folder"):
        files.fail(operation, errno.ENOSPC, path="partitions/*", times=None)
    partition = core.topic("orders").partition(0)
    for _ in range(3):
        with pytest.raises(TidelogError):
            core.produce(partition, batch(bytes(40_000)))
        core.advance(2 * SECOND)
    files.heal()


def is_refused_for_its_content(core: Core, _files: FaultyFiles) -> None:
    """Batches with bad bytes, and of a producer that nobody knows."""
    partition = core.topic("orders").partition(0)
    bad = batch(b"x")
    bad[-1] ^= 255
    for refused in (bad, batch(b"x", producer=7, sequence=5)):
        with pytest.raises(TidelogError):
            core.produce(partition, refused)


def was_fenced(core: Core, files: FaultyFiles) -> None:
    """A sync failed, and the log was opened anew; the first attempt failed too."""
    partition = core.topic("orders").partition(0)
    files.fail("sync", errno.EIO, path="partitions/*")
    answer = core.send(partition, batch(b"x"))
    core.settle()
    assert answer.result().results[0].error is not None
    files.fail("create", errno.ENOSPC, path="partitions/*")
    with pytest.raises(TidelogError):
        core.wait(core.topics.reopen("default/orders"))
    assert core.wait(core.topics.reopen("default/orders")) == [0]


DOINGS = (
    waits_for_its_sync,
    has_a_watch,
    reads_closed_segments,
    is_refused_for_space,
    is_refused_for_its_content,
    was_fenced,
)


@pytest.mark.parametrize("doing", DOINGS)
def test_a_deleted_topic_is_closed_at_once(tmp_path: Path, doing: Callable[[Core, FaultyFiles], None]) -> None:
    """Whatever was done with a topic, nothing of it is open when its deletion is answered."""
    files = FaultyFiles(DiskFiles(tmp_path))
    core = Core(files)
    fill(core, core.create("orders", 1, SMALL).partition(0))
    doing(core, files)
    partition = weakref.ref(core.topic("orders").partition(0))
    delete(core)
    assert held(tmp_path) == []
    core.advance(3 * SECOND)
    assert held(tmp_path) == []
    assert partition() is None


def test_segments_that_retention_removes_are_closed(tmp_path: Path) -> None:
    """A removed segment is closed though readers knew places in it."""
    core = Core(DiskFiles(tmp_path))
    partition = core.create("orders", 1, {**SMALL, "retention_bytes": 80_000}).partition(0)
    fill(core, partition)
    core.read(partition)
    core.topics.expire()
    core.advance(3 * SECOND)
    assert partition.start_offset == 8
    assert held(tmp_path) == []


def test_what_is_being_sent_stays_until_it_is_sent(tmp_path: Path) -> None:
    """Slices of a deleted topic can be read as long as they are held, and nothing longer."""
    core = Core(DiskFiles(tmp_path))
    partition = core.create("orders", 1, SMALL).partition(0)
    core.produce(partition, batch(b"here"))
    fetched: Fetched | None = core.fetch(partition, 0)
    assert isinstance(fetched, Fetched)
    before = bulk_of(fetched)
    delete(core)
    assert held(tmp_path) != []
    assert bulk_of(fetched) == before
    fetched = None
    assert held(tmp_path) == []


@pytest.mark.parametrize("operation", ["create", "write_at", "sync_folder"])
def test_a_topic_that_could_not_be_made_is_closed(tmp_path: Path, operation: str) -> None:
    """Whatever fails while a topic is made, no file of it stays open; the same when partitions are added."""
    files = FaultyFiles(DiskFiles(tmp_path))
    core = Core(files)
    core.create("others")
    for after in range(3):
        fault = files.fail(operation, errno.ENOSPC, path="partitions/[2-9]-*", after=after)
        with suppress(TidelogError):
            core.create("orders", 3)
            delete(core)
        assert fault.fired
        files.heal()
        assert held(tmp_path) == []
        files.fail(operation, errno.ENOSPC, path="partitions/1-*", after=after)
        with suppress(TidelogError):
            core.wait(core.topics.alter("default/others", partitions=4 + after))
        files.heal()
    delete(core, "others")
    assert held(tmp_path) == []


# -- over connections --------------------------------------------------------------------------------------------------


async def produce(peer: RawPeer, topic_id: int) -> None:
    """Store a message."""
    await peer.ask(Produce(topic_id, 0), encode_batch([b"x"], timestamp_us=5))


async def wait_for_more(peer: RawPeer, topic_id: int, offset: int) -> int:
    """Begin a fetch that waits."""
    correlation_id = await peer.send(Fetch([FetchPosition(topic_id, 0, offset)], max_wait_us=MINUTE_US))
    await trio.testing.wait_all_tasks_blocked()
    return correlation_id


@pytest.mark.trio
async def test_a_topic_that_a_fetch_waited_on_is_closed(tmp_path: Path) -> None:
    """Waited fetches were answered, one cancelled, one is told that the topic went: nothing stays open."""
    async with running_broker(files=DiskFiles(tmp_path)) as broker:
        peer, reader = await broker.greeted(), await broker.greeted()
        topic_id = await broker.topic(peer)
        for offset in range(10):
            await wait_for_more(reader, topic_id, offset)
            await produce(peer, topic_id)
            await reader.reply()
        await reader.send(Cancel(await wait_for_more(reader, topic_id, 10)))
        await reader.reply()
        await reader.reply()
        await wait_for_more(reader, topic_id, 10)
        assert (await peer.ask(DeleteTopic("default/t"))).error is None
        await reader.reply()
        assert held(tmp_path) == []


@pytest.mark.trio
async def test_a_topic_that_a_fetch_waited_on_in_vain_is_closed(tmp_path: Path) -> None:
    """A fetch that was answered by its deadline, with what there was, keeps nothing open."""
    async with running_broker(files=DiskFiles(tmp_path)) as broker:
        peer = await broker.greeted()
        topic_id = await broker.topic(peer)
        await produce(peer, topic_id)
        waiting = Fetch([FetchPosition(topic_id, 0, 0)], min_bytes=10_000, max_wait_us=1_000)
        assert len((await peer.ask(waiting)).bulk) > 0
        assert (await peer.ask(DeleteTopic("default/t"))).error is None
        assert held(tmp_path) == []


def requests(topic_id: int) -> list[tuple[Message, bytes]]:
    """Return requests of every kind that producers and consumers repeat, good ones and refused ones."""
    good = bytes(encode_batch([b"x"], timestamp_us=5))
    here = [FetchPosition(topic_id, 0, 0)]
    return [
        (Produce(topic_id, 0), good),
        (Produce(topic_id, 0), good[:-1] + b"?"),
        (Produce(topic_id, 0), bytes(encode_batch([b"x"], timestamp_us=5, producer_id=7, base_sequence=5))),
        (Produce(99, 0), good),
        (Fetch(here), b""),
        (Fetch(here, verify=True), b""),
        (Fetch(here, timestamps=(0, 3)), b""),
        (Fetch([FetchPosition(topic_id, 0, 999_999), FetchPosition(99, 0, 0)]), b""),
        (Get("t", 1, 0, 0), b""),
        (Get("t", 1, 0, 999_999), b""),
        (ListOffsets([OffsetQuery(topic_id, 0, kind, 5) for kind in OffsetKind]), b""),
        (ListOffsets([OffsetQuery(99, 0, OffsetKind.LATEST, 0)] * 600), b""),
        (Metadata(), b""),
    ]


@pytest.mark.trio
async def test_requests_leave_nothing_to_the_collector(tmp_path: Path) -> None:
    """No request makes a cycle: whatever it made is gone with its answer."""
    async with running_broker(files=DiskFiles(tmp_path)) as broker:
        peer, reader = await broker.greeted(), await broker.greeted()
        topic_id = await broker.topic(peer)
        for message, bulk in requests(topic_id):
            await peer.ask(message, bulk)
        gc.collect()
        for message, bulk in requests(topic_id):
            for _ in range(10):
                await peer.ask(message, bulk)
            assert gc.collect() == 0, message
        for offset in range(101, 151):
            await wait_for_more(reader, topic_id, offset)
            await produce(peer, topic_id)
            await reader.reply()
        assert gc.collect() == 0
