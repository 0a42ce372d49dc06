"""A sealed segment that somebody cut while it was mapped is damage for whoever reads there, and the end of nobody."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.broker.storage.files import DiskFiles
from tidelog.broker.storage.log import Log

from .driver import FOLDER, append, open_log, read_readable, read_values, sync, upkeep

VALUES = [b"%d" % n + b"x" * 500 for n in range(20)]


def in_a_child(check: Callable[[], None]) -> int:
    """Return the status of a process that ran the check: a signal would take the test run along."""
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException as failure:
            print(f"{failure!r}", flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def filled(root: Path) -> Log:
    """A log of four segments, all of them open and mapped, their indexes stored."""
    log = open_log(DiskFiles(root))
    for value in VALUES:
        append(log, value)
        sync(log)
    upkeep(log)
    assert read_values(log) == VALUES
    return log


def cut(root: Path, size: int) -> None:
    """Cut the second segment, which holds offsets 6 to 11."""
    os.truncate(root / FOLDER / f"{6:020d}.log", size)


@pytest.mark.parametrize(("size", "left"), [(0, 6), (4096, 6), (5000, 7), (4096 + 2 * 624, 8), (7000, 10)])
def test_what_was_cut_off_is_damaged_and_nothing_else(tmp_path: Path, size: int, left: int) -> None:
    """Batches before the cut and other segments are served."""
    log = filled(tmp_path)

    def check() -> None:
        cut(tmp_path, size)
        found = read_readable(log)
        assert sorted(found) == [*range(left), *range(12, 20)]
        assert all(found[n] == VALUES[n] for n in found)
        assert [(r.start, r.end) for r in log.damaged] == [(left, 12)]

    assert in_a_child(check) == 0


@pytest.mark.parametrize("ask", ["append time", "timestamp", "last below", "batch"])
def test_lookups_pass_over_what_was_cut_off(tmp_path: Path, ask: str) -> None:
    """By time and by offset."""
    log = filled(tmp_path)

    def check() -> None:
        cut(tmp_path, 5000)
        if ask == "append time":
            assert log.offset_for_append_time(0) == 0
            assert log.offset_for_append_time(2) == 20
        elif ask == "timestamp":
            assert log.offset_for_timestamp(8) == 20
        elif ask == "last below":
            assert log.end_for_timestamp(8) == 20
        else:
            assert bytes(log.batch_at(6)) != b""
        assert read_values(log, 12) == VALUES[12:]

    assert in_a_child(check) == 0


def test_a_check_meets_the_cut_that_was_made_since_it_was_asked_for(tmp_path: Path) -> None:
    """The thread looks how long the file is then."""
    log = filled(tmp_path)
    task = log.begin_verify(6, max_bytes=10_000)

    def check() -> None:
        cut(tmp_path, 5000)
        task.run()
        assert [(r.start, r.end) for r in log.finish_verify(task)] == [(7, 12)]

    assert in_a_child(check) == 0
