"""After a crash the log holds a durable prefix of what was appended, and all that was promised."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from tests.helpers.disk_model import Loss
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.errors import LogFencedError, StorageError
from tidelog.broker.storage.damage import DamagedRange
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.recovery import LogSpec
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import BatchHeader, stamp_local
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES, decode_segment_header

from .counting_fold import CountingFold
from .driver import (
    FOLDER,
    LOG_ID,
    SMALL,
    append,
    append_all,
    batch,
    contents,
    open_log,
    read_values,
    restored,
    sync,
    upkeep,
)

FIRST = f"{FOLDER}/00000000000000000000.log"
SECOND_US = 1_000_000
NOTHING = Loss.NOTHING_SURVIVES


def synced_and_not(*, unsynced: list[bytes]) -> tuple[dict[str, bytes | None], int, int]:
    """Two synced values, then unsynced ones, a batch each; where the unsynced part starts and ends in the file."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, b"one")
    append(log, b"two")
    sync(log)
    start = len((contents(files)[FIRST] or b"").rstrip(b"\0")) + 7 & -8
    for value in unsynced:
        append(log, value)
    saved = contents(files)
    return saved, start, len((saved[FIRST] or b"").rstrip(b"\0")) + 7 & -8


def cut(saved: dict[str, bytes | None], length: int) -> MemoryFiles:
    """The same files, the first segment zero from `length` on."""
    data = (saved[FIRST] or b"")[:length]
    return restored({**saved, FIRST: data.ljust(SMALL.segment_bytes, b"\0")})


def test_a_tail_torn_at_any_byte_is_cut_there() -> None:
    """What was synced stays, of the rest whole batches only; new batches follow and the torn bytes never return."""
    saved, start, end = synced_and_not(unsynced=[b"three", b"four"])
    last = start + (end - start) // 2 // 8 * 8
    for length in range(start, end + 1):
        log = open_log(cut(saved, length), epoch=2)
        whole = 4 if length == end else 3 if length >= last else 2
        used = (saved[FIRST] or b"")[:length].rstrip(b"\0")
        if len(used) == len((saved[FIRST] or b"").rstrip(b"\0")):
            whole = 4  # what was cut are the zeros at the batch's end
        elif len(used) == len((saved[FIRST] or b"")[:last].rstrip(b"\0")):
            whole = 3
        assert read_values(log) == [b"one", b"two", b"three", b"four"][:whole]
        assert log.damaged == []
        assert append(log, b"next").base_offset == whole
        again = open_log(cut_copy(log), epoch=3)
        assert read_values(again)[whole:] == [b"next"]


def cut_copy(log: Log) -> MemoryFiles:
    """The files of a log that is killed now."""
    files = log._segments.files  # pyright: ignore[reportPrivateUsage]
    assert isinstance(files, MemoryFiles)
    return restored(contents(files))


def test_a_copied_batch_keeps_what_it_knew_of_earlier_ones() -> None:
    """How far the log was synced when it was written still tells damage from a torn tail."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, b"one")
    sync(log)
    append(log, b"two")
    before = bytes(log.batch_at(1))
    log = open_log(files, epoch=2)
    assert log.recovery.copied_bytes > 0
    after = BatchHeader.read(log.batch_at(1))
    assert after.synced_upto == BatchHeader.read(before).synced_upto == 1
    assert bytes(log.batch_at(1))[:40] == before[:40]


def test_a_recovered_tail_is_durable_before_it_is_served() -> None:
    """Batches that were only written come back after a kill, and then survive a power loss that keeps nothing."""
    files = PowerLossFiles()
    log = open_log(files)
    append(log, b"one")
    sync(log)
    append(log, b"two")
    append(log, b"three")
    files = files.kill()
    log = open_log(files, epoch=2)
    assert read_values(log) == [b"one", b"two", b"three"]
    assert log.synced_offset == 3
    assert log.recovery.copied_bytes > 0
    log = open_log(files.crash(random.Random(1), pages=NOTHING, names=NOTHING), epoch=3)
    assert read_values(log) == [b"one", b"two", b"three"]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_recovery_leaves_a_durable_mark(is_new: bool) -> None:
    """After a power loss the next start knows what is proven: nothing is copied, and rot is not taken for a tear."""
    files = PowerLossFiles()
    log = open_log(files)
    append(log, b"one")
    if is_new:
        sync(log)
        upkeep(log, SECOND_US)
    else:
        files = files.kill()
        assert open_log(files, epoch=2).recovery.copied_bytes > 0
    files = files.crash(random.Random(4), pages=NOTHING, names=NOTHING)
    file = files.open(FIRST)
    (old,) = file.read_at(SEGMENT_HEADER_BYTES + 120, 1)
    log = open_log(files, epoch=3)
    assert (read_values(log), log.recovery.copied_bytes) == ([b"one"], 0)
    file.write_at(SEGMENT_HEADER_BYTES + 120, bytes([old ^ 1]))
    assert open_log(files.kill(), epoch=4).damaged == [DamagedRange(0, 1)]


def test_a_failed_sync_and_a_restart_lose_nothing_that_is_acknowledged_later() -> None:
    """The sync fails, the process restarts, the repeat is found in the log, the power goes: the batch is there."""
    files = PowerLossFiles()
    log = open_log(files)
    append(log, b"one")
    sync(log)
    append(log, b"two")
    files.fail_syncs(lambda path: path.endswith((".log", ".next", ".recovered")))
    sync(log)
    assert files.failed_syncs == 1
    assert log.fenced
    assert log.synced_offset == 1
    with pytest.raises(LogFencedError):
        append(log, b"three")
    files = files.kill()
    log = open_log(files, epoch=2)
    assert read_values(log) == [b"one", b"two"]
    log = open_log(files.crash(random.Random(2), pages=NOTHING, names=NOTHING), epoch=3)
    assert read_values(log) == [b"one", b"two"]


def test_a_start_without_anything_new_writes_no_segment() -> None:
    """After kill -9 the mark is exact: the log goes on in the same file."""
    saved, _, _ = synced_and_not(unsynced=[])
    files = restored(saved)
    log = open_log(files, epoch=2)
    assert log.recovery.copied_bytes == 0
    append(log, b"three")
    assert [path for path in contents(files) if path.endswith(".log")] == [FIRST]


def test_garbage_behind_an_empty_tail_starts_a_new_segment() -> None:
    """Bytes of unknown origin are left behind, never written over."""
    saved, start, _ = synced_and_not(unsynced=[b"torn"])
    files = cut(saved, start + 60)
    log = open_log(files, epoch=2)
    assert log.recovery.is_torn
    assert log.end_offset == 2
    append(log, b"three")
    assert f"{FOLDER}/00000000000000000002.log" in contents(files)
    assert (files.read(FIRST))[start : start + 60] == (saved[FIRST] or b"")[start : start + 60]
    assert read_values(log) == [b"one", b"two", b"three"]


def with_synced_upto(saved: dict[str, bytes | None], position: int, offset: int) -> dict[str, bytes | None]:
    """Let the batch at a position say that everything below `offset` was synced when it was written."""
    data = bytearray(saved[FIRST] or b"")
    seed = decode_segment_header(data[:SEGMENT_HEADER_BYTES]).seed
    stamp_local(data, position, synced_upto=offset, segment_seed=seed, segment_position=position)
    return {**saved, FIRST: bytes(data)}


@pytest.mark.parametrize(("proof", "damaged"), [(3, [DamagedRange(2, 3)]), (2, [])])
def test_a_bad_batch_is_damage_if_a_later_one_knows_that_it_was_synced(proof: int, damaged: list[DamagedRange]) -> None:
    """Else it is a torn tail, whatever intact batches lie behind it."""
    saved, start, end = synced_and_not(unsynced=[b"three", b"four"])
    last = start + (end - start) // 2 // 8 * 8
    saved = with_synced_upto(saved, last, proof)
    data = bytearray(saved[FIRST] or b"")
    data[start + 20] ^= 1
    log = open_log(restored({**saved, FIRST: bytes(data)}), epoch=2)
    assert log.damaged == damaged
    assert log.end_offset == (4 if damaged else 2)
    if damaged:
        assert read_values(log, 3) == [b"four"]
    assert read_values(log, 0, upto=2) == [b"one", b"two"]


def test_proof_further_away_than_the_window_does_not_count() -> None:
    """Only what could have been unsynced together with it may be torn with it."""
    narrow = replace(SMALL, max_unsynced_bytes=500)
    files = MemoryFiles()
    log = open_log(files, narrow)
    append(log, b"one")
    sync(log)
    start = len((contents(files)[FIRST] or b"").rstrip(b"\0")) + 7 & -8
    append(log, b"x" * 600)
    last = len((contents(files)[FIRST] or b"").rstrip(b"\0")) + 7 & -8
    append(log, b"three")
    saved = with_synced_upto(contents(files), last, 2)
    data = bytearray(saved[FIRST] or b"")
    data[start + 20] ^= 1
    assert open_log(restored({**saved, FIRST: bytes(data)}), narrow, epoch=2).damaged == []
    wide = replace(SMALL, max_unsynced_bytes=5000)
    assert open_log(restored({**saved, FIRST: bytes(data)}), wide, epoch=2).damaged == [DamagedRange(1, 2)]


def test_the_header_names_the_largest_window_ever_in_force() -> None:
    """Opened with a larger one, then with a smaller one again: the larger one still counts."""
    files = MemoryFiles()
    for window in (1000, 9000, 500):
        log = open_log(files, replace(SMALL, max_unsynced_bytes=window))
        append(log, b"x")
        log.close()
    header = decode_segment_header(files.read(FIRST)[:SEGMENT_HEADER_BYTES])
    assert header.max_unsynced_bytes == 9000
    assert read_values(open_log(files, epoch=2)) == [b"x"] * 3


def test_a_torn_batch_with_an_intact_one_behind_it_is_never_stored_twice() -> None:
    """The retry of the torn batch has its size; after another restart the old later one does not come back."""
    saved, start, _ = synced_and_not(unsynced=[b"three", b"four"])
    data = bytearray(saved[FIRST] or b"")
    data[start + 120] ^= 1
    files = restored({**saved, FIRST: bytes(data)})
    log = open_log(files, epoch=2)
    assert log.end_offset == 2
    append(log, b"three")
    sync(log)
    log = open_log(files, epoch=3)
    assert read_values(log) == [b"one", b"two", b"three"]
    append(log, b"four")
    log = open_log(files, epoch=4)
    assert read_values(log) == [b"one", b"two", b"three", b"four"]


def test_a_batch_of_a_lower_epoch_ends_the_log() -> None:
    """Left-overs of an earlier run are not taken for a continuation."""
    files = MemoryFiles()
    log = open_log(files, epoch=5)
    append(log, b"one")
    log._epoch = 4  # pyright: ignore[reportPrivateUsage]
    append(log, b"stale")
    assert read_values(open_log(files, epoch=6)) == [b"one"]


def test_the_copy_of_a_copy_keeps_everything() -> None:
    """Killed after each append, the log grows by one small segment a start and stays whole."""
    files = MemoryFiles()
    values = [b"%d" % n for n in range(6)]
    for epoch, value in enumerate(values, 1):
        append(open_log(files, epoch=epoch), value)
    log = open_log(files, epoch=9)
    assert read_values(log) == values
    assert [log.epoch_of(offset) for offset in range(6)] == [1, 2, 3, 4, 5, 6]


def test_recovery_reads_from_the_snapshot_only() -> None:
    """A clean stop leaves nothing to read; after kill -9 only what came later is."""
    files = MemoryFiles()
    log = open_log(files, LogSettings())
    for _ in range(50):
        append(log, b"x" * 1000)
    log.close()
    log = open_log(files, LogSettings(), epoch=2)
    assert (log.recovery.scanned_bytes, log.recovery.snapshot_offset) == (0, 50)
    size = len(batch(b"later"))
    append(log, b"later")
    log = open_log(files, LogSettings(), epoch=3)
    assert (log.recovery.scanned_bytes, log.recovery.copied_bytes) == (size, size)


def test_unfinished_files_are_removed_at_start() -> None:
    """Copies and rewrites that were not in place, temporaries, and prepared segments without a header."""
    saved, _, _ = synced_and_not(unsynced=[])
    files = restored(saved)
    for name in ("00000000000000000001.recovered", "00000000000000000000.rewritten", "snapshot-1.tmp", "0001.next"):
        files.write(f"{FOLDER}/{name}", b"unfinished")
    files.make_folder(f"{FOLDER}/00000000000000000000.offsets.tmp")
    files.make_folder(f"{FOLDER}/00000000000000000777.times")
    log = open_log(files, epoch=2)
    assert files.list_folder(FOLDER) == ["00000000000000000000.log", "synced"]
    assert read_values(log) == [b"one", b"two"]


def test_a_log_without_its_segments_says_what_is_lost() -> None:
    """The mark still knows how far it went, so no offset is used again."""
    saved, _, _ = synced_and_not(unsynced=[])
    log = open_log(restored({path: data for path, data in saved.items() if path != FIRST}), epoch=2)
    assert log.recovery.damaged == [DamagedRange(0, 2)]
    assert log.start_offset == log.end_offset == 2
    assert append(log, b"three").base_offset == 2


def test_many_logs_share_their_rounds() -> None:
    """All tails copied, one sync, all renamed, one more sync for the marks."""
    inner = MemoryFiles()
    specs = [LogSpec(f"p/{n}/messages", (n << 32) | 1, SMALL, epoch=1) for n in range(5)]
    for log in Log.open_many(inner, specs, now_us=1):
        assert isinstance(log, Log)
        append(log, log.folder.encode())
    files = FaultyFiles(inner)
    logs = Log.open_many(files, specs, now_us=2)
    assert files.calls["sync_many"] == 2
    for log in logs:
        assert isinstance(log, Log)
        assert read_values(log) == [log.folder.encode()]


def test_one_log_that_does_not_open_leaves_the_others() -> None:
    """Its place in the result holds the error."""
    inner = MemoryFiles()
    specs = [LogSpec(f"{n}", (n << 32) | 1, SMALL, epoch=1) for n in range(3)]
    for log in Log.open_many(inner, specs, now_us=1):
        assert isinstance(log, Log)
        append(log, b"x")
    files = FaultyFiles(inner)
    fault = files.fail("sync", 5, path="1/*.recovered")
    results = Log.open_many(files, specs, now_us=2)
    assert fault.fired == 1
    assert [type(result) for result in results] == [Log, StorageError, Log]
    (log,) = Log.open_many(inner, [specs[1]], now_us=3)
    assert isinstance(log, Log)
    assert read_values(log) == [b"x"]


def test_a_new_log_is_durable_once_it_is_open() -> None:
    """Its folders, its first segment and the names of both survive a power loss."""
    files = PowerLossFiles()
    Log.open(files, "a/b/c", log_id=LOG_ID, settings=SMALL, now_us=1)
    after = files.crash(random.Random(3), pages=NOTHING, names=NOTHING)
    assert "00000000000000000000.log" in after.list_folder("a/b/c")
    log = Log.open(after, "a/b/c", log_id=LOG_ID, settings=SMALL, now_us=2)
    assert log.recovery.notes == []
    assert not log.recovery.is_new


def test_a_log_opens_in_the_epoch_it_is_given_or_its_last() -> None:
    """Batches carry it; a lower one than the log has seen is not used."""
    files = MemoryFiles()
    append(open_log(files, epoch=7), b"a")
    assert open_log(files, epoch=None).epoch == 7
    assert open_log(files, epoch=3).epoch == 7
    log = open_log(files, epoch=9)
    append(log, b"b")
    log.raise_epoch(12)
    append(log, b"c")
    assert [BatchHeader.read(log.batch_at(offset)).leader_epoch for offset in range(3)] == [7, 9, 12]
    assert [log.epoch_end(epoch) for epoch in (7, 8, 9, 12)] == [1, 1, 2, 3]


def test_a_run_that_was_cut_by_a_kill_survives_as_a_prefix() -> None:
    """Several batches of one append are not one unit: a prefix of them may be there."""
    files = PowerLossFiles()
    log = open_log(files)
    files.crash_at(1, random.Random(0))
    with pytest.raises(Crashed):
        append_all(log, batch(b"one"), batch(b"two"), batch(b"three"))
    found = read_values(open_log(files.kill(), epoch=2))
    assert found == [b"one", b"two", b"three"][: len(found)]
    assert len(found) < 3


class SizedFold(CountingFold):
    """A fold that is false while it is empty."""

    def __len__(self) -> int:
        return self.count


def test_a_fold_that_is_empty_is_a_fold() -> None:
    """It is given its snapshot like any other."""
    files, fold = MemoryFiles(), SizedFold()
    log = open_log(files, fold=CountingFold())
    append(log, b"a")
    log.close()
    open_log(files, fold=fold)
    assert len(fold) == 1
