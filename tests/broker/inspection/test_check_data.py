"""The offline check: every kind of damage is found where it is, harmless things are told apart, nothing changes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.helpers.stored_data import MESSAGES, content_of, flip, segments_of, store

from tidelog.broker.errors import StorageError, UnsupportedError
from tidelog.broker.inspection import Findings, ReadOnlyFiles, Severity, check_data


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three segments of 200 batches of 10 records; copied by each test that damages it."""
    root = tmp_path_factory.mktemp("stored") / "data"
    store(root, [b"v" * 40] * 10, batches=200)
    assert len(segments_of(root)) == 3
    return root


@pytest.fixture
def data(stored: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(stored, tmp_path / "data"))


def check(root: Path) -> Findings:
    """Check a folder, and hold the check to changing nothing."""
    before = content_of(root)
    files = ReadOnlyFiles(root)
    try:
        return check_data(files)
    finally:
        files.close()
        assert content_of(root) == before


def only(findings: Findings, severity: Severity) -> tuple[str, str]:
    """Path and text of the one finding of a severity."""
    found = [finding for finding in findings.found if finding.severity is severity]
    assert len(found) == 1, found
    return found[0].path, found[0].text


def test_intact_data_has_no_findings(stored: Path) -> None:
    """After a clean stop every log, segment, batch and record is counted and nothing is found."""
    findings = check(stored)
    assert findings.found == []
    assert (findings.logs, findings.segments, findings.records) == (2, 4, 2000 + 4)


@pytest.mark.parametrize("place", ["leader", "local", "body", "columns"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_flipped_bit_in_a_batch_is_damage(data: Path, number: int, place: str) -> None:
    """One bit anywhere in a batch is found, with the offsets that are lost; the batches around it still count."""
    segment = segments_of(data)[number]
    position = 4096 + 1248 + {"leader": 20, "local": 44, "body": 100, "columns": 600}[place]
    flip(segment, position)
    findings = check(data)
    assert [(f.path, f.end - f.start) for f in findings.damages if f.start is not None and f.end is not None] == [
        (f"{MESSAGES}/{segment.name}", 10)
    ]
    assert findings.records == 2000 + 4 - 10


def test_a_bad_copy_of_a_header_page_is_damage_that_costs_nothing(data: Path) -> None:
    """One bad copy is reported and the segment still read."""
    flip(segments_of(data)[1], 2048 + 20)
    findings = check(data)
    path, text = only(findings, Severity.DAMAGE)
    assert path.endswith(segments_of(data)[1].name)
    assert text.startswith("header page, copy at 2048: expected checksum")
    assert findings.records == 2004


def test_a_segment_without_a_header_is_damage(data: Path) -> None:
    """With both copies gone the segment cannot be read, and the others are."""
    flip(segments_of(data)[1], 20)
    flip(segments_of(data)[1], 2048 + 20)
    findings = check(data)
    assert "no valid copy" in only(findings, Severity.DAMAGE)[1]
    assert findings.records < 2004


def test_a_missing_segment_is_damage(data: Path) -> None:
    """The offsets of a segment that is gone are reported as lost from the one before."""
    middle = segments_of(data)[1]
    middle.unlink()
    findings = check(data)
    damage = next(finding for finding in findings.damages)
    assert (damage.start, damage.end) == (int(middle.stem), int(segments_of(data)[1].stem))


def test_a_segment_of_another_log_is_damage(data: Path) -> None:
    """A file that was moved here is not taken for this log's, whatever its name."""
    first, second, _ = segments_of(data)
    second.write_bytes(first.read_bytes())
    assert "the file was moved here" in only(check(data), Severity.DAMAGE)[1]


@pytest.mark.parametrize("suffix", [".offsets", ".times"])
def test_a_damaged_index_is_a_note(data: Path, suffix: str) -> None:
    """An index is a cache: damage to it is told, and loses nothing."""
    index = sorted((data / MESSAGES).glob(f"*{suffix}"))[0]
    flip(index / "data.ninja", 12)
    path, text = only(check(data), Severity.NOTE)
    assert path == f"{MESSAGES}/{index.name}"
    assert text == "the index is damaged; it is made again when it is needed"


def test_an_index_of_another_segment_is_a_note(data: Path) -> None:
    """An intact index beside the wrong segment is noticed by its tag."""
    first, second = sorted((data / MESSAGES).glob("*.offsets"))[:2]
    shutil.rmtree(first)
    shutil.copytree(second, first)
    assert "index is damaged" in only(check(data), Severity.NOTE)[1]


def test_a_damaged_snapshot_is_a_note(data: Path) -> None:
    """Without a snapshot a start reads more; nothing is lost."""
    snapshot = sorted((data / MESSAGES).glob("snapshot-*"))[-1]
    flip(snapshot, 40)
    assert "snapshot is damaged" in only(check(data), Severity.NOTE)[1]


def test_a_damaged_slot_of_the_mark_is_a_note(data: Path) -> None:
    """The other slot counts."""
    flip(data / MESSAGES / "synced", 16)
    assert "1 of 2 slots" in only(check(data), Severity.NOTE)[1]


def test_a_torn_write_behind_the_mark_is_a_note(data: Path) -> None:
    """Bytes that no sync ever vouched for are what a killed broker leaves: told, not counted as loss."""
    last = segments_of(data)[-1]
    used = last.read_bytes().rstrip(b"\0")
    with last.open("r+b") as file:
        file.seek(len(used) + 64 & ~7)
        file.write(b"TLB1 half a batch")
    path, text = only(check(data), Severity.NOTE)
    assert path.endswith(last.name)
    assert "a write that was cut off" in text


def test_damage_to_the_facts_is_damage(data: Path) -> None:
    """The broker's own log is checked like any other."""
    flip(next((data / "meta").glob("*.log")), 4096 + 130)
    assert only(check(data), Severity.DAMAGE)[0].startswith("meta/")


@pytest.mark.parametrize("is_folder_left", [False, True])
def test_a_partition_that_is_gone_is_damage(data: Path, is_folder_left: bool) -> None:
    """A log that the facts name and that is missing is the loss of all its records, whatever folders are left."""
    shutil.rmtree(data / "partitions" / "1-0")
    if is_folder_left:
        (data / MESSAGES).mkdir(parents=True)
    assert only(check(data), Severity.DAMAGE) == (
        "partitions/1-0",
        "partition 0 of default/t is missing with all its records",
    )


def test_facts_that_are_gone_are_damage(data: Path) -> None:
    """Without them nobody knows whose the partitions are."""
    shutil.rmtree(data / "meta")
    (data / "meta").mkdir()
    assert only(check(data), Severity.DAMAGE) == ("meta", "the broker's own facts are missing")


def test_strays_are_notes(data: Path) -> None:
    """Files and folders that no broker made are named."""
    (data / "partitions" / "77-0").mkdir()
    (data / MESSAGES / "notes.txt").write_text("")
    (data / MESSAGES / f"{10:020d}.recovered").write_text("")
    assert {finding.path for finding in check(data).found} == {
        "partitions/77-0",
        f"{MESSAGES}/notes.txt",
        f"{MESSAGES}/{10:020d}.recovered",
    }


def test_a_folder_that_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    """Nothing is called intact that is not a data directory of this version."""
    with pytest.raises(StorageError, match=r"VERSION"):
        check(tmp_path)
    (tmp_path / "VERSION").write_text("9\n")
    with pytest.raises(UnsupportedError, match=r"format 1"):
        check(tmp_path)


def test_read_only_files_refuse_to_change_anything(data: Path) -> None:
    """The promise does not rest on the check's good behaviour: its files cannot be written."""
    files = ReadOnlyFiles(data)
    for change in (
        lambda: files.create("x"),
        lambda: files.write("x", b""),
        lambda: files.rename("VERSION", "x"),
        lambda: files.unlink("VERSION"),
        lambda: files.make_folder("x"),
        lambda: files.remove_folder("meta"),
        lambda: files.open("VERSION").write_at(0, b"9"),
    ):
        with pytest.raises(OSError):
            change()
    files.close()
