"""A log on a tmpfs that is full: there a hole that is read through a map wants a page, and none is to be had."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.broker.storage.files import DiskFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings

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


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 4 MiB."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_log_is_recovered_on_a_full_tmpfs(tmpfs: Path) -> None:
    """A start on a disk that is full says so, and once there is room it has all that was stored."""
    filler = tmpfs / "filler"
    filler.write_bytes(bytes(1 << 20))
    code, stored = run(WRITE, tmpfs)
    assert (code, int(stored) > 20) == (0, True)
    assert run(OPEN, tmpfs) == (0, "DISK_FULL\n")
    filler.unlink()
    assert run(OPEN, tmpfs)[0] == 0
