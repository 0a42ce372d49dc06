"""The data directory as a whole: one broker at a time, and a format that this version knows.

LOCK      held (flock) while a broker runs; says its process id
VERSION   the format of everything beside it, written before anything else is
"""

from __future__ import annotations

from pathlib import Path

from .errors import DataDirLockedError, StorageError, UnsupportedError, storage_error
from .storage.files import DiskFiles, Files, MemoryFiles, write_durably

LOCK = "LOCK"
VERSION = "VERSION"
FORMAT = b"1\n"

OUR_OWN = frozenset({LOCK, VERSION, VERSION + ".tmp", "meta", "partitions", "archive", "lost+found"})
"""What may stand in a folder that is to become a data directory."""


def open_files(data_dir: str | None) -> Files:
    """Return the files of a data directory, which is made where it is missing, or of None: in memory. Raises
    StorageError."""
    if data_dir is None:
        return MemoryFiles()
    folder = Path(data_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return DiskFiles(folder)
    except OSError as error:
        raise storage_error(error, f"opening the data directory {folder}") from None


def claim(files: Files) -> None:
    """Lock the folder and make sure that it is a data directory of this format, or an empty one.

    Raises DataDirLockedError, UnsupportedError, StorageError.
    """
    try:
        files.lock(LOCK)
    except BlockingIOError:
        raise DataDirLockedError(
            f"expected a data directory that no broker uses, found {_holder(files)} running on it"
        ) from None
    except OSError as error:
        raise storage_error(error, "locking the data directory") from error
    try:
        _check_version(files)
    except OSError as error:
        raise storage_error(error, "opening the data directory") from error


def _holder(files: Files) -> str:
    try:
        return f"process {int(files.read(LOCK))}"
    except (OSError, ValueError):
        return "another broker"


def _check_version(files: Files) -> None:
    if files.exists(VERSION):
        found = files.read(VERSION)
        if found != FORMAT:
            raise UnsupportedError(
                f"expected a data directory of format {FORMAT.decode().strip()}, found {found[:40]!r} in {VERSION}: "
                "another version of tidelog wrote it"
            )
        return
    strangers = sorted(set(files.list_folder("")) - OUR_OWN)
    if strangers:
        raise StorageError(
            f"expected an empty folder or a data directory, found one without {VERSION} that holds {strangers[0]!r}"
        )
    write_durably(files, VERSION, FORMAT)
