"""A data directory in memory: every file is a memfd, so maps and sendfile work as on disk.

It outlives the objects that use it: dropping a log without closing it and opening it again over the same
`MemoryFiles` is what a kill -9 looks like (what was written is there, what was in the process is not).
"""

import errno
import os
import weakref
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from . import arrays
from .descriptor import DescriptorFile
from .interface import Buffer, File

_CAPACITY = 1 << 40


class _Inode:
    """The bytes behind a name, freed when neither a name nor an open file holds them."""

    def __init__(self, size: int) -> None:
        self.fd = os.memfd_create("tidelog", os.MFD_CLOEXEC)
        self._close = weakref.finalize(self, os.close, self.fd)
        if size:
            os.ftruncate(self.fd, size)

    def read(self) -> bytes:
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0)


class MemoryFiles:
    """`Files` without a disk."""

    def __init__(self) -> None:
        self._inodes: dict[str, _Inode] = {}
        self._folders: set[str] = {""}
        self._locked: set[str] = set()

    def __repr__(self) -> str:
        return f"<MemoryFiles {len(self._inodes)} files in {len(self._folders)} folders>"

    def create(self, path: str, size: int = 0) -> File:
        """Create a file of `size` zero bytes."""
        self._require_folder_of(path)
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._inodes[path] = _Inode(size)
        return self.open(path)

    def open(self, path: str, *, writable: bool = True) -> File:
        """Open an existing file."""
        # Through /proc, because a duplicate would share the write permission of the first descriptor.
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return DescriptorFile(os.open(f"/proc/self/fd/{self._inode(path).fd}", flags), path, in_memory=True)

    def exists(self, path: str) -> bool:
        """Say whether the name is taken."""
        return path in self._inodes or path in self._folders

    def list_folder(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        if folder not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)
        names = [*self._inodes, *self._folders]
        return sorted(name.rpartition("/")[2] for name in names if name and _folder_of(name) == folder)

    def make_folder(self, path: str) -> None:
        """Make one folder."""
        self._require_folder_of(path)
        self._folders.add(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a folder with all it holds."""
        self._require_folder_of(new)
        if old in self._folders:
            if self.exists(new) and self.list_folder(new):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), new)
            self._folders = {_moved(name, old, new) for name in self._folders}
            self._inodes = {_moved(name, old, new): inode for name, inode in self._inodes.items()}
        else:
            self._inodes[new] = self._inode(old)
            del self._inodes[old]

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self._inode(path)
        del self._inodes[path]

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all it holds."""
        inside = path + "/"
        self._folders = {name for name in self._folders if name != path and not name.startswith(inside)}
        self._inodes = {name: inode for name, inode in self._inodes.items() if not name.startswith(inside)}

    def sync_folder(self, path: str) -> None:
        """Check that the folder is there; memory has nothing more to do."""
        if path not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def sync_many(self, files: Sequence[File]) -> list[OSError | None]:
        """Return success for every file."""
        return [None] * len(files)

    def read(self, path: str) -> bytes:
        """Return a small file's content."""
        return self._inode(path).read()

    def write(self, path: str, data: Buffer) -> None:
        """Create or replace a small file."""
        self._require_folder_of(path)
        inode = self._inodes.get(path) or _Inode(0)
        self._inodes[path] = inode
        os.ftruncate(inode.fd, 0)
        os.pwrite(inode.fd, data, 0)

    def lock(self, path: str) -> None:
        """Take the lock, once."""
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self._locked.add(path)

    def save_array(self, path: str, array: NDArray[np.int64], tag: int) -> None:
        """Store an array in the same parts as on disk."""
        self.remove_folder(path)
        self.make_folder(path)
        for name, data in arrays.encode_parts(array).items():
            self.write(f"{path}/{name}", data)
        self.write(f"{path}/{arrays.CHECKSUM}", arrays.checksum_of(self._reader(path), tag))

    def open_array(self, path: str, tag: int) -> NDArray[np.int64] | None:
        """Verify every part, then return the array."""
        reader = self._reader(path)
        return arrays.decode_parts(reader) if arrays.is_intact(reader, tag) else None

    def free_bytes(self) -> int:
        """Return a number that no test will fill."""
        return _CAPACITY

    def close(self) -> None:
        """Release the lock; the files stay for whoever opens them next."""
        self._locked.clear()

    def discard(self) -> None:
        """Give the memory back: nobody will open these files any more."""
        self._inodes.clear()
        self._folders = {""}

    def _reader(self, path: str) -> Callable[[str], bytes]:
        return lambda part: self.read(f"{path}/{part}")

    def _inode(self, path: str) -> _Inode:
        try:
            return self._inodes[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def _require_folder_of(self, path: str) -> None:
        if _folder_of(path) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


def _moved(name: str, old: str, new: str) -> str:
    return new + name[len(old) :] if name == old or name.startswith(old + "/") else name
