"""The model of a disk keeps what a disk keeps, loses what a disk may lose, and does both often enough to find bugs."""

from __future__ import annotations

import errno
import random
from collections import Counter

import numpy as np
import pytest

from tidelog.broker.storage.files import File

from .disk_model import PAGE_BYTES, Loss
from .power_loss import Crashed, PowerLossFiles


def new_file(files: PowerLossFiles, path: str = "f", size: int = 3 * PAGE_BYTES) -> File:
    """Create a file whose name, size and zeros are durable."""
    file = files.create(path, size)
    file.sync()
    files.sync_folder("")
    return file


def outcomes(files: PowerLossFiles, path: str = "f", states: int = 300) -> Counter[bytes | None]:
    """What the file holds after many power losses; None where it is not there."""
    found: Counter[bytes | None] = Counter()
    for seed in range(states):
        after = files.crash(random.Random(seed))
        found[after.read(path) if after.exists(path) else None] += 1
    return found


def test_synced_bytes_survive() -> None:
    """What was written before a sync is there in every state, byte for byte, under a synced name."""
    files = PowerLossFiles()
    file = new_file(files, size=8)
    file.write_at(2, b"abc")
    file.sync()
    assert set(outcomes(files)) == {b"\0\0abc\0\0\0"}


def test_unsynced_bytes_survive_or_not() -> None:
    """Of two unsynced writes to a page none, the first or both may survive."""
    files = PowerLossFiles()
    file = new_file(files, size=2)
    file.write_at(0, b"x")
    file.write_at(1, b"y")
    assert set(outcomes(files)) == {b"\0\0", b"x\0", b"xy"}


def test_pages_survive_in_any_order() -> None:
    """A later page may survive where an earlier one is lost."""
    files = PowerLossFiles()
    file = new_file(files)
    file.write_at(0, b"x" * (3 * PAGE_BYTES))
    kept = {tuple(content[n * PAGE_BYTES] for n in range(3)) for content in outcomes(files) if content}
    assert {(0, 0, 0), (0, 0, 120), (0, 120, 0), (120, 0, 120), (120, 120, 120)} <= kept


def test_a_page_is_torn_at_sectors() -> None:
    """A page may be half old and half new, but never within 512 bytes."""
    files = PowerLossFiles()
    file = new_file(files, size=PAGE_BYTES)
    file.write_at(0, b"x" * PAGE_BYTES)
    found = outcomes(files)
    sectors = [{content[at : at + 512] for at in range(0, PAGE_BYTES, 512)} for content in found if content]
    assert set().union(*sectors) == {bytes(512), b"x" * 512}
    assert sum(len(kinds) == 2 for kinds in sectors) > 20


def test_size_may_grow_without_the_bytes() -> None:
    """A longer size may survive without the bytes in it, which then read as zeros."""
    files = PowerLossFiles()
    file = new_file(files, size=0)
    file.write_at(0, b"abc")
    assert set(outcomes(files)) == {b"", b"\0\0\0", b"abc"}


def test_a_name_needs_its_folder_synced() -> None:
    """A synced file whose folder was not synced may be gone."""
    files = PowerLossFiles()
    file = files.create("f")
    file.write_at(0, b"abc")
    file.sync()
    assert set(outcomes(files)) == {None, b"abc"}
    files = files.kill()
    files.sync_folder("")
    assert set(outcomes(files)) == {b"abc"}


def test_a_folder_needs_its_parent_synced() -> None:
    """Syncing a new folder makes the names in it durable, not its own."""
    files = PowerLossFiles()
    files.make_folder("a")
    files.create("a/f")
    files.sync_folder("a")
    assert set(outcomes(files, "a/f")) == {None, b""}
    files = files.kill()
    files.sync_folder("")
    assert set(outcomes(files, "a/f")) == {b""}


def test_rename_is_one_step() -> None:
    """After an unsynced rename exactly one of the names is there, and a replaced file is whole until then."""
    files = PowerLossFiles()
    for path, content in (("new", b"new"), ("f", b"old")):
        file = files.create(path)
        file.write_at(0, content)
        file.sync()
    files.sync_folder("")
    files.rename("new", "f")
    after = [files.crash(random.Random(seed)) for seed in range(100)]
    assert {(state.exists("new"), state.read("f")) for state in after} == {(True, b"old"), (False, b"new")}


def test_unlink_needs_its_folder_synced() -> None:
    """A removed name may come back with the bytes it had."""
    files = PowerLossFiles()
    new_file(files, size=4)
    files.unlink("f")
    assert not files.exists("f")
    assert set(outcomes(files)) == {None, bytes(4)}


def test_failed_sync_is_not_made_good_by_the_next() -> None:
    """After a failed sync another process's sync succeeds and proves nothing; writing the page again does."""
    files = PowerLossFiles()
    file = new_file(files, size=4)
    file.write_at(0, b"abcd")
    files.fail_syncs(lambda path: path == "f")
    with pytest.raises(OSError, match="Input/output") as caught:
        file.sync()
    assert (caught.value.errno, files.failed_syncs) == (errno.EIO, 1)

    files = files.kill()
    file = files.open("f")
    assert file.read_at(0, 4) == b"abcd"
    file.sync()
    assert set(outcomes(files)) == {bytes(4), b"abcd"}

    files = files.kill()
    file = files.open("f")
    file.write_at(0, b"abcd")
    file.sync()
    assert set(outcomes(files)) == {b"abcd"}


def test_sync_again_after_failure_is_a_bug() -> None:
    """The same open file refuses a second sync, as the real one does."""
    files = PowerLossFiles()
    file = new_file(files)
    files.fail_syncs(lambda path: True)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    with pytest.raises(AssertionError):
        file.sync()


def test_sync_many_says_which_failed() -> None:
    """Of many files only the failing one is not durable, and it alone gets an error."""
    files = PowerLossFiles()
    both = [new_file(files, path, size=1) for path in ("f", "g")]
    for file in both:
        file.write_at(0, b"x")
    files.fail_syncs(lambda path: path == "f")
    results = files.sync_many(both)
    assert [result and result.errno for result in results] == [errno.EIO, None]
    assert set(outcomes(files, "g")) == {b"x"}
    assert set(outcomes(files, "f")) == {b"\0", b"x"}


def test_views_see_later_writes() -> None:
    """A map made before a write shows it, cannot be written through, and lives on after unlink and close."""
    files = PowerLossFiles()
    file = new_file(files)
    view = file.view(PAGE_BYTES)
    file.write_at(10, b"abc")
    files.unlink("f")
    file.close()
    assert (bytes(view[10:13]), view.readonly, len(view)) == (b"abc", True, PAGE_BYTES)


def test_kill_keeps_what_was_written() -> None:
    """After a kill everything written is there, and is as little durable as before."""
    files = PowerLossFiles()
    file = files.create("f")
    file.write_at(0, b"abc")
    files = files.kill()
    assert files.read("f") == b"abc"
    assert not files.crash(random.Random(1), names=Loss.NOTHING_SURVIVES).exists("f")


def test_the_dead_do_nothing() -> None:
    """After a crash the old objects refuse everything, so that no finally-clause changes the disk."""
    files = PowerLossFiles()
    file = new_file(files)
    files.crash(random.Random(0))
    for use in (file.sync, file.size, lambda: file.write_at(0, b"x"), lambda: files.create("g")):
        with pytest.raises(Crashed):
            use()


def test_crash_at_an_operation() -> None:
    """A crash is taken in exactly the operation that was named; a write is cut anywhere."""
    cuts = set()
    for seed in range(40):
        files = PowerLossFiles()
        file = files.create("f")
        files.crash_at(2, random.Random(seed))
        file.write_at(0, b"ab")
        with pytest.raises(Crashed):
            file.write_at(2, b"cdef")
        cuts.add(files.kill().read("f"))
    assert cuts == {b"ab", b"abc", b"abcd", b"abcde"}


def test_array_survives_whole_or_is_refused() -> None:
    """An array that was never synced comes back whole, or is not there; never as other numbers."""
    files = PowerLossFiles()
    files.save_array("a", np.arange(2000, dtype=np.int64), tag=7)
    found: Counter[int] = Counter()
    for seed in range(200):
        array = files.crash(random.Random(seed)).open_array("a", tag=7)
        found[-1 if array is None else int(array.sum())] += 1
    assert set(found) == {-1, 1999000}
    assert files.kill().open_array("a", tag=8) is None


@pytest.mark.parametrize("loss", Loss)
def test_each_loss_is_possible(loss: Loss) -> None:
    """Every way to lose keeps the synced file and gives a state that can be opened."""
    files = PowerLossFiles()
    new_file(files).write_at(0, b"x" * 5000)
    files.create("g").write_at(0, b"y")
    after = files.crash(random.Random(5), pages=loss, names=loss)
    assert after.list_folder("") in (["f"], ["f", "g"])
    assert len(after.read("f")) == 3 * PAGE_BYTES


def test_holes_are_skipped() -> None:
    """The search for data lands on the page that holds it, at the position itself within it, else at the end."""
    files = PowerLossFiles()
    file = new_file(files, size=5 * PAGE_BYTES)
    file.write_at(2 * PAGE_BYTES + 9, b"x")
    asked = (0, 2 * PAGE_BYTES + 5, 3 * PAGE_BYTES)
    assert [file.data_from(position) for position in asked] == [8192, 8197, 20480]


def test_a_copy_has_the_same_past() -> None:
    """A copied disk loses what the first would lose, and using one does not change the other."""
    files = PowerLossFiles()
    file = new_file(files, size=1)
    file.write_at(0, b"x")
    files.create("g")
    other = PowerLossFiles(files.disk.copy())
    assert (other.read("f"), other.list_folder("")) == (b"x", ["f", "g"])
    other.write("f", b"y")
    assert files.read("f") == b"x"
    assert set(outcomes(PowerLossFiles(files.disk.copy()))) == {b"\0", b"x"}
    assert set(outcomes(PowerLossFiles(files.disk.copy()), "g")) == {None, b""}
