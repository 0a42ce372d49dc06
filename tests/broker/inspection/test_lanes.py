"""The lane index of a segment, as `check` and `dump` read it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.storage.driver import FOLDER, LOG_ID, SMALL, append_all, open_log, sync, upkeep

from tidelog.broker.inspection.dump import dump
from tidelog.broker.inspection.findings import Findings
from tidelog.broker.inspection.log_check import check_log
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.errors import CorruptError

FIRST = f"{0:020d}.lanes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log whose first segment has messages of priorities 4, 9, 9, 4, 9, 9."""
    log = open_log(DiskFiles(tmp_path), SMALL)
    for number in range(15):
        append_all(log, encode_batch([bytes(500)], timestamp_us=7, priority=(4, 9, 9)[number % 3]))
        sync(log)
        upkeep(log)
    log.close()
    return tmp_path / FOLDER


def notes(folder: Path) -> list[str]:
    """What `check` finds in it."""
    findings = Findings()
    check_log(DiskFiles(folder.parent), FOLDER, LOG_ID, findings)
    return [f"{one.path}: {one.text}" for one in findings.found]


def test_a_good_lane_index_has_no_findings(folder: Path) -> None:
    """Nor has a segment without one."""
    assert (folder / FIRST).exists()
    assert notes(folder) == []


def test_a_damaged_lane_index_is_a_note(folder: Path) -> None:
    """It is a cache: nothing is lost by it."""
    data = bytearray((folder / FIRST / "data.ninja").read_bytes())
    data[20] ^= 1
    (folder / FIRST / "data.ninja").write_bytes(data)
    assert notes(folder) == [f"{FOLDER}/{FIRST}: the index is damaged; it is made again when it is needed"]


def test_a_lane_index_that_says_something_else_is_a_note(folder: Path) -> None:
    """With a good checksum, and other priorities than the batches have."""
    log = open_log(DiskFiles(folder.parent), SMALL, epoch=2)
    _start, _end, lanes = log.lanes_at(0, 9)
    assert lanes is not None
    seed = log._segments.all[0].seed  # pyright: ignore[reportPrivateUsage]
    wrong = lanes.copy()
    wrong.add(0, 1, 9)
    log.close()
    DiskFiles(folder).save_array(FIRST, wrong.stored(), seed)
    assert notes(folder) == [
        f"{FOLDER}/{FIRST}: the index does not fit its segment; messages come in another order, none is lost"
    ]


def test_a_lane_index_is_shown(folder: Path) -> None:
    """Each priority, the highest first, with its messages and the ranges of them."""
    shown = [(entry.what, entry.fields) for entry in dump(DiskFiles(folder), FIRST)]
    assert shown[0][1]["priorities"] == 2
    assert shown[1:] == [
        ("lane", {"priority": 9, "messages": 4}),
        ("run", {"start": 1, "end": 3}),
        ("run", {"start": 4, "end": 6}),
        ("lane", {"priority": 4, "messages": 2}),
        ("run", {"start": 0, "end": 1}),
        ("run", {"start": 3, "end": 4}),
    ]


def test_a_damaged_lane_index_is_not_shown(folder: Path) -> None:
    """Nothing in it could be believed."""
    (folder / FIRST / "data.ninja").write_bytes(bytes(64))
    with pytest.raises(CorruptError):
        list(dump(DiskFiles(folder), FIRST))
