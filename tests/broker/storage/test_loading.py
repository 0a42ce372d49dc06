"""Sealed segments are opened and indexed when somebody reads there, by a task if he may not wait, and let go again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tidelog.broker.errors import CorruptError
from tidelog.broker.storage.files import DiskFiles, MemoryFiles
from tidelog.broker.storage.log import Log

from .driver import FOLDER, SMALL, append, contents, open_log, read_values, restored, sync, upkeep

FEW = replace(SMALL, max_open_segments=2)
VALUES = [b"%d" % n + b"x" * 500 for n in range(60)]


def fill(log: Log) -> None:
    """Make ten segments of six batches each."""
    for value in VALUES:
        append(log, value)
        sync(log)
        upkeep(log)


def without_indexes() -> MemoryFiles:
    """Return such a log after a clean stop, its stored indexes lost."""
    files = MemoryFiles()
    log = open_log(files, FEW)
    fill(log)
    log.close()
    kept = {path: data for path, data in contents(files).items() if ".offsets" not in path and ".times" not in path}
    return restored(kept)


def open_segments(log: Log) -> int:
    """Return how many segments have their file open."""
    return sum(segment.file is not None for segment in log._segments.all)  # pyright: ignore[reportPrivateUsage]


def test_an_index_that_was_made_anew_is_stored() -> None:
    """So that no later start makes it again, and its segment can be closed."""
    files = without_indexes()
    log = open_log(files, FEW, epoch=2)
    assert read_values(log) == VALUES
    assert log.upkeep_waits
    assert [step for step in upkeep(log) if step.startswith("store")] != []
    assert not log.upkeep_waits
    assert read_values(log) == VALUES
    assert open_segments(log) <= 3
    assert len([path for path in contents(files) if path.endswith(".offsets")]) == 9


def test_segments_with_damage_are_closed_too(tmp_path: Path) -> None:
    """However many there are, descriptors do not grow with them; each is indexed again when it is asked for."""
    log = open_log(DiskFiles(tmp_path), FEW)
    fill(log)
    for path in sorted((tmp_path / FOLDER).glob("*.log"))[:-1]:
        file = os.open(path, os.O_RDWR)
        os.pwrite(file, b"\xff" * 64, 4096 + 624 + 8)
        os.close(file)
    for _ in range(2):
        for segment in range(9):
            with pytest.raises(CorruptError):
                read_values(log, 6 * segment)
            assert read_values(log, 6 * segment + 2, upto=6 * segment + 6) == VALUES[6 * segment + 2 : 6 * segment + 6]
            upkeep(log)
    assert open_segments(log) <= 3
