"""A log on a tmpfs that is full: there a hole that is read through a map wants a page, and none is to be had."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.crash.test_queue_races import join, now_us, settled
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.open_files import open_files
from tests.helpers.queue_broker import QueueBroker, queue_settings
from tests.helpers.queue_member import Notebook, QueueMember
from tests.helpers.raw_peer import RawClient

from tidelog import Client
from tidelog.broker.storage.files import DiskFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import (
    AcquireReply,
    CreateTopic,
    DeleteTopic,
    DescribeGroups,
    DescribeGroupsReply,
    ErrorInfo,
    Fetch,
    FetchPosition,
    FetchReply,
    Produce,
    ProduceReply,
    Settling,
    TopicReply,
)

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.crash, pytest.mark.skipif(os.geteuid() != 0, reason="mounting a tmpfs needs root")]

WRITE = """
import os, sys
from tests.crash.test_full_tmpfs import open_log
from tidelog.broker.errors import DiskFullError
from tidelog.protocol.batch import encode_batch, iterate_headers

log = open_log(sys.argv[1])
try:
    while True:
        data = encode_batch([b"x" * 50_000], timestamp_us=7)
        log.append(data, [header for _, header in iterate_headers(data)], now_us=1)
except DiskFullError:
    print(log.end_offset, flush=True)
os._exit(0)  # a kill: nothing is closed
"""

OPEN = """
import sys
from tests.crash.test_full_tmpfs import open_log
from tidelog.broker.errors import DiskFullError

try:
    print(open_log(sys.argv[1]).end_offset)
except DiskFullError:
    print("DISK_FULL")
"""


def open_log(folder: str) -> Log:
    """Open the log of this test."""
    files = DiskFiles(Path(folder))
    settings = LogSettings(segment_bytes=8 << 20)
    return Log.open(files, "log", log_id=1, settings=settings, epoch=None, now_us=1)


def run(script: str, folder: Path) -> tuple[int, str]:
    """Run a script of its own, for it may die; its exit code and what it printed."""
    command = [sys.executable, "-c", script, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    return done.returncode, done.stdout + done.stderr


@contextmanager
def mounted(folder: Path, size: str) -> Generator[Path]:
    """Mount a tmpfs there until the block is left."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 4 MiB."""
    with mounted(tmp_path, "4m") as folder:
        yield folder


def test_a_log_is_recovered_on_a_full_tmpfs(tmpfs: Path) -> None:
    """A start on a disk that is full says so, and once there is room it has all that was stored."""
    filler = tmpfs / "filler"
    filler.write_bytes(bytes(1 << 20))
    code, stored = run(WRITE, tmpfs)
    assert (code, int(stored) > 20) == (0, True)
    assert run(OPEN, tmpfs) == (0, "DISK_FULL\n")
    filler.unlink()
    assert run(OPEN, tmpfs)[0] == 0


def create(client: RawClient, name: str) -> int:
    """Make a topic of one partition and return its id."""
    reply = client.ask(CreateTopic(name, partitions=1)).message
    assert isinstance(reply, TopicReply)
    return reply.topic.id


def produce(client: RawClient, topic_id: int) -> ErrorInfo | None:
    """Store 50 kB; returns why not."""
    reply = client.ask(Produce(topic_id, 0), encode_batch([bytes(50_000)], timestamp_us=7)).message
    assert isinstance(reply, ProduceReply)
    return reply.results[0].error


def removed_but_open(broker: BrokerProcess, folder: Path) -> list[str]:
    """Files below a folder that are removed and that the process keeps open."""
    return [
        name for name in open_files(broker.process.pid) if name.startswith(str(folder)) and name.endswith("(deleted)")
    ]


def test_a_deleted_topic_gives_its_space_back(tmp_path: Path) -> None:
    """On a disk that one topic filled, others can be stored as soon as its deletion is answered."""
    with mounted(tmp_path, "12m") as folder, BrokerProcess(folder / "data", log=folder / "log") as broker:
        client, reader = RawClient(broker.address), RawClient(broker.address)
        client.greet()
        reader.greet()
        for round_number in range(3):
            topic_id = create(client, f"default/t{round_number}")
            reader.send(Fetch([FetchPosition(topic_id, 0, 0)], max_wait_us=30_000_000))
            assert produce(client, topic_id) is None
            fetched = reader.reply().message
            assert isinstance(fetched, FetchReply)
            assert fetched.results[0].bulk_bytes > 50_000
            stored = 1
            while (error := produce(client, topic_id)) is None:
                stored += 1
            assert (error.error().code, stored > 150) == ("DISK_FULL", True)
            assert produce(client, topic_id) is not None
            assert client.ask(DeleteTopic(f"default/t{round_number}")).error is None
            assert removed_but_open(broker, folder) == []
            free = os.statvfs(folder)
            assert free.f_bavail * free.f_frsize > 8 << 20
        client.close()
        reader.close()


def fill(folder: Path) -> Path:
    """Leave no page of a tmpfs free; returns what takes the room."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 16)):
            pass
    return filler


def counts(seen: QueueBroker) -> tuple[int, int, int]:
    """Where the group is: its floor, how much is available, how much is leased."""
    reply = seen.ask(DescribeGroups(["default/g"], details=True))
    assert isinstance(reply, DescribeGroupsReply)
    (part,) = reply.groups[0].topics[0].partitions
    return part.floor, part.available, part.leased


def leased(member: QueueMember) -> str:
    """Lease all there is; what keeps it from that."""
    reply = member.acquire(1_000).message()
    assert isinstance(reply, AcquireReply)
    member.held.clear()
    member.harvest()
    return reply.errors[0].error.error().code if reply.errors else "OK"


def test_a_queue_group_on_a_full_tmpfs(tmp_path: Path) -> None:
    """Settles and leases are refused with the reason and change nothing, and messages are read; once there is room all
    goes on without a restart, and a kill -9 takes nothing of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, "16m") as folder, BrokerProcess(folder / "data", log=tmp_path / "log") as broker:
        seen = QueueBroker(broker, "orders")
        seen.make_group("g", queue_settings(visibility_s=600, max_attempts=4, backoff_s=0.01))
        with Client(broker.url) as client:
            seen.publish(client, "p", 1_000)
            member = join(seen, Notebook("orders", now_us, lambda _event: None), "g", 1)
            assert leased(member) == "OK"
            assert settled(member, 1, *member.held, Settling.ACCEPT, *range(0, 1_000, 2)) == "OK"
            filler, number, result = fill(folder), 1, "OK"
            while result == "OK" and number < 1_000:  # what was reserved for the log is used up first
                number += 1
                result = settled(member, number, *member.held, Settling.RETURN)
                if result == "OK":
                    result = leased(member)
            before = counts(seen)
            assert (result, before) in [("DISK_FULL", (1, 0, 500)), ("DISK_FULL", (1, 500, 0))]
            if before[2]:
                assert settled(member, number + 1, *member.held, Settling.ACCEPT) == "DISK_FULL"
            else:
                assert leased(member) == "DISK_FULL"
            assert counts(seen) == before
            with client.replay("orders") as replay:
                assert len([*replay.messages()]) == 1_000
        filler.unlink()
        if not before[2]:
            assert leased(member) == "OK"
        assert settled(member, number + 2, *member.held, Settling.ACCEPT) == "OK"
        assert counts(seen) == (1_000, 0, 0)
        broker.restart()
        assert counts(seen) == (1_000, 0, 0)
