"""The errors a broker raises: those of the wire, and the few that never travel."""

import errno

from ..protocol.errors import (
    BatchTooLargeError,
    CorruptError,
    DiskFullError,
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
    "storage_error",
]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class DataDirLockedError(TidelogError):
    """Another broker runs on this data directory; stop it or choose another directory."""

    code, number = "DATA_DIR_LOCKED", 60


def storage_error(error: OSError, doing: str) -> TidelogError:
    """Return the typed error for what the operating system refused while `doing` something."""
    name = errno.errorcode.get(error.errno or 0, "unknown error")
    where = f" ({error.filename})" if error.filename else ""
    message = f"expected {doing} to work, found {name}: {error.strerror or error}{where}"
    if error.errno in _NO_ROOM:
        return DiskFullError(message, errno=error.errno)
    return StorageError(message, errno=error.errno or 0)
