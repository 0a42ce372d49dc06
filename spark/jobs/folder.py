"""A folder that a job keeps things in: whole files or none, and one run at a time.

Driver and executors see it under the same path: a local disk on one machine, a shared one on several.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from .errors import JobBusyError, JobStateError

UNFINISHED = "_unfinished-"
"""How names of files begin that are still written; Spark reads no file whose name begins with an underscore."""

NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS, errno.EACCES}
"""What file systems say that have no hard links."""


def folder_of(text: str | os.PathLike[str]) -> Path:
    """Return a path, or that of a file:// URL. Raises ValueError for another scheme."""
    given = os.fspath(text)
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):/", given)
    if scheme is None:
        return Path(given).absolute()
    if scheme[1].lower() != "file":
        raise ValueError(f"folder: expected a path that driver and executors share, or file:///path, found {given}")
    return Path(unquote(urlsplit(given).path))


@contextmanager
def exclusive(path: Path) -> Generator[None]:
    """Hold a file as this run's own; it is let go with the process, however that ends. Raises JobBusyError."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobBusyError(f"another run holds {path}") from None
        yield
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Put a file in its place, all of it and on the disk, or leave what was there."""
    unfinished = unfinished_beside(path)
    try:
        with unfinished.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def publish(unfinished: Path, path: Path) -> None:
    """Give a complete file its name, unless another attempt has done so: the first one stays."""
    try:
        os.link(unfinished, path)
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        unfinished.replace(path)
    unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)


def unfinished_beside(path: Path) -> Path:
    """Return a name for a file that is still written, which no other attempt has."""
    return path.parent / f"{UNFINISHED}{uuid4().hex}{path.suffix}"


def remove_unfinished(folder: Path) -> None:
    """Remove what attempts left that were killed."""
    for path in folder.glob(f"{UNFINISHED}*"):
        path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a file for good."""
    path.unlink(missing_ok=True)
    sync_folder(path.parent)


def read_or_none(path: Path) -> bytes | None:
    """Return what a file holds; None where there is none."""
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return None


def made(folder: Path) -> Path:
    """Return a folder that is there. Raises JobStateError where a file has its name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise JobStateError(f"expected a folder, found a file: {folder}") from None
    return folder


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
