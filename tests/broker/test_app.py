"""A whole broker: start, service, clean stop, restart."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import pytest
import trio
import trio.testing
from tests.helpers.running_broker import running_broker

from tidelog.broker.app import Broker
from tidelog.broker.clock import SystemClock
from tidelog.broker.config import Config
from tidelog.broker.errors import DataDirLockedError, StorageError, UnsupportedError
from tidelog.broker.logging import configure, silence
from tidelog.broker.metrics import HELP
from tidelog.broker.server import CannotListenError
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.batch import decode_batch, encode_batch
from tidelog.protocol.errors import BrokerClosingError
from tidelog.protocol.messages import (
    Fetch,
    FetchPosition,
    FetchReply,
    Metadata,
    MetadataReply,
    Ping,
    Produce,
    ProduceReply,
    Stats,
    StatsReply,
)

pytestmark = pytest.mark.trio


def unwrapped(group: BaseException) -> BaseException:
    """The one error inside the groups of nurseries."""
    while isinstance(group, BaseExceptionGroup):
        assert len(group.exceptions) == 1
        group = group.exceptions[0]
    return group


async def test_what_was_produced_is_read_after_a_restart(tmp_path: Path) -> None:
    """A clean stop and a start later, topic and records are there under their offsets."""
    async with running_broker(files=DiskFiles(tmp_path)) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        batch = encode_batch([b"one", b"two"], timestamp_us=5)
        reply = (await peer.ask(Produce(topic_id, 0), batch)).message
        assert isinstance(reply, ProduceReply)
        assert (reply.durability, reply.results[0].base_offset, reply.results[0].record_count) == (3, 0, 2)
    async with running_broker(files=DiskFiles(tmp_path)) as running:
        peer = await running.greeted()
        described = (await peer.ask(Metadata(["default/t"]))).message
        assert isinstance(described, MetadataReply)
        assert [topic.id for topic in described.topics] == [topic_id]
        reply = await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)]))
        assert decode_batch(reply.bulk).values.to_list() == [b"one", b"two"]


async def test_a_broker_in_memory_needs_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a data directory everything works and nothing is written."""
    monkeypatch.chdir(tmp_path)
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await peer.ask(Produce(topic_id, 0), encode_batch([b"x"], timestamp_us=5))
        reply = await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)]))
        assert decode_batch(reply.bulk).values.to_list() == [b"x"]
    assert list(tmp_path.iterdir()) == []


async def test_a_second_broker_on_the_folder_is_refused(tmp_path: Path) -> None:
    """The folder is locked while a broker runs, and free again once it has stopped."""
    async with running_broker(files=DiskFiles(tmp_path)):
        second = Broker(DiskFiles(tmp_path), SystemClock(), Config())
        with pytest.raises(DataDirLockedError, match=rf"process {os.getpid()}"):
            await second.run(listen=False)
    async with running_broker(files=DiskFiles(tmp_path)):
        pass


async def test_the_start_says_what_it_found(tmp_path: Path) -> None:
    """Partitions that cannot serve, folders of nobody: each is one line of the log, with the counts in `serving`."""
    async with running_broker(files=DiskFiles(tmp_path)) as running:
        await running.topic(await running.greeted(), partitions=2)
    shutil.rmtree(tmp_path / "partitions" / "1-1")
    (tmp_path / "partitions" / "9-9").mkdir()
    stream = io.StringIO()
    configure("info", "json", stream)
    try:
        async with running_broker(files=DiskFiles(tmp_path)) as running:
            reply = (await (await running.greeted()).ask(Stats())).message
    finally:
        silence()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    named = {event["event"]: event for event in events}
    assert len(named) == len(events)
    assert (named["partition offline"]["partition"], named["stray folder"]["folder"]) == ("t/1", "partitions/9-9")
    assert [named["serving"][key] for key in ("partitions", "offline", "strays", "damaged_records")] == [1, 1, 1, 0]
    assert isinstance(reply, StatsReply)
    missing = set(HELP) - {name.split("{")[0] for name in reply.values}
    assert {name for name in missing if ", by group" not in HELP[name]} <= {"tidelog_errors_total"}, "without any group"


async def test_a_folder_of_another_version_is_refused(tmp_path: Path) -> None:
    """What a later version wrote is not opened, and stays as it is."""
    (tmp_path / "VERSION").write_text("2\n")
    with pytest.raises(UnsupportedError, match=r"format 1, found b'2\\n'"):
        await Broker(DiskFiles(tmp_path), SystemClock(), Config()).run(listen=False)
    assert (tmp_path / "VERSION").read_text() == "2\n"


async def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    """A mistyped path does not become a data directory in the middle of other files."""
    (tmp_path / "thesis.odt").write_text("")
    with pytest.raises(StorageError, match=r"thesis\.odt"):
        await Broker(DiskFiles(tmp_path), SystemClock(), Config()).run(listen=False)
    assert not (tmp_path / "VERSION").exists()


async def test_an_address_in_use_is_refused() -> None:
    """The second broker on a port says so, in one error, and opens nothing."""
    async with running_broker({"broker": {"listen": "127.0.0.1:0"}}, listen=True) as running:
        taken = str(running.broker.addresses[0])
        with pytest.raises(BaseException) as caught:
            async with running_broker({"broker": {"listen": taken}}, listen=True):
                pass
        error = unwrapped(caught.value)
        assert isinstance(error, CannotListenError)
        assert str(error) == f"cannot listen on {taken}: Address already in use"


async def test_port_0_takes_a_free_port() -> None:
    """The URL names the port that was taken, and it is served there."""
    async with running_broker({"broker": {"listen": "127.0.0.1:0"}}, listen=True) as running:
        host, port = running.broker.addresses[0]
        assert running.broker.url == f"tidelog://127.0.0.1:{port}"
        stream = await trio.open_tcp_stream(host, port)
        await stream.aclose()


async def test_localhost_is_every_loopback_address() -> None:
    """A name that stands for several addresses is served on all of them, on one port."""
    async with running_broker({"broker": {"listen": "localhost:0"}}, listen=True) as running:
        assert len({address.port for address in running.broker.addresses}) == 1
        for host, port in running.broker.addresses:
            stream = await trio.open_tcp_stream(host, port)
            await stream.aclose()


async def test_a_stop_answers_waiting_fetches_and_says_why() -> None:
    """A drain ends long polls at once with an empty reply, then with last words."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await peer.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=60_000_000))
        await trio.testing.wait_all_tasks_blocked()
        running.broker.stop()
        reply = (await peer.reply()).message
        assert isinstance(reply, FetchReply)
        assert reply.results == []
        with pytest.raises(BrokerClosingError):
            await peer.reply()
        peer.sock.close()
        await running.finished.wait()


async def test_a_stop_does_not_wait_for_a_peer_that_never_reads(mock_clock: trio.testing.MockClock) -> None:
    """After `drain_timeout` a connection that does not take its replies is closed all the same."""
    async with running_broker({"broker": {"drain_timeout": "2s", "send_buffer_bytes": "4KiB"}}) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await peer.ask(Produce(topic_id, 0), encode_batch([bytes(500_000)], timestamp_us=5))
        for _ in range(4):
            await peer.send(Fetch([FetchPosition(topic_id, 0, 0)]))
        await trio.sleep(0.1)
        running.broker.stop()
        before = trio.current_time()
        await running.finished.wait()
        assert 1.9 < trio.current_time() - before < 30


async def test_records_survive_a_stop_that_did_not_wait(tmp_path: Path) -> None:
    """Stopped at once with a produce in flight, what was answered is there, and the start is clean."""
    async with running_broker(files=DiskFiles(tmp_path)) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, settings={"durability": "written"})
        await peer.ask(Produce(topic_id, 0), encode_batch([b"kept"], timestamp_us=5))
        await peer.send(Produce(topic_id, 0, 3), encode_batch([b"perhaps"], timestamp_us=5))
        running.broker.stop(at_once=True)
        await running.finished.wait()
    async with running_broker(files=DiskFiles(tmp_path)) as running:
        peer = await running.greeted()
        reply = await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)]))
        assert decode_batch(reply.bulk).values.to_list()[0] == b"kept"


async def test_the_broker_goes_on_after_a_client_breaks_off() -> None:
    """A connection that vanishes in mid frame disturbs nobody."""
    async with running_broker() as running:
        for count in range(1, 20):
            broken = running.connect()
            await broken.send_bytes(b"\x00\x01\x00\x00"[: count % 4 + 1])
            broken.sock.close()
        peer = await running.greeted()
        assert (await peer.ask(Ping())).error is None
