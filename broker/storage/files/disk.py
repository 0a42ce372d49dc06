"""A data directory on a real file system (Linux)."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from . import arrays, kernel
from .descriptor import DescriptorFile
from .interface import Buffer, File

# Up to here one fdatasync each costs less than a sync of the whole file system.
_SYNC_ONE_BY_ONE = 32


class DiskFiles:
    """`Files` under a root folder, which must exist."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root)
        self._root_fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._device = os.fstat(self._root_fd).st_dev
        self._lock_fd: int | None = None

    def __repr__(self) -> str:
        return f"<DiskFiles {str(self._root)!r}{' locked' if self._lock_fd is not None else ''}>"

    def create(self, path: str, size: int = 0) -> File:
        """Create a sparse file of `size` bytes."""
        fd = os.open(self._root / path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        file = DescriptorFile(fd, path)
        if size:
            os.ftruncate(fd, size)
        return file

    def open(self, path: str, *, writable: bool = True) -> File:
        """Open an existing file."""
        flags = os.O_RDWR if writable else os.O_RDONLY
        return DescriptorFile(os.open(self._root / path, flags | os.O_CLOEXEC), path)

    def exists(self, path: str) -> bool:
        """Say whether the name is taken."""
        return (self._root / path).exists()

    def list_folder(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted."""
        return sorted(os.listdir(self._root / folder))  # noqa: PTH208

    def make_folder(self, path: str) -> None:
        """Make one folder."""
        (self._root / path).mkdir(exist_ok=True)

    def rename(self, old: str, new: str) -> None:
        """Rename, replacing a file of the new name."""
        (self._root / old).rename(self._root / new)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        (self._root / path).unlink()

    def remove_folder(self, path: str) -> None:
        """Remove a folder and all it holds."""
        try:
            shutil.rmtree(self._root / path)
        except FileNotFoundError:
            return

    def sync_folder(self, path: str) -> None:
        """Sync the folder itself."""
        fd = os.open(self._root / path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_many(self, files: Sequence[File]) -> list[OSError | None]:
        """Sync many files, by one syncfs when they are more than a few dozen."""
        if len(files) > _SYNC_ONE_BY_ONE and kernel.syncfs_reports_errors():
            try:
                kernel.syncfs(self._root_fd)
            except OSError:
                # It does not say which file failed; each file's own sync does.
                return [_try_sync(file) for file in files]
            return [None if self._is_on_root_device(file) else _try_sync(file) for file in files]
        return [_try_sync(file) for file in files]

    def _is_on_root_device(self, file: File) -> bool:
        return cast("DescriptorFile", file).device == self._device

    def read(self, path: str) -> bytes:
        """Return a small file's content."""
        return (self._root / path).read_bytes()

    def write(self, path: str, data: Buffer) -> None:
        """Create or replace a small file in place."""
        (self._root / path).write_bytes(data)

    def lock(self, path: str) -> None:
        """Take the lock file with flock; it holds our process id for whoever is refused."""
        fd = os.open(self._root / path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            os.close(fd)
            raise
        self._lock_fd = fd

    def save_array(self, path: str, array: NDArray[np.int64], tag: int) -> None:
        """Store an array by mmap-ninja in a temporary folder, add the checksum, rename."""
        # Imported here: it brings tqdm and more, which a broker that seals nothing does not need.
        import mmap_ninja

        temporary = path + ".tmp"
        self.remove_folder(temporary)
        mmap_ninja.np_from_ndarray(self._root / temporary, array)
        self.write(f"{temporary}/{arrays.CHECKSUM}", arrays.checksum_of(self._reader(temporary), tag))
        self.remove_folder(path)
        self.rename(temporary, path)

    def open_array(self, path: str, tag: int) -> NDArray[np.int64] | None:
        """Verify every part, then map the array by mmap-ninja."""
        # Verified first: opening a missing path by mmap-ninja would create its folder.
        try:
            if not arrays.is_intact(self._reader(path), tag):
                return None
        except (NotADirectoryError, IsADirectoryError):
            return None
        import mmap_ninja

        return cast("NDArray[np.int64]", mmap_ninja.np_open_existing(self._root / path, mode="r"))

    def _reader(self, path: str) -> Callable[[str], bytes]:
        return lambda part: self.read(f"{path}/{part}")

    def free_bytes(self) -> int:
        """Return what an unprivileged writer may still use."""
        figures = os.statvfs(self._root)
        return figures.f_bavail * figures.f_frsize

    def close(self) -> None:
        """Release the lock and the root."""
        if self._lock_fd is not None:  # else it would be a forked child's too, for as long as that lives
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        for fd in (self._lock_fd, self._root_fd):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._lock_fd, self._root_fd = None, -1


def _try_sync(file: File) -> OSError | None:
    try:
        file.sync()
    except OSError as error:
        return error if error.errno else OSError(errno.EIO, str(error))
    return None
