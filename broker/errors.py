"""The errors a broker raises: those of the wire, and the few that never travel."""

import errno
from typing import TypeVar

from ..protocol.errors import (
    BatchTooLargeError,
    CorruptError,
    DiskFullError,
    InternalError,
    InvalidBatchError,
    LogFencedError,
    OffsetOutOfRangeError,
    StorageError,
    TidelogError,
    TruncatedError,
    UnsupportedError,
)

__all__ = [
    "BatchTooLargeError",
    "CorruptError",
    "DataDirLockedError",
    "DiskFullError",
    "InvalidBatchError",
    "LogFencedError",
    "OffsetOutOfRangeError",
    "StorageError",
    "TidelogError",
    "TruncatedError",
    "UnsupportedError",
    "anew",
    "kept",
    "storage_error",
]

ErrorT = TypeVar("ErrorT", bound=BaseException)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DataDirLockedError(TidelogError):
    """Another broker runs on this data directory; stop it or choose another directory."""

    code, number = "DATA_DIR_LOCKED", 0


def storage_error(error: OSError, doing: str) -> TidelogError:
    """Return the typed error for what the operating system refused while `doing` something."""
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    where = f" ({error.filename})" if error.filename else ""
    message = f"expected {doing} to work, found {name}: {error.strerror or error}{where}"
    if error.errno in _NO_ROOM:
        return DiskFullError(message, errno=error.errno)
    return StorageError(message, errno=error.errno or 0)


def kept(error: ErrorT) -> ErrorT:
    """Return an error that is kept as a value, without the frames that it came through.

    They hold whoever keeps it, which nothing but the garbage collector would let go again, and whatever else was at
    hand: open files of a topic that is deleted since, the bytes of a request.
    """
    chain: list[BaseException] = [error]
    while chain:
        link = chain.pop()
        link.__traceback__ = None
        chain += [before for before in (link.__cause__, link.__context__) if before is not None]
    return error


def anew(error: TidelogError) -> TidelogError:
    """Return an error like one that is kept, to be raised: the same one would gather the frames of all its raises."""
    return type(error)(error.message, **error.details)


def bug_answer() -> InternalError:
    """Return what a request is answered with that met a bug: else nobody would answer it."""
    return InternalError("expected an answer, found a bug in the broker; its log has more")
