"""A data directory that cannot be changed, whatever the code above it tries."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import DataDirLockedError
from ..storage.files import Buffer, DiskFiles, File


def _refuse(path: str) -> NoReturn:
    raise OSError(errno.EROFS, "an inspection changes nothing", path)


class ReadOnlyFiles(DiskFiles):
    """Reads what is there; every method that would change something raises OSError (EROFS)."""

    def open(self, path: str, *, writable: bool = False) -> File:
        """Open a file for reading."""
        del writable
        return super().open(path, writable=False)

    def lock(self, path: str) -> None:
        """Make sure that no broker runs here, and that none starts meanwhile; the lock file stays as it is.

        Raises DataDirLockedError. A folder without a lock file never had a broker.
        """
        try:
            fd = os.open(self._root / path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise DataDirLockedError(
                f"expected a data directory that no broker uses, found one running on {self._root}; stop it first"
            ) from None
        self._lock_fd = fd

    def create(self, path: str, size: int = 0) -> File:
        """Refuse."""
        _refuse(path)

    def make_folder(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def rename(self, old: str, new: str) -> None:
        """Refuse."""
        _refuse(old)

    def unlink(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def remove_folder(self, path: str) -> None:
        """Refuse."""
        _refuse(path)

    def write(self, path: str, data: Buffer) -> None:
        """Refuse."""
        _refuse(path)

    def save_array(self, path: str, array: NDArray[np.int64], tag: int) -> None:
        """Refuse."""
        _refuse(path)
