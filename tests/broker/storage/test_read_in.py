"""What nobody wrote is read without taking memory or disk space for it."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.files.descriptor import DescriptorFile
from tidelog.broker.storage.read_in import read_in

from .driver import FOLDER, SMALL, append, open_log, read_values, sync

FIRST = f"{FOLDER}/00000000000000000000.log"


def blocks(file: DescriptorFile) -> int:
    """How many blocks are taken for a file: one that is full of holes on tmpfs grows when they are mapped and read."""
    return os.fstat(file.fd).st_blocks


def test_what_is_read_in_stands_at_its_place() -> None:
    """From the start on the bytes are those of the file, holes are zeros; what lies before the start is not read."""
    file = MemoryFiles().create("one", 1 << 20)
    file.write_at(0, b"before")
    file.write_at(300_000, b"here")
    file.write_at((1 << 20) - 3, b"end")
    data = bytes(read_in(file, 4096))
    assert data == bytes(300_000) + b"here" + bytes((1 << 20) - 300_007) + b"end"


def test_an_empty_file_is_read_in() -> None:
    """A file without bytes is one without bytes."""
    assert bytes(read_in(MemoryFiles().create("one"), 0)) == b""


@pytest.mark.parametrize("size", [10_000, 14_000, 18_000, 22_000])
def test_a_recovery_takes_no_space_for_what_was_never_written(size: int) -> None:
    """Looking for batches behind the end leaves the holes of the file alone: on a full tmpfs no page is to be had."""
    files, settings = MemoryFiles(), replace(SMALL, segment_bytes=1 << 18)
    log = open_log(files, settings)
    append(log, b"one")
    sync(log)
    append(log, b"two")
    append(log, b"three", b"3" * size)
    file = files.open(FIRST)
    assert isinstance(file, DescriptorFile)
    used = log._state.segments.active.end_position  # pyright: ignore[reportPrivateUsage]
    file.write_at(used - 8000, b"x" * 8000)  # the last batch is torn
    before = blocks(file)
    log = open_log(files, settings, epoch=2)
    assert read_values(log) == [b"one", b"two"]
    assert log.recovery.is_torn
    assert blocks(file) == before
