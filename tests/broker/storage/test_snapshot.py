"""Snapshots: what they cover, when they are taken, and that a start with one equals a start without."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.errors import CorruptError, UnsupportedError
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.fold import Freezing, Section
from tidelog.broker.storage.snapshot import decode_snapshot, encode_snapshot

from .counting_fold import CountingFold
from .driver import FOLDER, LOG_ID, SMALL, append, contents, open_log, read_values, restored, sync, upkeep

SECOND_US = 1_000_000
OFTEN = replace(SMALL, segment_bytes=1 << 20, snapshot_interval_bytes=3000)


def snapshots(files: MemoryFiles) -> list[int]:
    """Offsets of the snapshots in the folder."""
    prefix = f"{FOLDER}/snapshot-"
    return sorted(int(path.removeprefix(prefix)) for path in contents(files) if path.startswith(prefix))


@given(
    st.integers(0, 1 << 62),
    st.lists(
        st.builds(Section, st.integers(0, 99), st.integers(0, 9), st.binary(max_size=30), st.booleans()), max_size=5
    ),
)
@settings(deadline=None, max_examples=60)
def test_a_snapshot_comes_back_as_it_was(offset: int, sections: list[Section]) -> None:
    """Its offset and every section in order."""
    found = decode_snapshot(b"".join(encode_snapshot(LOG_ID, offset, sections)), LOG_ID)
    assert (found.offset, list(found.sections)) == (offset, sections)


@given(st.binary(max_size=100))
@settings(deadline=None, max_examples=60)
def test_any_other_bytes_are_refused(data: bytes) -> None:
    """With a typed error."""
    with pytest.raises(CorruptError):
        decode_snapshot(data, LOG_ID)


def test_a_cut_or_foreign_snapshot_is_refused() -> None:
    """At every length, and for another log."""
    data = b"".join(encode_snapshot(LOG_ID, 7, [Section(16, 1, b"state")]))
    for length in range(len(data)):
        with pytest.raises(CorruptError):
            decode_snapshot(data[:length], LOG_ID)
    with pytest.raises(CorruptError, match="expected a snapshot of log 5"):
        decode_snapshot(data, 5)


def test_a_snapshot_waits_for_the_sync() -> None:
    """It never covers more than what is proven: taken at the end, written once that is synced."""
    files = MemoryFiles()
    log = open_log(files, OFTEN)
    append(log, b"x" * 4000)
    assert "snapshot" not in upkeep(log, SECOND_US)
    append(log, b"later")
    assert snapshots(files) == []
    sync(log)
    assert "snapshot" in upkeep(log, SECOND_US)
    assert snapshots(files) == [1]


def test_snapshots_follow_bytes_but_not_too_closely() -> None:
    """Every 3,000 bytes here, but never within a second, and two are kept."""
    files = MemoryFiles()
    log = open_log(files, OFTEN)
    taken: list[int] = []
    for n in range(40):
        append(log, b"x" * 400)
        sync(log)
        now = SECOND_US + n * SECOND_US // 20
        if "snapshot" in upkeep(log, now):
            taken.append(n)
    assert taken == [5, 25]
    assert snapshots(files) == [6, 26]
    append(log, b"x" * 4000)
    sync(log)
    upkeep(log, 99 * SECOND_US)
    assert snapshots(files) == [26, 41]


def test_a_large_state_is_not_written_again_and_again() -> None:
    """Not before four times its own size was appended."""
    files = MemoryFiles()
    fold = CountingFold(padding=10_000)
    log = open_log(files, OFTEN, fold=fold)
    appended = 0
    sizes: list[int] = []
    for n in range(120):
        append(log, b"x" * 1000)
        appended += 1128
        sync(log)
        if "snapshot" in upkeep(log, n * SECOND_US):
            sizes.append(appended)
            appended = 0
    assert len(sizes) == 3
    assert all(size > 40_000 for size in sizes[1:])


def test_each_roll_takes_one() -> None:
    """So that a start never reads more than a segment."""
    files = MemoryFiles()
    log = open_log(files)
    for n in range(14):
        append(log, b"x" * 500)
        sync(log)
        upkeep(log, n * SECOND_US)
    assert snapshots(files) == [7, 13]


def test_a_clean_stop_takes_one() -> None:
    """Unless the last one covers everything already."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, b"a")
    log.close()
    assert snapshots(files) == [1]
    log = open_log(files, epoch=2)
    before = contents(files)
    log.close()
    assert contents(files) == before


def test_a_fold_is_the_same_live_and_after_any_restart() -> None:
    """From the newest snapshot, from the older one, and from the log alone; each batch is applied once."""
    files = MemoryFiles()
    live = CountingFold()
    log = open_log(files, OFTEN, fold=live)
    for n in range(40):
        append(log, b"%d" % n, b"x" * 400, now_us=5 + n)
        sync(log)
        upkeep(log, (n + 1) * SECOND_US)
    assert live.count == 80
    assert live.applied[3] == (6, 1, 8)
    older, newer = snapshots(files)
    saved = contents(files)
    applied: list[int] = []
    for gone in ([], [newer], [newer, older]):
        left = {path: data for path, data in saved.items() if path[-20:] not in {f"{offset:020d}" for offset in gone}}
        fold = CountingFold()
        open_log(restored(left), OFTEN, epoch=2, fold=fold)
        assert (fold.count, fold.last) == (live.count, live.last)
        applied.append(len(fold.applied))
    assert applied == [(80 - newer) // 2, (80 - older) // 2, 40]


def test_a_fold_goes_on_over_the_segments_since_the_snapshot() -> None:
    """Several segments may have followed it."""
    files = MemoryFiles()
    log = open_log(files, fold=CountingFold())
    append(log, b"a")
    log.close()
    log = open_log(files, epoch=2, fold=CountingFold())
    for _ in range(30):
        append(log, b"x" * 500)
        sync(log)
    fold = CountingFold()
    log = open_log(files, epoch=3, fold=fold)
    assert (fold.count, log.recovery.snapshot_offset) == (31, 1)
    assert len(read_values(log)) == 31


def test_a_section_of_a_later_version_refuses_the_open() -> None:
    """Unless it is marked as optional."""
    files = MemoryFiles()
    log = open_log(files, fold=CountingFold(section_id=77))
    append(log, b"a")
    log.close()
    with pytest.raises(UnsupportedError, match="section 77"):
        open_log(files, epoch=2, fold=CountingFold())
    with pytest.raises(UnsupportedError, match="section 77"):
        open_log(files, epoch=2)
    path = f"{FOLDER}/snapshot-{1:020d}"
    snapshot = decode_snapshot(files.read(path), LOG_ID)
    sections = [replace(section, optional=True) for section in snapshot.sections]
    files.write(path, b"".join(encode_snapshot(LOG_ID, 1, sections)))
    assert read_values(open_log(files, epoch=2, fold=CountingFold())) == [b"a"]


def test_a_snapshot_that_cannot_be_written_is_tried_again() -> None:
    """With a newer state; the log is not harmed."""
    inner = MemoryFiles()
    files = FaultyFiles(inner)
    log = open_log(files, OFTEN)
    append(log, b"x" * 4000)
    sync(log)
    fault = files.fail("write_at", errno.ENOSPC, path="*snapshot*", keep=10)
    upkeep(log, SECOND_US)
    assert fault.fired == 1
    assert snapshots(inner) == []
    append(log, b"y" * 4000)
    sync(log)
    upkeep(log, 3 * SECOND_US)
    assert snapshots(inner) == [2]
    assert not log.fenced


def test_a_damaged_snapshot_goes_with_the_next_one() -> None:
    """It does not take the place of one of the two that are kept."""
    files = MemoryFiles()
    log = open_log(files)
    for n in range(2):
        append(log, b"%d" % n)
        log.close()
        log = open_log(files, epoch=2 + n)
    path = f"{FOLDER}/snapshot-{2:020d}"
    data = bytearray(files.read(path))
    data[-1] ^= 1
    files.write(path, data)
    log = open_log(files, epoch=5)
    assert log.recovery.snapshot_offset == 1
    append(log, b"2")
    log.close()
    assert snapshots(files) == [1, 3]


def test_the_state_is_packed_by_the_thread() -> None:
    """The owner of the log only holds on to it, so that a large one does not keep it from its work."""
    packed: list[str] = []

    class Fold(CountingFold):
        def freeze(self) -> Callable[[], list[Section]]:
            pack = super().freeze()

            def noted() -> list[Section]:
                packed.append("packed")
                return pack()

            return noted

    log = open_log(settings=OFTEN, fold=Fold())
    append(log, b"x" * 4000)
    sync(log)
    task = log.begin_upkeep(SECOND_US, SECOND_US)
    assert task is not None
    assert packed == []
    task.run()
    assert packed == ["packed"]


def test_a_large_state_is_held_on_to_a_part_at_each_upkeep() -> None:
    """The write begins once all of it is held, of the state of then; a clean stop does not wait for upkeeps."""

    class Slow(Freezing):
        def __init__(self, pack: Callable[[], list[Section]]) -> None:
            self.pack, self.left = pack, 2

        @property
        def is_held(self) -> bool:
            return not self.left

        def hold_more(self) -> None:
            self.left -= 1

        def __call__(self) -> list[Section]:
            assert self.is_held
            return self.pack()

    class Fold(CountingFold):
        def freeze(self) -> Callable[[], list[Section]]:
            return Slow(super().freeze())

    files = MemoryFiles()
    log = open_log(files, OFTEN, fold=Fold())
    append(log, b"x" * 4000)
    sync(log)
    upkeep(log, SECOND_US)
    assert (snapshots(files), log.upkeep_waits) == ([], True)
    append(log, b"y")
    upkeep(log, SECOND_US + 1)
    assert (snapshots(files), log.upkeep_waits) == ([], True)
    upkeep(log, SECOND_US + 2)
    assert snapshots(files) == [1]
    append(log, b"z")
    log.close()
    assert snapshots(files) == [1, 3]


def test_a_large_section_comes_back_from_the_disk() -> None:
    """It is written as a piece of its own, between small ones."""
    files = MemoryFiles()
    log = open_log(files, OFTEN, fold=CountingFold(padding=200_001))
    append(log, b"last")
    log.close()
    fold = CountingFold()
    log = open_log(files, OFTEN, epoch=2, fold=fold)
    assert (fold.count, fold.last, log.recovery.notes, log.recovery.snapshot_offset) == (1, b"last", [], 1)
