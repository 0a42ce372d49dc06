"""The real and the in-memory file system keep the same promises."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tidelog.broker.storage.files import DiskFiles, Files, MemoryFiles, kernel, write_durably
from tidelog.broker.storage.files.arrays import CHECKSUM, PARTS

SHM = Path("/dev/shm")


@pytest.fixture(params=["disk", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    """Both forms, empty."""
    return DiskFiles(tmp_path) if request.param == "disk" else MemoryFiles()


def test_a_map_shows_writes_at_once(files: Files) -> None:
    """A view made before a write has its bytes afterwards, and is one and the same for all callers."""
    file = files.create("a", 8192)
    view = file.view(8192)
    file.write_at(4097, b"tide")
    assert bytes(view[4096:4102]) == b"\0tide\0"
    assert file.view(8192) is view
    with pytest.raises(TypeError):
        view[0] = 1


def test_a_view_outlives_the_file(files: Files) -> None:
    """Unlinking and closing leave a reader's map alone."""
    file = files.create("a", 4096)
    file.write_at(0, b"kept")
    view = file.view(4096)
    files.unlink("a")
    file.close()
    del file
    assert bytes(view[:4]) == b"kept"
    assert not files.exists("a")


def test_a_dropped_file_is_closed(tmp_path: Path) -> None:
    """The last reference closes the descriptor; nobody has to."""
    file = DiskFiles(tmp_path).create("a", 10)
    fd = file.fd  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)  # pyright: ignore[reportUnknownArgumentType]


def test_a_short_file_gives_a_short_view(files: Files) -> None:
    """A view is never longer than the file, and an empty file gives an empty one."""
    assert len(files.create("a", 100).view(4096)) == 100
    assert len(files.create("b").view(4096)) == 0


def test_reads_end_with_the_file(files: Files) -> None:
    """Reading past the end returns what there is."""
    file = files.create("a", 10)
    file.write_at(8, b"xyz")
    assert file.read_at(8, 100) == b"xyz"
    assert file.read_at(50, 10) == b""
    assert file.size() == 11


def test_create_refuses_a_taken_name(files: Files) -> None:
    """Two files never share a name by accident."""
    files.create("a")
    with pytest.raises(FileExistsError):
        files.create("a")


def test_missing_names_are_errors(files: Files) -> None:
    """Nothing is created by looking for it."""
    for attempt in (
        lambda: files.open("a"),
        lambda: files.read("a"),
        lambda: files.unlink("a"),
        lambda: files.list_folder("a"),
        lambda: files.create("no/such"),
        lambda: files.sync_folder("a"),
    ):
        with pytest.raises(FileNotFoundError):
            attempt()
    assert files.open_array("a", 1) is None
    assert files.list_folder("") == []


def test_renames_replace_files_and_move_folders(files: Files) -> None:
    """An open file follows its inode, not its name."""
    files.make_folder("one")
    files.make_folder("one")
    files.write("one/a", b"old")
    files.write("one/b", b"new")
    opened = files.open("one/a")
    files.rename("one/b", "one/a")
    assert opened.read_at(0, 3) == b"old"
    files.rename("one", "two")
    assert files.list_folder("") == ["two"]
    assert files.read("two/a") == b"new"
    files.remove_folder("two")
    files.remove_folder("two")
    assert files.list_folder("") == []


def test_a_read_only_file_cannot_be_written(files: Files) -> None:
    """Sealed segments are opened so."""
    files.write("a", b"x")
    with pytest.raises(OSError, match="Bad file descriptor"):
        files.open("a", writable=False).write_at(0, b"y")


def test_sendfile_sends_a_range(files: Files) -> None:
    """The bytes of a range arrive at the other end of a socket."""
    file = files.create("a", 100)
    file.write_at(50, b"abcdef")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        assert file.send_to(ours.fileno(), 51, 4) == 4
        assert theirs.recv(100) == b"bcde"
        with pytest.raises(BlockingIOError):
            sum(file.send_to(ours.fileno(), 0, 100) for _ in range(1_000_000))


def test_what_was_just_written_is_resident(files: Files) -> None:
    """The probe says so, and warming changes nothing."""
    file = files.create("a", 1 << 20)
    file.write_at(0, b"x" * (1 << 20))
    file.warm(0, 1 << 20)
    assert file.is_resident(0, 1 << 20)
    assert file.is_resident(100, 0)


@pytest.mark.skipif(not SHM.is_dir(), reason="needs a tmpfs at /dev/shm")
def test_what_lies_on_a_tmpfs_is_resident() -> None:
    """The kernel does not say so of its files, which are memory: they are asked for once, and never read by a worker."""
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        file = DiskFiles(folder).create("a", 1 << 20)
        assert [file.is_resident(0, 1 << 20), file.is_resident(1 << 19, 4096)] == [True, True]


@pytest.mark.parametrize("is_memory", [True, False])
def test_a_file_that_cannot_be_asked_may_lie_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_memory: bool
) -> None:
    """Where the kernel does not say what is resident, all is on a file system of memory, and nothing on another."""

    def preadv(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    file = DiskFiles(tmp_path).create("a", 4096)
    file.warm(0, 4096)
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(kernel, "is_in_memory", lambda _fd: is_memory)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    assert file.is_resident(0, 4096) is is_memory


def test_what_was_read_in_is_believed_where_the_kernel_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of it is asked for, and nothing beside it: who reads in before it sends does so once. The last 64 ranges
    are remembered."""
    known = os.preadv

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return known(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(kernel, "is_in_memory", lambda _fd: False)  # pyright: ignore[reportUnknownArgumentType, reportUnknownLambdaType]
    file = DiskFiles(tmp_path).create("a", 1 << 20)
    assert not file.is_resident(4096, 4096)
    file.warm(4096, 8192)
    found = [file.is_resident(*place) for place in ((4096, 8192), (5000, 100), (4095, 2), (12_000, 300))]
    assert found == [True, True, False, False]
    for page in range(3, 67):
        file.warm(page << 12, 4096)
    assert [file.is_resident(4096, 8192), file.is_resident(3 << 12, 4096)] == [False, True]


def test_data_is_found_behind_holes(files: Files) -> None:
    """Reserved and sparse ranges are skipped; the end of the file ends the search."""
    file = files.create("a", 1 << 20)
    file.reserve(1 << 20)
    file.write_at(600_000, b"x")
    assert 500_000 < file.data_from(0) <= 600_000
    assert file.data_from(700_000) == 1 << 20
    assert file.size() == 1 << 20


def test_reserving_takes_space_but_no_size(tmp_path: Path) -> None:
    """Blocks are allocated, the size and the zeros stay."""
    file = DiskFiles(tmp_path).create("a", 4096)
    file.reserve(1 << 20)
    found = (tmp_path / "a").stat()
    assert found.st_size == 4096
    assert found.st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize("count", [1, 40])
def test_many_files_are_synced_in_one_round(files: Files, count: int) -> None:
    """Few are synced each, many by one sync of the file system; each has its result."""
    opened = [files.create(f"{n}", 10) for n in range(count)]
    assert files.sync_many(opened) == [None] * count


def test_a_failed_sync_of_the_file_system_asks_each_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The round names the files that failed, not all of them."""
    calls: list[int] = []

    def failing(fd: int) -> None:
        calls.append(fd)
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(kernel, "syncfs", failing)
    files = DiskFiles(tmp_path)
    opened = [files.create(f"{n}", 10) for n in range(40)]
    opened[7].close()
    results = files.sync_many(opened)
    assert len(calls) == 1
    assert [n for n, result in enumerate(results) if result is not None] == [7]


def test_few_files_do_not_sync_the_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a kernel whose syncfs hides errors."""

    def refused(fd: int) -> None:
        pytest.fail("not to be called")

    monkeypatch.setattr(kernel, "syncfs", refused)
    files = DiskFiles(tmp_path)
    opened = [files.create(f"{n}", 10) for n in range(40)]
    assert files.sync_many(opened[:32]) == [None] * 32
    monkeypatch.setattr(kernel, "syncfs_reports_errors", lambda: False)
    assert files.sync_many(opened) == [None] * 40


def test_a_sync_is_never_repeated_after_it_failed(tmp_path: Path) -> None:
    """It would succeed and prove nothing."""
    file = DiskFiles(tmp_path).create("a")
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.sync()
    with pytest.raises(AssertionError, match="sync called again"):
        file.sync()


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    """A second broker on the folder is refused until the first is gone; the file names the holder."""
    first, second = DiskFiles(tmp_path), DiskFiles(tmp_path)
    first.lock("LOCK")
    assert (tmp_path / "LOCK").read_text() == f"{os.getpid()}\n"
    with pytest.raises(BlockingIOError):
        second.lock("LOCK")
    first.close()
    second.lock("LOCK")
    second.close()


def test_a_lock_in_memory_is_held_by_one() -> None:
    """The same in memory."""
    files = MemoryFiles()
    files.lock("LOCK")
    with pytest.raises(BlockingIOError):
        files.lock("LOCK")
    files.close()
    files.lock("LOCK")


def test_a_durable_write_replaces_the_whole_file(files: Files) -> None:
    """The old content, or the new one; no leftover beside it, also after an interrupted attempt."""
    files.make_folder("d")
    files.write("d/a.tmp", b"left over from a crash")
    write_durably(files, "d/a", b"one")
    write_durably(files, "d/a", b"two!")
    assert files.read("d/a") == b"two!"
    assert files.list_folder("d") == ["a"]


def test_a_stored_array_comes_back(files: Files) -> None:
    """Values, shape and layout; a later one replaces it; another tag does not see it."""
    array = np.arange(20, dtype=np.int64).reshape(2, 10).T
    files.save_array("i", np.zeros((1, 2), dtype=np.int64), 6)
    files.save_array("i", array, 7)
    found = files.open_array("i", 7)
    assert found is not None
    assert found.tolist() == array.tolist()
    assert found[:, 0].flags.c_contiguous
    assert files.open_array("i", 6) is None
    assert sorted([*PARTS, CHECKSUM]) == files.list_folder("i")


@pytest.mark.parametrize("part", [*PARTS, CHECKSUM])
def test_a_damaged_array_is_not_opened(files: Files, part: str) -> None:
    """A flip in any byte of any part, or a missing part, and there is no array."""
    files.save_array("i", np.arange(4, dtype=np.int64).reshape(2, 2), 7)
    data = files.read(f"i/{part}")
    for byte in range(len(data)):
        flipped = bytearray(data)
        flipped[byte] ^= 1
        files.write(f"i/{part}", flipped)
        assert files.open_array("i", 7) is None
    files.unlink(f"i/{part}")
    assert files.open_array("i", 7) is None
    assert part not in files.list_folder("i")


def test_free_bytes_is_a_positive_number(files: Files) -> None:
    """There is room for the tests."""
    assert files.free_bytes() > 1 << 20
