"""A real broker process over TCP and a real disk: killed, stopped, flooded, starved."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.raw_peer import RawClient

from tidelog.protocol.batch import decode_batch, encode_batch, iterate_headers
from tidelog.protocol.messages import (
    CreateTopic,
    Fetch,
    FetchPosition,
    FetchReply,
    InitProducer,
    InitProducerReply,
    Metadata,
    MetadataReply,
    Ping,
    Produce,
    ProduceReply,
    Stats,
    StatsReply,
    TopicReply,
)

pytestmark = pytest.mark.process
MIB = 1 << 20


def topic(client: RawClient, name: str = "default/t", **settings: str | int) -> int:
    """Make a topic of one partition and return its id; an existing one is as good."""
    reply = client.ask(CreateTopic(name, 1, dict(settings), exist_ok=True)).message
    assert isinstance(reply, TopicReply)
    return reply.topic.id


def read_all(client: RawClient, topic_id: int) -> list[bytes | None]:
    """Every value of partition 0, in order; offsets are dense from 0."""
    found: list[bytes | None] = []
    offset = 0
    while True:
        reply = client.ask(Fetch([FetchPosition(topic_id, 0, offset, max_bytes=4 * MIB)]))
        assert isinstance(reply.message, FetchReply)
        if not reply.message.results:
            return found
        for position, header in iterate_headers(reply.bulk):
            assert header.base_offset == len(found)
            found += decode_batch(reply.bulk[position : position + header.batch_length]).values.to_list()
        offset = reply.message.results[0].next_offset


def metric(client: RawClient, name: str) -> int | float:
    """The value of a metric."""
    reply = client.ask(Stats()).message
    assert isinstance(reply, StatsReply)
    return reply.values[name]


def drop_from_page_cache(folder: Path) -> float:
    """Have the kernel forget the segments under a folder; returns which part of their data it did forget.

    Asked by mincore: a read that may not wait would start the kernel reading ahead.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    pages = cold = 0
    for path in folder.rglob("*.log"):
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as view:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            used = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
            resident = (ctypes.c_ubyte * (used // mmap.PAGESIZE))()
            start = ctypes.addressof(ctypes.c_char.from_buffer(view))
            assert libc.mincore(ctypes.c_void_p(start), ctypes.c_size_t(len(resident) * mmap.PAGESIZE), resident) == 0
            pages += len(resident)
            cold += sum(not flags & 1 for flags in resident)
            gc.collect()
    return cold / pages


class Writer:
    """A thread that produces unique values one by one, and records which were acknowledged where."""

    def __init__(self, broker: BrokerProcess, topic_id: int, name: str, durability: int) -> None:
        self.acknowledged: list[tuple[int, bytes]] = []
        self.sent = 0
        self._broker = broker
        self._topic_id = topic_id
        self._name = name
        self._durability = durability
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self._broker.connect() as client:
            try:
                while True:
                    value = f"{self._name}-{self.sent}".encode()
                    self.sent += 1
                    batch = encode_batch([value], timestamp_us=5)
                    reply = client.ask(Produce(self._topic_id, 0, self._durability), batch)
                    if not isinstance(reply.message, ProduceReply):
                        return
                    self.acknowledged.append((reply.message.results[0].base_offset, value))
            except Exception:
                return  # the broker is gone: what was in flight is not acknowledged


@pytest.mark.parametrize("durability", [2, 3])
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path, durability: int) -> None:
    """At `written` and at `synced` every acknowledged value is at its offset after each of several kills."""
    chance = random.Random(durability)
    acknowledged: dict[int, bytes] = {}
    for number in range(3):
        with broker_process(tmp_path) as broker:
            with broker.connect() as client:
                topic_id = topic(client, durability="written")
                values = read_all(client, topic_id)
                assert {offset: values[offset] for offset in acknowledged} == acknowledged
                assert len(set(values)) == len(values)
            writers = [Writer(broker, topic_id, f"{number}-{name}", durability) for name in "ab"]
            time.sleep(chance.uniform(0.2, 0.6))
            broker.kill()
            for writer in writers:
                writer.thread.join(20)
                assert writer.acknowledged
                acknowledged |= dict(writer.acknowledged)
    with broker_process(tmp_path) as broker, broker.connect() as client:
        values = read_all(client, topic_id)
        assert {offset: values[offset] for offset in acknowledged} == acknowledged


def test_a_repeat_after_kill_9_is_stored_once(tmp_path: Path) -> None:
    """The same batch of the same producer, sent again to the restarted broker, has its first offset."""
    with broker_process(tmp_path) as broker, broker.connect() as client:
        topic_id = topic(client)
        identity = client.ask(InitProducer()).message
        assert isinstance(identity, InitProducerReply)
        batch = encode_batch([b"once"], timestamp_us=5, producer_id=identity.producer_id, base_sequence=0)
        first = client.ask(Produce(topic_id, 0), batch).message
        broker.kill()
    with broker_process(tmp_path) as broker, broker.connect() as client:
        second = client.ask(Produce(topic_id, 0), batch).message
        assert isinstance(first, ProduceReply)
        assert isinstance(second, ProduceReply)
        assert (second.results[0].duplicate, second.results[0].base_offset) == (True, first.results[0].base_offset)
        assert read_all(client, topic_id) == [b"once"]


def test_a_stop_under_load_loses_nothing(tmp_path: Path) -> None:
    """SIGTERM while clients produce: what was acknowledged is there, and the next start has nothing to recover."""
    with broker_process(tmp_path) as broker:
        with broker.connect() as client:
            topic_id = topic(client)
        writers = [Writer(broker, topic_id, name, 3) for name in "abc"]
        time.sleep(0.5)
        assert broker.stop() == 0
        for writer in writers:
            writer.thread.join(20)
    acknowledged = dict(entry for writer in writers for entry in writer.acknowledged)
    assert acknowledged
    with broker_process(tmp_path) as broker, broker.connect() as client:
        values = read_all(client, topic_id)
        assert {offset: values[offset] for offset in acknowledged} == acknowledged
        assert "torn=0" in broker.log.read_text()
        assert "Traceback" not in broker.log.read_text()


def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    """A stop that waits for a peer that never reads ends at once at the second signal, cleanly."""
    with broker_process(tmp_path) as broker, broker.connect() as client:
        topic_id = topic(client)
        client.ask(Produce(topic_id, 0), encode_batch([bytes(8 * MIB)], timestamp_us=5))
        client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(4):
            client.send(Fetch([FetchPosition(topic_id, 0, 0)], max_bytes=16 * MIB))
        while b"stopping" not in broker.log.read_bytes():
            broker.process.send_signal(signal.SIGTERM)
            time.sleep(0.3)
        begun = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - begun < 10


def test_idle_connections_are_cheap(tmp_path: Path) -> None:
    """An idle broker stays below 80 MB, and a thousand idle connections add little."""
    with broker_process(tmp_path, "--in-memory") as broker, broker.connect() as first:
        first.ask(Ping())
        before_kib = broker.status("RssAnon")
        assert before_kib < 80 * 1024
        clients = [broker.connect() for _ in range(400)]
        grown_kib = broker.status("RssAnon") - before_kib
        for client in clients:
            client.close()
        assert grown_kib / len(clients) < 10


def test_readers_that_never_read_hold_no_memory(tmp_path: Path) -> None:
    """Fifty that ask for megabytes and take none leave the broker as it was, and others are served."""
    with broker_process(tmp_path) as broker, broker.connect() as client:
        topic_id = topic(client)
        client.ask(Produce(topic_id, 0), encode_batch([os.urandom(MIB) for _ in range(8)], timestamp_us=5))
        before_kib = broker.status("RssAnon")
        readers = [broker.connect() for _ in range(50)]
        for reader in readers:
            for _ in range(20):
                reader.send(Fetch([FetchPosition(topic_id, 0, 0)], max_bytes=16 * MIB))
        assert client.ask(Ping()).error is None
        assert broker.status("RssAnon") - before_kib < 20 * 1024
        for reader in readers:
            reader.close()
        assert len(read_all(client, topic_id)) == 8


def test_cold_reads_do_not_stop_the_loop(tmp_path: Path) -> None:
    """While one client reads what the page cache has lost, the loop is never late by a tenth of a second."""
    with broker_process(tmp_path) as broker, broker.connect() as client:
        topic_id = topic(client)
        batch = encode_batch([os.urandom(MIB) for _ in range(4)], timestamp_us=5)
        for _ in range(24):
            client.ask(Produce(topic_id, 0), batch)
        time.sleep(1.5)
        cold = drop_from_page_cache(tmp_path / "data" / "partitions")
        if cold < 0.5:
            pytest.skip(f"the kernel forgot only {cold:.0%} of the file")
        before = metric(client, "tidelog_loop_lag_seconds")
        assert len(read_all(client, topic_id)) == 96
        after = metric(client, "tidelog_loop_lag_seconds")
        assert metric(client, "tidelog_cold_reads_total") > 0
        assert after < max(0.1, before * 2)


def test_topics_survive_kill_9(tmp_path: Path) -> None:
    """Whatever was answered of creating, changing and deleting holds after a kill right behind the answer."""
    with broker_process(tmp_path) as broker, broker.connect() as client:
        for name in "abc":
            topic(client, f"default/{name}")
        from tidelog.protocol.messages import AlterTopic, DeleteTopic

        client.ask(AlterTopic("default/b", partitions=3, settings={"durability": "written"}))
        client.ask(DeleteTopic("default/a"))
        broker.kill()
    with broker_process(tmp_path) as broker, broker.connect() as client:
        reply = client.ask(Metadata()).message
        assert isinstance(reply, MetadataReply)
        assert [(one.name, len(one.partitions), one.given) for one in reply.topics] == [
            ("default/b", 3, ["durability"]),
            ("default/c", 1, []),
        ]
