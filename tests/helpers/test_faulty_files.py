"""Faults fire where they were put, as often as they were asked for, and say so."""

from __future__ import annotations

import errno

import pytest

from tidelog.broker.storage.files import Files, MemoryFiles

from .faulty_files import FaultyFiles
from .power_loss import PowerLossFiles


def test_the_nth_call_fails_once() -> None:
    """The third write fails with its errno, keeps what the disk had room for, and the fourth works."""
    files = FaultyFiles(MemoryFiles())
    file = files.create("a.log", 8)
    fault = files.fail("write_at", errno.ENOSPC, after=2, keep=1)
    file.write_at(0, b"xx")
    file.write_at(2, b"xx")
    assert fault.fired == 0
    with pytest.raises(OSError, match="No space left on device") as caught:
        file.write_at(4, b"yy")
    assert (caught.value.errno, caught.value.filename, fault.fired) == (errno.ENOSPC, "a.log", 1)
    file.write_at(6, b"zz")
    assert file.read_at(0, 8) == b"xxxxy\0zz"


def test_only_matching_paths_fail() -> None:
    """A fault for segments leaves other files alone, and goes on until it is healed."""
    files = FaultyFiles(MemoryFiles())
    fault = files.fail("create", errno.EMFILE, path="*.log", times=None)
    files.create("snapshot")
    for name in ("a.log", "b.log"):
        with pytest.raises(OSError, match="Too many open files"):
            files.create(name)
    files.heal()
    files.create("c.log")
    assert (files.list_folder(""), fault.fired, files.calls["create"]) == (["c.log", "snapshot"], 2, 4)


@pytest.mark.parametrize("inner", [MemoryFiles(), PowerLossFiles()])
def test_sync_many_fails_for_one(inner: Files) -> None:
    """In a round of three files the fault takes its own, and the others are synced."""
    files = FaultyFiles(inner)
    fault = files.fail("sync", errno.EIO, path="b")
    results = files.sync_many([files.create(name) for name in ("a", "b", "c")])
    assert [result and result.errno for result in results] == [None, errno.EIO, None]
    assert fault.fired == 1


def test_hold_runs_between_two_steps() -> None:
    """What holds an operation up sees the state before it, and the operation goes on."""
    files = FaultyFiles(MemoryFiles())
    seen: list[list[str]] = []
    files.create("a")
    held = files.hold("rename", lambda: seen.append(files.list_folder("")))
    files.rename("a", "b")
    assert (seen, files.list_folder(""), held.fired) == ([["a"]], ["b"], 1)


def test_full_disk_and_cold_pages_can_be_claimed() -> None:
    """Questions can be answered wrongly too: no space left, not in memory."""
    files = FaultyFiles(MemoryFiles())
    file = files.create("a", 4)
    assert (files.free_bytes() > 0, file.is_resident(0, 4)) == (True, True)
    files.fail("free_bytes", errno.ENOSPC)
    files.fail("is_resident", errno.EAGAIN)
    assert (files.free_bytes(), file.is_resident(0, 4)) == (0, False)
