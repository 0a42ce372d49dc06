"""What can be seen of each configuration key: one experiment each, run with two values of the key."""

from __future__ import annotations

import io
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
import trio.testing

from tests.helpers.raw_peer import RawPeer
from tests.helpers.running_broker import RunningBroker, running_broker
from tests.helpers.trio_clock import TrioClock
from tidelog.broker.config import Config
from tidelog.broker.logging import configure, get_logger, silence
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.batch import Codec, encode_batch
from tidelog.protocol.errors import TidelogError
from tidelog.protocol.messages import (
    BatchResult,
    CreateTopic,
    Fetch,
    FetchPosition,
    Metadata,
    MetadataReply,
    PartitionInfo,
    Produce,
    ProduceReply,
    Stats,
    StatsReply,
    TopicReply,
)

Given = dict[str, object]
Observation = Callable[[dict[str, dict[str, object]], Path], Awaitable[object]]


async def code_of(peer: RawPeer) -> str | None:
    """The code of the next reply's error, or of the last words."""
    try:
        reply = await peer.reply()
    except TidelogError as error:
        return error.code
    return reply.error.code if reply.error is not None else None


async def produced(peer: RawPeer, topic_id: int, batch: bytes | bytearray, **options: int) -> BatchResult | str:
    """The result of one batch, or the code of what refused the request."""
    reply = await peer.ask(Produce(topic_id, 0, **options), batch)
    if reply.error is not None:
        return reply.error.code
    assert isinstance(reply.message, ProduceReply)
    return reply.message.results[0]


async def batch_error(peer: RawPeer, topic_id: int, batch: bytes | bytearray) -> int | None:
    """The number of a batch's error."""
    result = await produced(peer, topic_id, batch)
    assert isinstance(result, BatchResult)
    return None if result.error is None else result.error.number


async def details(peer: RawPeer, topic_id: int) -> PartitionInfo:
    """Everything about partition 0."""
    reply = (await peer.ask(Metadata(ids=[topic_id], details=True))).message
    assert isinstance(reply, MetadataReply)
    return reply.topics[0].partitions[0]


def setting(name: str) -> Observation:
    """Observe a setting in force for a topic that was given none."""

    async def observe(sections: dict[str, Given], _path: Path) -> object:
        async with running_broker(sections) as running:
            made = (await (await running.greeted()).ask(CreateTopic("default/t", 1))).message
            assert isinstance(made, TopicReply)
            return made.topic.settings[name]

    return observe


def told(name: str) -> Observation:
    """Observe a limit that the Hello reply tells."""

    async def observe(sections: dict[str, Given], _path: Path) -> object:
        async with running_broker(sections) as running:
            return getattr((await running.connect().greet()).limits, name)

    return observe


def within_real_time(experiment: Callable[[RunningBroker], Awaitable[object]]) -> Observation:
    """Observe something that threads do, on the machine's clock."""

    async def observe(sections: dict[str, Given], _path: Path) -> object:
        async with running_broker(sections) as running:
            return await experiment(running)

    return observe


def within(experiment: Callable[[RunningBroker], Awaitable[object]]) -> Observation:
    """Observe something of a running broker in memory."""

    async def observe(sections: dict[str, Given], _path: Path) -> object:
        async with running_broker(sections, clock=TrioClock()) as running:
            return await experiment(running)

    return observe


async def connections_served(running: RunningBroker) -> object:
    """What a second connection that says nothing hears."""
    await running.greeted()
    return await code_of(running.connect())


async def silence_before_hello(running: RunningBroker) -> object:
    """How long a silent connection is kept."""
    peer, begun = running.connect(), trio.current_time()
    assert await code_of(peer) == "IDLE_TIMEOUT"
    return round(trio.current_time() - begun)


async def silence_after_hello(running: RunningBroker) -> object:
    """How long an idle connection is kept."""
    peer, begun = await running.greeted(), trio.current_time()
    assert await code_of(peer) == "IDLE_TIMEOUT"
    return round(trio.current_time() - begun)


async def time_to_drain(running: RunningBroker) -> object:
    """How long a stop waits for a peer that does not read."""
    peer = await running.greeted()
    topic_id = await running.topic(peer)
    # Small enough to be checked on the loop: while a worker checks, this clock jumps to the end of the request's time.
    await produced(peer, topic_id, encode_batch([bytes(900_000)], timestamp_us=5))
    for _ in range(8):
        await peer.send(Fetch([FetchPosition(topic_id, 0, 0)]))
    await trio.lowlevel.wait_readable(peer.sock)  # it answers, and its answers are more than the sockets hold
    await trio.testing.wait_all_tasks_blocked()
    running.broker.stop()
    begun = trio.current_time()
    await running.finished.wait()
    return round(trio.current_time() - begun)


async def taken_at_once(running: RunningBroker) -> object:
    """How many long polls are taken from one connection before it is read no more."""
    peer = await running.greeted()
    topic_id = await running.topic(peer)
    for _ in range(10):
        await peer.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=60_000_000))
    await trio.sleep(0.01)
    watcher = await running.greeted()
    return await metric(watcher, 'tidelog_requests_total{api="fetch"}')


async def metric(peer: RawPeer, name: str) -> int | float:
    """The value of a metric."""
    reply = (await peer.ask(Stats())).message
    assert isinstance(reply, StatsReply)
    return reply.values[name]


async def stalled(running: RunningBroker) -> object:
    """Whether a connection that waits for something and sent 200 KB is read no more."""
    peer = await running.greeted()
    topic_id = await running.topic(peer)
    await peer.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=1_000_000))
    await peer.send(Produce(topic_id, 0), encode_batch([bytes(200_000)], timestamp_us=5))
    await peer.send(Produce(topic_id, 0), encode_batch([b"x"], timestamp_us=5))
    assert [(await peer.reply()).error for _ in range(3)] == [None, None, None]
    return await metric(peer, "tidelog_session_stalls_total") > 0


async def memory_waits(running: RunningBroker) -> object:
    """Whether connections had to wait for the memory of others, before all of them were served."""
    peers = [await running.greeted() for _ in range(3)]
    topic_id = await running.topic(peers[0])
    batch = encode_batch([bytes(100_000)], timestamp_us=5)
    frames = [peer.wire.request(Produce(topic_id, 0), len(batch))[1] + batch for peer in peers]
    for peer, frame in zip(peers, frames, strict=True):
        await peer.send_bytes(frame[:90_000])
    await trio.sleep(0.01)
    waits = await metric(await running.greeted(), "tidelog_memory_waits_total")
    for peer, frame in zip(peers, frames, strict=True):
        await peer.send_bytes(frame[90_000:])
    for peer in peers:
        assert (await peer.reply()).error is None
    return waits > 0


async def largest_batch(running: RunningBroker) -> object:
    """The error of a batch of 100 KB that zstd makes small, and of one that it does not."""
    peer = await running.greeted()
    topic_id = await running.topic(peer)
    small = encode_batch([bytes(100_000)], timestamp_us=5, codec=Codec.ZSTD)
    large = encode_batch([bytes(100_000)], timestamp_us=5)
    return await batch_error(peer, topic_id, small), await batch_error(peer, topic_id, large)


async def largest_message(running: RunningBroker) -> object:
    """The error of a message of 2,000 bytes."""
    peer = await running.greeted()
    return await batch_error(peer, await running.topic(peer), encode_batch([bytes(2_000)], timestamp_us=5))


async def auto_created(running: RunningBroker) -> object:
    """Whether producing's metadata request makes a topic."""
    reply = (await (await running.greeted()).ask(Metadata(["default/t"], auto_create=True))).message
    assert isinstance(reply, MetadataReply)
    return len(reply.topics)


async def partitions_made(running: RunningBroker) -> object:
    """The partitions of a topic that does not say how many."""
    made = (await (await running.greeted()).ask(CreateTopic("default/t"))).message
    assert isinstance(made, TopicReply)
    return len(made.topic.partitions)


async def second_topic(running: RunningBroker) -> object:
    """The code with which a second topic of five partitions is refused."""
    peer = await running.greeted()
    first = await peer.ask(CreateTopic("default/a", 5))
    if first.error is not None:
        return first.error.code
    error = (await peer.ask(CreateTopic("default/b", 5))).error
    return None if error is None else error.code


async def leader(running: RunningBroker) -> object:
    """Who leads a partition."""
    peer = await running.greeted()
    return (await details(peer, await running.topic(peer))).leader


async def segments_after_a_pause(running: RunningBroker) -> object:
    """Whether a partition into which a record came twice, ten seconds apart, has several segments."""
    topic_id = await running.topic(await running.greeted())
    for _ in range(2):
        await produced(await running.greeted(), topic_id, encode_batch([b"x"], timestamp_us=5))
        await trio.sleep(10)
    return (await details(await running.greeted(), topic_id)).segments > 1


async def synced_late(running: RunningBroker) -> object:
    """Whether a record that nobody waits for is synced only after half a minute."""
    peer = await running.greeted()
    topic_id = await running.topic(peer, settings={"durability": "written"})
    await produced(peer, topic_id, encode_batch([b"x"], timestamp_us=5))
    begun = trio.current_time()
    while (await details(peer, topic_id)).synced_offset == 0:
        await trio.sleep(0.2)
    return trio.current_time() - begun > 30


async def request_of_2_mb(running: RunningBroker) -> object:
    """The answer to 2 MB in one request."""
    peer = await running.greeted()
    topic_id = await running.topic(peer)
    batches = b"".join(encode_batch([bytes(100_000)], timestamp_us=5) for _ in range(20))
    await peer.send(Produce(topic_id, 0), batches)
    return await code_of(peer)


async def send_buffer(sections: dict[str, Given], _path: Path) -> object:
    """SO_SNDBUF of a connection, as the kernel has it (twice what was set)."""
    async with running_broker(sections) as running:
        ours, theirs = socket.socketpair()
        running.broker.attach(ours)
        size = ours.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        theirs.close()
        await trio.testing.wait_all_tasks_blocked()
        return size


async def port_listened_on(sections: dict[str, Given], _path: Path) -> object:
    """Where a broker listens; the default's port may be in use here, so it is not tried."""
    if not sections:
        return Config().broker.listen.host
    async with running_broker(sections, listen=True) as running:
        return running.broker.addresses[0].host


async def removed(running: RunningBroker, settings: dict[str, int] | None = None) -> object:
    """Whether retention by bytes removed segments within two minutes."""
    peer = await running.greeted()
    topic_id = await running.topic(peer, settings={"segment_bytes": 65_536, **(settings or {})})
    for _ in range(8):
        await produced(peer, topic_id, encode_batch([bytes(30_000)], timestamp_us=5))
    await trio.sleep(120)
    return await metric(await running.greeted(), "tidelog_expired_segments_total") > 0


async def removed_under_64_kib(running: RunningBroker) -> object:
    """The same on a topic that keeps 64 KiB."""
    return await removed(running, {"retention_bytes": 65_536})


async def removed_by_age(running: RunningBroker) -> object:
    """Whether retention by age removed segments within three hours."""
    peer = await running.greeted()
    topic_id = await running.topic(peer, settings={"segment_bytes": 65_536})
    for _ in range(8):
        await produced(peer, topic_id, encode_batch([bytes(30_000)], timestamp_us=5))
    await trio.sleep(3 * 3600)
    return await metric(await running.greeted(), "tidelog_expired_segments_total") > 0


async def rows_of_an_index(sections: dict[str, Given], path: Path) -> object:
    """The rows in the index of a sealed segment of 15 batches of 4 KB."""
    folder = path / str(len(list(path.iterdir())))
    folder.mkdir()
    async with running_broker(sections, files=DiskFiles(folder)) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, settings={"segment_bytes": 65_536})
        for _ in range(20):
            await produced(peer, topic_id, encode_batch([bytes(3_900)], timestamp_us=5))
    (first, *_) = sorted(folder.glob("partitions/*/messages/*.offsets/data.ninja"))
    return first.stat().st_size // 16


async def lines_logged(sections: dict[str, Given], _path: Path) -> object:
    """How an info event appears."""
    stream = io.StringIO()
    logging = Config.model_validate(sections).logging
    configure(logging.level, logging.format, stream)
    get_logger().info("event")
    silence()
    return stream.getvalue()[:1]


async def data_folder(sections: dict[str, Given], path: Path) -> object:
    """Which folder `serve` opens."""
    from tidelog.broker.data_folder import open_files

    files = open_files(Config.model_validate(sections).broker.data_dir)
    files.close()
    return sorted(one.name for one in path.iterdir())


async def open_to_the_network(sections: dict[str, Given], _path: Path) -> object:
    """Whether a configuration that listens everywhere is accepted."""
    from tidelog.broker.config import ConfigError, load

    try:
        load(None, {"broker": {"listen": "0.0.0.0:0", **sections.get("broker", {})}})
    except ConfigError:
        return False
    return True
