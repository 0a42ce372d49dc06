"""Cold ranges are read in by a worker before the reply's head leaves, and a disk that fails is a typed error."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
import trio
from tests.helpers.config_effects import metric
from tests.helpers.running_broker import running_broker

from tidelog.broker.storage.files import DiskFiles
from tidelog.broker.storage.files.descriptor import DescriptorFile
from tidelog.protocol.batch import decode_batch, encode_batch
from tidelog.protocol.errors import StorageError
from tidelog.protocol.messages import Fetch, FetchPosition, FetchReply, Get, Ping, Produce

pytestmark = pytest.mark.trio


class Disk:
    """What the test does to every file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.warmed = 0
        self.gate: threading.Event | None = None
        self.error: OSError | None = None
        self.on_loop = False
        main = threading.current_thread()

        def is_resident(_file: DescriptorFile, _position: int, _length: int) -> bool:
            return False

        def warm(_file: DescriptorFile, _position: int, _length: int) -> None:
            self.on_loop |= threading.current_thread() is main
            self.warmed += 1
            if self.gate is not None:
                assert self.gate.wait(10)
            if self.error is not None:
                raise self.error

        monkeypatch.setattr(DescriptorFile, "is_resident", is_resident)
        monkeypatch.setattr(DescriptorFile, "warm", warm)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk of which nothing is in the page cache."""
    return Disk(monkeypatch)


async def test_a_cold_fetch_does_not_stop_the_loop(tmp_path: Path, disk: Disk) -> None:
    """While a worker waits for the disk other requests are answered; then the bytes come."""
    async with running_broker(files=DiskFiles(tmp_path)) as running:
        peer, other = await running.greeted(), await running.greeted()
        topic_id = await running.topic(peer)
        await peer.ask(Produce(topic_id, 0), encode_batch([b"cold"], timestamp_us=5))
        disk.gate = threading.Event()
        await peer.send(Fetch([FetchPosition(topic_id, 0, 0)]))
        with trio.fail_after(5):
            while not disk.warmed:
                await other.ask(Ping())
        assert (await other.ask(Ping())).error is None
        assert peer.reply_nowait() is None
        disk.gate.set()
        assert decode_batch((await peer.reply()).bulk).values.to_list() == [b"cold"]
        assert not disk.on_loop
        assert await metric(other, "tidelog_cold_reads_total") >= 1


async def test_a_disk_that_fails_is_an_error_in_the_result(tmp_path: Path, disk: Disk) -> None:
    """EIO is told as STORAGE_ERROR with the file and its reason; the connection goes on."""
    async with running_broker(files=DiskFiles(tmp_path)) as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer)
        await peer.ask(Produce(topic_id, 0), encode_batch([b"x"], timestamp_us=5))
        disk.error = OSError(errno.EIO, "Input/output error")
        reply = await peer.ask(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=60_000_000))
        assert isinstance(reply.message, FetchReply)
        (result,) = reply.message.results
        assert result.error is not None
        error = result.error.error()
        assert isinstance(error, StorageError)
        assert " at 4096 to work, found EIO: Input/output error" in error.message
        assert len(reply.bulk) == 0
        assert isinstance((await peer.ask(Get("default/t", 1, 0, 0))).error, StorageError)
        disk.error = None
        reply = await peer.ask(Get("default/t", 1, 0, 0))
        assert decode_batch(reply.bulk).values.to_list() == [b"x"]
