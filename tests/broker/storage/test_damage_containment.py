"""One flipped bit anywhere costs at most the batch it lies in; the log says so and serves everything else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidelog.broker.errors import CorruptError, StorageError
from tidelog.broker.storage.damage import DamagedRange
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.storage.log import Log
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES, decode_segment_header

from .driver import FOLDER, SMALL, append, contents, open_log, read_readable, read_values, restored, sync, upkeep

FIRST = f"{FOLDER}/00000000000000000000.log"
VALUES = [b"zero", b"one", b"two", b"three", b"four"]
SECOND_US = 1_000_000

Saved = dict[str, bytes | None]


def three_batches(*, clean: bool) -> Saved:
    """One segment with the offsets 0-1, 2 and 3-4 in three synced batches."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, *VALUES[:2])
    append(log, VALUES[2])
    append(log, *VALUES[3:])
    sync(log)
    if clean:
        log.close()
    return contents(files)


def two_segments() -> tuple[Saved, list[bytes]]:
    """A sealed segment with stored indexes, and a second one, after a clean stop."""
    files = MemoryFiles()
    log = open_log(files)
    values = [b"%d:" % n + b"x" * 400 for n in range(12)]
    for value in values:
        append(log, value)
    sync(log)
    assert "store 0" in upkeep(log, SECOND_US)
    log.close()
    assert len([path for path in contents(files) if path.endswith(".log")]) == 2
    return contents(files), values


def flipped(saved: Saved, path: str, bit: int) -> MemoryFiles:
    """The same files with one bit the other way round."""
    data = bytearray(saved[path] or b"")
    data[bit // 8] ^= 1 << bit % 8
    return restored({**saved, path: bytes(data)})


def used_bits(saved: Saved, path: str, start: int = 0, *, soak: int, shift: int = 0) -> Iterator[int]:
    """One bit of every byte up to the last that is not zero, another one for another `shift`; all with --soak."""
    for byte in range(start, len((saved[path] or b"").rstrip(b"\0"))):
        yield from range(byte * 8, byte * 8 + 8) if soak > 1 else [byte * 8 + (byte + shift) % 8]


def check_contained(log: Log, values: list[bytes], *, lost: int) -> None:
    """What is read is right, what is missing is reported, at most `lost` offsets are, and no offset is reused."""
    assert log.end_offset == len(values)
    found = read_readable(log)
    missing = [offset for offset in range(len(values)) if offset not in found]
    assert all(found[offset] == values[offset] for offset in found)
    assert all(any(r.start <= offset < r.end for r in log.damaged) for offset in missing)
    assert len(missing) <= lost


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_a_flip_in_any_byte_of_a_batch_costs_that_batch_alone(clean: bool, soak: int) -> None:
    """Every byte of every synced batch: at most its own two offsets are lost, and new ones go behind."""
    saved = three_batches(clean=clean)
    for bit in used_bits(saved, FIRST, SEGMENT_HEADER_BYTES, soak=soak, shift=3 * clean):
        log = open_log(flipped(saved, FIRST, bit), epoch=2)
        check_contained(log, VALUES, lost=2)
        assert append(log, b"next").base_offset == len(VALUES)
        sync(log)
        assert read_values(log, len(VALUES)) == [b"next"]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_a_flip_in_any_byte_of_the_header_page_costs_nothing(clean: bool, soak: int) -> None:
    """One copy of the header is enough; the damage to the other one is reported."""
    saved = three_batches(clean=clean)
    bits = [bit for bit in used_bits(saved, FIRST, soak=soak, shift=clean) if bit // 8 % 2048 < 48 and bit < 4096 * 8]
    assert len(bits) >= 96
    for bit in [*bits, *range(48 * 8, 2048 * 8, 1997), *range(2096 * 8, 4096 * 8, 1997)]:
        log = open_log(flipped(saved, FIRST, bit), epoch=2)
        check_contained(log, VALUES, lost=0)
        assert any(FIRST in note for note in log.recovery.notes)


def test_a_header_page_that_is_gone_quarantines_the_segment() -> None:
    """Nothing of it is served or cut, its offsets are reported, and new ones go behind them."""
    saved = three_batches(clean=True)
    data = saved[FIRST] or b""
    files = restored({**saved, FIRST: bytes(SEGMENT_HEADER_BYTES) + data[SEGMENT_HEADER_BYTES:]})
    log = open_log(files, epoch=2)
    assert log.damaged == [DamagedRange(0, 5)]
    with pytest.raises(CorruptError) as caught:
        log.read(3, max_bytes=100)
    assert caught.value.details == {"start": 0, "end": 5, "next": 5}
    assert append(log, b"next").base_offset == 5
    assert files.read(FIRST)[SEGMENT_HEADER_BYTES:] == data[SEGMENT_HEADER_BYTES:]


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "killed"])
def test_a_flip_in_any_byte_of_the_synced_mark_costs_nothing(clean: bool, soak: int) -> None:
    """The other slot, or the start of the segment, says enough."""
    saved = three_batches(clean=clean)
    path = f"{FOLDER}/synced"
    flips = 0
    for bit in used_bits(saved, path, soak=soak, shift=clean):
        if 48 * 8 <= bit < 4096 * 8:
            continue
        flips += 1
        log = open_log(flipped(saved, path, bit), epoch=2)
        check_contained(log, VALUES, lost=0)
        assert log.damaged == []
    assert flips >= 48 + 40


def test_a_flip_in_any_byte_of_the_snapshot_costs_nothing(soak: int) -> None:
    """A damaged snapshot is refused and said so; the log is read instead."""
    saved = three_batches(clean=True)
    path = f"{FOLDER}/snapshot-00000000000000000005"
    for bit in used_bits(saved, path, soak=soak):
        log = open_log(flipped(saved, path, bit), epoch=2)
        check_contained(log, VALUES, lost=0)
        assert any("snapshot 5" in note for note in log.recovery.notes)
        assert log.recovery.snapshot_offset is None


@pytest.mark.parametrize("suffix", ["offsets", "times"])
def test_a_flip_in_any_byte_of_an_index_costs_a_rebuild_alone(suffix: str, soak: int) -> None:
    """A damaged index is not believed: every lookup answers as before."""
    saved, values = two_segments()
    parts = [path for path in saved if f"0.{suffix}/" in path and saved[path] is not None]
    assert len(parts) == 6
    for path in parts:
        data = saved[path] or b""
        for byte in range(0, len(data), 1 if soak > 1 or len(data) < 64 else 5):
            log = open_log(flipped(saved, path, byte * 8 + byte % 8), epoch=2)
            assert read_values(log, 3, max_bytes=1, upto=5) == values[3:5]
            assert log._segments.rebuilt == 1  # pyright: ignore[reportPrivateUsage]
            assert log.damaged == []


def test_a_missing_index_is_rebuilt() -> None:
    """Without its index folders a sealed segment reads as before."""
    saved, values = two_segments()
    kept = {path: data for path, data in saved.items() if ".offsets" not in path and ".times" not in path}
    log = open_log(restored(kept), epoch=2)
    assert read_values(log) == values
    assert log._segments.rebuilt == 1  # pyright: ignore[reportPrivateUsage]


def test_a_stale_index_is_rebuilt() -> None:
    """An index that belongs to another file of the same name is not used."""
    saved, values = two_segments()
    other = MemoryFiles()
    log = open_log(other, now_us=99)
    for n in range(40):
        append(log, b"%d" % n + b"y" * 100)
    sync(log)
    upkeep(log, SECOND_US)
    foreign = {path: data for path, data in contents(other).items() if "0.offsets" in path or "0.times" in path}
    assert len(foreign) == 14
    log = open_log(restored({**saved, **foreign}), epoch=2)
    assert read_values(log, max_bytes=1) == values
    assert log._segments.rebuilt == 1  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("shift", [-8, 8, 128])
def test_an_index_that_lies_is_found_out(shift: int) -> None:
    """Its checksums hold, its positions do not: the batch it leads to is verified, and the index rebuilt."""
    saved, values = two_segments()
    files = restored(saved)
    seed = decode_segment_header(files.read(FIRST)[:SEGMENT_HEADER_BYTES]).seed
    path = FIRST.replace(".log", ".offsets")
    offsets = files.open_array(path, seed)
    assert offsets is not None
    wrong = offsets.copy()
    wrong[1:-1, 1] += shift
    files.save_array(path, wrong, seed)
    for offset, max_bytes in ((4, 1), (0, 2500)):
        log = open_log(files, epoch=2)
        assert read_values(log, offset, max_bytes=max_bytes) == values[offset:]
        assert log._segments.rebuilt == 1  # pyright: ignore[reportPrivateUsage]
        assert log.damaged == []


def test_an_index_of_too_few_batches_is_rebuilt() -> None:
    """It was stored for a segment that ended earlier."""
    saved, values = two_segments()
    files = restored(saved)
    seed = decode_segment_header(files.read(FIRST)[:SEGMENT_HEADER_BYTES]).seed
    for suffix in (".offsets", ".times"):
        path = FIRST.replace(".log", suffix)
        array = files.open_array(path, seed)
        assert array is not None
        files.save_array(path, array[:-2], seed)
    log = open_log(files, epoch=2)
    assert read_values(log) == values
    assert log._segments.rebuilt == 1  # pyright: ignore[reportPrivateUsage]


def test_a_page_that_reads_as_zeros_is_damage_below_the_mark() -> None:
    """Synced batches that are zeros now are reported, not taken for the end of the log."""
    saved = three_batches(clean=False)
    data = (saved[FIRST] or b"")[:SEGMENT_HEADER_BYTES]
    log = open_log(restored({**saved, FIRST: data.ljust(SMALL.segment_bytes, b"\0")}), epoch=2)
    assert log.end_offset == 5
    assert log.damaged == [DamagedRange(0, 5)]
    assert log.take_new_damage() == [DamagedRange(0, 5)]
    assert append(log, b"next").base_offset == 5


@pytest.mark.parametrize(
    "length", [0, 100, SEGMENT_HEADER_BYTES, SEGMENT_HEADER_BYTES + 130, SEGMENT_HEADER_BYTES + 500]
)
def test_a_truncated_segment_loses_only_what_was_cut(length: int) -> None:
    """A file that became shorter is damage for the offsets that were in it, and new ones go behind."""
    saved = three_batches(clean=False)
    log = open_log(restored({**saved, FIRST: (saved[FIRST] or b"")[:length]}), epoch=2)
    check_contained(log, VALUES, lost=5)
    assert append(log, b"next").base_offset == 5
    sync(log)
    assert read_values(log, 5) == [b"next"]


def test_a_missing_last_segment_is_damage() -> None:
    """The mark proves that there was more: its offsets are reported and never given out again."""
    saved, values = two_segments()
    last = max(path for path in saved if path.endswith(".log"))
    base = int(last.removeprefix(f"{FOLDER}/").removesuffix(".log"))
    log = open_log(restored({path: data for path, data in saved.items() if path != last}), epoch=2)
    assert log.damaged == [DamagedRange(base, 12)]
    assert read_readable(log) == dict(enumerate(values[:base]))
    assert append(log, b"next").base_offset == 12


def test_a_missing_middle_segment_is_damage() -> None:
    """Readers get its range and go on behind it."""
    files = MemoryFiles()
    log = open_log(files)
    values = [b"%d:" % n + b"x" * 400 for n in range(24)]
    for value in values:
        append(log, value)
    sync(log)
    log.close()
    saved = contents(files)
    bases = sorted(int(path[4:24]) for path in saved if path.endswith(".log"))
    assert len(bases) == 4
    del saved[f"{FOLDER}/{bases[1]:020d}.log"]
    log = open_log(restored(saved), epoch=2)
    readable = read_readable(log)
    assert log.damaged == [DamagedRange(bases[1], bases[2])]
    assert sorted(readable) == [*range(bases[1]), *range(bases[2], 24)]
    assert all(readable[offset] == values[offset] for offset in readable)


def test_swapped_segments_are_quarantined() -> None:
    """A file under another one's name is recognised by its header page and not served."""
    saved, values = two_segments()
    first, last = sorted(path for path in saved if path.endswith(".log"))
    log = open_log(restored({**saved, first: saved[last], last: saved[first]}), epoch=2)
    assert log.end_offset == len(values)
    assert read_readable(log) == {}
    assert log.damaged == [DamagedRange(0, 12)]
    assert len([note for note in log.recovery.notes if "base offset" in note]) == 2


def test_a_segment_of_another_log_is_quarantined() -> None:
    """A copied file is recognised by the log id in its header page."""
    saved = three_batches(clean=True)
    log = open_log(restored(saved), epoch=2, log_id=(9 << 32) | 1)
    assert read_readable(log) == {}
    assert any("expected log 38654705665" in note for note in log.recovery.notes)


def test_a_batch_that_rots_while_the_log_is_open_is_found_by_a_read() -> None:
    """The lookup that lands on it reports its range, and the batches around it are served."""
    files = MemoryFiles()
    log = open_log(files)
    append(log, *VALUES[:2])
    at = SEGMENT_HEADER_BYTES + len((contents(files)[FIRST] or b"").rstrip(b"\0")[SEGMENT_HEADER_BYTES:]) + 7 & -8
    append(log, VALUES[2])
    append(log, *VALUES[3:])
    sync(log)
    files.open(FIRST).write_at(at + 20, b"\xff")
    with pytest.raises(CorruptError) as caught:
        log.read(2, max_bytes=10)
    assert caught.value.details == {"start": 2, "end": 3, "next": 3}
    assert log.take_new_damage() == [DamagedRange(2, 3)]
    assert log.take_new_damage() == []
    assert read_readable(log) == {0: b"zero", 1: b"one", 3: b"three", 4: b"four"}
    assert append(log, b"five").base_offset == 5
    assert read_values(log, 3) == [b"three", b"four", b"five"]


def test_a_recorded_quarantine_is_no_news() -> None:
    """What is known from before is refused to readers but not reported again."""
    log = open_log()
    append(log, *VALUES)
    log.quarantine(1, 3)
    assert log.damaged == [DamagedRange(1, 3)]
    assert log.take_new_damage() == []
    with pytest.raises(CorruptError):
        log.read(2, max_bytes=10)


@pytest.mark.parametrize("is_clean", [False, True])
def test_a_closed_log_is_not_a_damaged_one(is_clean: bool) -> None:
    """Whoever still asks one is told so, and nothing in it is called damaged."""
    log = open_log(settings=SMALL)
    for _ in range(20):
        append(log, b"x" * 500)
        sync(log)
    log.close(clean=is_clean)
    for ask in (
        lambda: log.read(0, max_bytes=1),
        lambda: log.read(19, max_bytes=1),
        lambda: log.batch_at(19),
        lambda: log.begin_verify(3, max_bytes=1),
        lambda: log.offset_for_append_time(0),
        lambda: log.offset_for_timestamp(0),
        lambda: log.end_for_timestamp(1 << 60),
    ):
        with pytest.raises(StorageError, match="closed"):
            ask()
    assert log.damaged == []
