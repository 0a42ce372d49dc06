"""Stored bytes that are not in the page cache.

`sendfile` of a cold range would hold the event loop for as long as the disk takes, and could no longer say that the
disk failed once the reply's head has left. So a thread reads it in first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...protocol.errors import StorageError
from ..deferred import FileSlice
from .context import Context


def is_cold(bulk: Sequence[FileSlice]) -> bool:
    """Whether reading any of it would wait for the disk."""
    return any(not piece.file.is_resident(piece.position, piece.length) for piece in bulk)


def warm(context: Context, bulk: Sequence[FileSlice], done: Callable[[StorageError | None], None]) -> None:
    """Read it in by a worker, then call `done` with what the disk said."""
    problem: StorageError | None = None

    def read() -> None:
        nonlocal problem
        for piece in bulk:
            try:
                piece.file.warm(piece.position, piece.length)
            except OSError as error:
                where = f"{piece.file.path} at {piece.position}"
                problem = StorageError(
                    f"expected to read {piece.length} bytes of {where}, found {error.strerror}", errno=error.errno
                )
                return

    context.metrics.cold_reads += 1
    context.offload(read, lambda: done(problem))
