"""`Files` over a disk model: crash it at any operation and open what is left.

    files = PowerLossFiles() ...                                            # use it as any other Files
    files.crash_at(7, rng)                         # the 7th operation from now raises Crashed, half done
    later = files.crash(rng)                       # the power goes: a new PowerLossFiles, possible after it
    later = files.kill()                           # or kill -9: all that was written is there, nothing else
    is

The object that crashed, and every file opened through it, raise `Crashed` from then on: the process is dead.
`fail_syncs` makes syncs fail as the kernel does it: once, with the pages called clean afterwards.
"""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tidelog.broker.storage.files import Buffer, File, arrays

from .disk_model import Disk, Folder, Inode, Loss

_FREE_BYTES = 1 << 40


class Crashed(BaseException):
    """The machine or the process is gone; no `except Exception` of the code under test may survive it."""


class PowerLossFile:
    """One open file of a `PowerLossFiles`."""

    def __init__(self, files: PowerLossFiles, path: str, inode: Inode, *, writable: bool) -> None:
        self._files = files
        self._path = path
        self._inode = inode
        self._writable = writable
        self._view: memoryview | None = None
        self._failed = False

    def __repr__(self) -> str:
        return f"<PowerLossFile {self._path!r} size={self._inode.size}>"

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return self._path

    def size(self) -> int:
        """Return the size in bytes."""
        self._files.check_alive()
        return self._inode.size

    def write_at(self, position: int, data: Buffer) -> None:
        """Write into the page cache; a crash here leaves any first part of it."""
        if not self._writable:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        cut = self._files.step("write_at", self._path, len(data))
        if cut is not None:
            self._inode.write(position, memoryview(data)[:cut])
            raise Crashed
        self._inode.write(position, data)

    def read_at(self, position: int, length: int) -> bytes:
        """Read from the page cache."""
        self._files.check_alive()
        return self._inode.read(position, length)

    def view(self, length: int) -> memoryview:
        """Return the read-only map, made at the first call."""
        self._files.check_alive()
        if self._view is None:
            length = min(length, self._inode.size)
            self._view = memoryview(self._inode.memory)[:length].toreadonly() if length else memoryview(b"")
        return self._view

    def data_from(self, position: int) -> int:
        """Skip pages that hold nothing but zeros."""
        self._files.check_alive()
        return self._inode.data_from(position)

    def sync(self) -> None:
        """Make the bytes durable, or fail for good."""
        assert not self._failed, f"sync called again on {self._path} after it failed"
        self._files.step("sync", self._path)
        if self._files.takes_sync_failure(self._path):
            self._failed = True
            self._inode.fail_sync()
            raise OSError(errno.EIO, os.strerror(errno.EIO), self._path)
        self._inode.sync()

    def reserve(self, upto: int) -> None:
        """Reserve nothing: the size and the content stay."""
        self._files.step("reserve", self._path)

    def is_resident(self, position: int, length: int) -> bool:
        """Everything is in memory."""
        return True

    def warm(self, position: int, length: int) -> None:
        """Everything is in memory."""

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        """Send part of the range."""
        return os.write(socket_fd, self.read_at(position, length))

    def close(self) -> None:
        """Forget the map; views live on."""
        self._view = None


class PowerLossFiles:
    """A data directory on a disk model."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.disk = disk or Disk()
        self.operations = 0
        self.counts: Counter[str] = Counter()
        self.failed_syncs = 0
        self.before_each: Callable[[str, str], None] | None = None
        self._crash_at = -1
        self._rng = random.Random(0)
        self._dead = False
        self._sync_fails: Callable[[str], bool] | None = None

    def __repr__(self) -> str:
        return f"<PowerLossFiles operations={self.operations}{' dead' if self._dead else ''}>"

    # ------------------------------------------------------------------------------------------- faults

    def crash_at(self, operation: int, rng: random.Random) -> None:
        """Raise `Crashed` in the `operation`-th operation from now (1 is the next), half done where it can be."""
        self._crash_at = self.operations + operation
        self._rng = rng

    def fail_syncs(self, fails: Callable[[str], bool] | None) -> None:
        """Fail the sync of every file whose path `fails` accepts; None ends it."""
        self._sync_fails = fails

    def crash(self, rng: random.Random, *, pages: Loss | None = None, names: Loss | None = None) -> PowerLossFiles:
        """Cut the power; return what may be found afterwards, how much is lost being drawn unless given."""
        self._dead = True
        drawn = list(Loss)
        return PowerLossFiles(self.disk.after_power_loss(rng, pages or rng.choice(drawn), names or rng.choice(drawn)))

    def kill(self) -> PowerLossFiles:
        """Kill the process; the page cache, and what the disk holds of it, stay as they are."""
        self._dead = True
        return PowerLossFiles(self.disk)

    def check_alive(self) -> None:
        """Raise `Crashed` when the process that holds this is gone."""
        if self._dead:
            raise Crashed

    def step(self, operation: str, path: str, length: int = 0) -> int | None:
        """Count an operation, and crash in it when it is its turn.

        Returns None to go on, or, for a write that the crash cuts, how many bytes of it arrive.
        """
        self.check_alive()
        if self.before_each is not None:
            self.before_each(operation, path)
            self.check_alive()
        self.operations += 1
        self.counts[operation] += 1
        if self.operations != self._crash_at:
            return None
        self._dead = True
        if length:
            return self._rng.randrange(length)
        raise Crashed

    def takes_sync_failure(self, path: str) -> bool:
        """Say whether the sync of this file fails, and count it."""
        fails = self._sync_fails is not None and self._sync_fails(path)
        self.failed_syncs += fails
        return fails

    # -------------------------------------------------------------------------------------------- Files

    def create(self, path: str, size: int = 0) -> File:
        """Create a file of `size` zero bytes."""
        self.step("create", path)
        place = self.disk.place(path)
        if place[1] in place[0].entries:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        inode = Inode()
        self.disk.change({place: inode})
        if size:
            inode.resize(size)
        return PowerLossFile(self, path, inode, writable=True)

    def open(self, path: str, *, writable: bool = True) -> File:
        """Open an existing file."""
        self.check_alive()
        return PowerLossFile(self, path, self.disk.inode(path), writable=writable)

    def exists(self, path: str) -> bool:
        """Say whether the name is taken."""
        self.check_alive()
        return self.disk.find(path) is not None

    def list_folder(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        self.check_alive()
        return sorted(self.disk.folder(folder).entries)

    def make_folder(self, path: str) -> None:
        """Make one folder."""
        self.check_alive()
        if isinstance(self.disk.find(path), Folder):
            return
        self.step("make_folder", path)
        self.disk.change({self.disk.place(path): Folder()})

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a folder, in one change."""
        self.step("rename", old)
        node, target = self.disk.find(old), self.disk.find(new)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), old)
        if isinstance(target, Folder) and target.entries:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
        self.disk.change({self.disk.place(old): None, self.disk.place(new): node})

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self.step("unlink", path)
        self.disk.inode(path)
        self.disk.change({self.disk.place(path): None})

    def remove_folder(self, path: str) -> None:
        """Remove a folder, one name after the other."""
        self.check_alive()
        node = self.disk.find(path)
        if not isinstance(node, Folder):
            return
        for name, inner in list(node.entries.items()):
            if isinstance(inner, Folder):
                self.remove_folder(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        self.step("remove_folder", path)
        self.disk.change({self.disk.place(path): None})

    def sync_folder(self, path: str) -> None:
        """Make the changes of names in the folder durable."""
        self.step("sync_folder", path)
        self.disk.sync_folder(self.disk.folder(path))

    def sync_many(self, files: Sequence[File]) -> list[OSError | None]:
        """Sync one after the other, each with its own result."""
        results: list[OSError | None] = []
        for file in files:
            try:
                file.sync()
            except OSError as error:
                results.append(error)
            else:
                results.append(None)
        return results

    def read(self, path: str) -> bytes:
        """Return a small file's content."""
        self.check_alive()
        inode = self.disk.inode(path)
        return inode.read(0, inode.size)

    def write(self, path: str, data: Buffer) -> None:
        """Create or replace a small file in place."""
        cut = self.step("write", path, len(data))
        node = self.disk.find(path)
        if node is None:
            node = Inode()
            self.disk.change({self.disk.place(path): node})
        assert isinstance(node, Inode)
        node.truncate()
        node.write(0, memoryview(data)[:cut])
        if cut is not None:
            raise Crashed

    def lock(self, path: str) -> None:
        """Take the lock: one process at a time uses a model."""
        self.write(path, b"1\n")

    def save_array(self, path: str, array: NDArray[np.int64], tag: int) -> None:
        """Store an array beside its place, then rename, as on a real disk."""
        temporary = path + ".tmp"
        self.remove_folder(temporary)
        self.make_folder(temporary)
        for name, data in arrays.encode_parts(array).items():
            self.write(f"{temporary}/{name}", data)
        checksum = arrays.checksum_of(lambda part: self.read(f"{temporary}/{part}"), tag)
        self.write(f"{temporary}/{arrays.CHECKSUM}", checksum)
        self.remove_folder(path)
        self.rename(temporary, path)

    def open_array(self, path: str, tag: int) -> NDArray[np.int64] | None:
        """Verify every part, then return the array."""
        self.check_alive()

        def read(part: str) -> bytes:
            return self.read(f"{path}/{part}")

        return arrays.decode_parts(read) if arrays.is_intact(read, tag) else None

    def free_bytes(self) -> int:
        """Return a number that no test will fill."""
        return _FREE_BYTES

    def close(self) -> None:
        """Let the next process have the folder."""
