"""A data folder of the first version is read by this one."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.golden.data_folder import AFTER_RESTART, BEFORE_STOP, FOLDER, TOPIC
from tests.helpers.broker_process import BrokerProcess
from tidelog import Client

FILES = [
    "VERSION",
    "meta/00000000000000000000.log",
    "meta/synced",
    "partitions/1-0/messages/00000000000000000000.log",
    "partitions/1-0/messages/00000000000000000004.log",
    "partitions/1-0/messages/synced",
    "partitions/1-1/messages/00000000000000000000.log",
    "partitions/1-1/messages/synced",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a copy of the golden folder to open."""
    return Path(shutil.copytree(FOLDER, tmp_path / "data"))


def test_the_files_are_where_the_documentation_says():
    """Every log has its segments under their base offsets, its mark and its snapshots; sealed ones have indexes."""
    names = {path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file()}
    assert set(FILES) <= names
    messages = "partitions/1-0/messages"
    index_files = ["checksum", "data.ninja", "dtype.ninja", "order.ninja", "shape.ninja", "type.ninja"]
    indexes = {f"{messages}/{'0' * 20}.{kind}/{name}" for kind in ("offsets", "times") for name in index_files}
    snapshots = {
        f"meta/snapshot-{'0' * 19}4",
        f"{messages}/snapshot-{'0' * 19}5",
        f"partitions/1-1/messages/snapshot-{'0' * 20}",
    }
    assert names - set(FILES) == indexes | snapshots


@pytest.mark.process
def test_everything_in_it_is_read_as_it_was_produced(folder: Path):
    """Values, keys, headers, priorities and times are those that the first version stored, and it can go on."""
    expected = [*BEFORE_STOP, *AFTER_RESTART]
    with BrokerProcess(folder) as broker, Client(broker.url) as client:
        messages = list(client.replay(TOPIC, start="earliest").messages())
        assert [(message.partition, message.offset) for message in messages] == [(0, at) for at in range(6)]
        for message, record in zip(messages, expected, strict=True):
            assert (message.key, message.value) == (record.key, record.value)
            assert tuple(message.headers.items()) == record.headers
            assert (message.priority, message.timestamp_us) == (record.priority, record.timestamp_us)
        assert client.produce(TOPIC, b"goes on", partition=0).offset == 6


@pytest.mark.process
def test_the_offline_check_finds_it_intact(folder: Path):
    """Every checksum and index of the first version still checks."""
    command = [sys.executable, "-m", "tidelog", "check", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
