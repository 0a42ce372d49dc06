"""What storage asks of a file system: two protocols that tests replace with models of power loss and faults.

Paths are POSIX strings relative to the root of the data directory. Every method may raise `OSError`; nothing
here maps it. Nothing is durable because it was written: a file's bytes are after `File.sync` (or
`Files.sync_many`), a name is after `Files.sync_folder` of the folder that holds it.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Buffer: TypeAlias = bytes | bytearray | memoryview


class File(Protocol):
    """One open file. Dropping the last reference closes it: whoever still sends from it keeps it alive."""

    @property
    def path(self) -> str:
        """The path it was opened by (a later rename does not change it)."""
        ...

    def size(self) -> int:
        """Return the size in bytes as the file system has it now."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`, over short writes; an `OSError` leaves the range undefined."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes at `position`; fewer only where the file ends."""
        ...

    def view(self, length: int) -> memoryview:
        """Return a read-only map of the first `length` bytes (of all, when the file is shorter).

        Made once and kept: later calls return the first map, writes show in it at once, and the file is never
        shrunk while it exists.
        """
        ...

    def data_from(self, position: int) -> int:
        """Return the first position from here on that may hold anything but zeros; the size when none does.

        It skips what was reserved or left sparse, so that nobody reads 64 MiB of nothing. Answering `position`
        itself is always right.
        """
        ...

    def sync(self) -> None:
        """Make the bytes durable (fdatasync). Never called again on this file after it raised."""
        ...

    def reserve(self, upto: int) -> None:
        """Ask for disk space up to byte `upto`, size and content unchanged; a no-op where unsupported."""
        ...

    def is_resident(self, position: int, length: int) -> bool:
        """Say whether reading this range now would not wait for the disk (a probe, not a promise)."""
        ...

    def warm(self, position: int, length: int) -> None:
        """Read the range into the page cache; blocks, so it is called in a thread."""
        ...

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        """Send part of the range (sendfile), return how much; `BlockingIOError` when the socket is full."""
        ...

    def close(self) -> None:
        """Close the descriptor now. Views stay valid as long as somebody holds them."""
        ...


class Files(Protocol):
    """One data directory."""

    def create(self, path: str, size: int = 0) -> File:
        """Create a file of `size` zero bytes (sparse); `FileExistsError` when the name is taken."""
        ...

    def open(self, path: str, *, writable: bool = True) -> File:
        """Open an existing file."""
        ...

    def exists(self, path: str) -> bool:
        """Say whether a file or folder has this name."""
        ...

    def list_folder(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; `FileNotFoundError` when there is no such folder."""
        ...

    def make_folder(self, path: str) -> None:
        """Make one folder inside an existing one; nothing happens when it is there."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder, replacing a file of the new name in one step."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file's name; whoever has it open or mapped keeps it."""
        ...

    def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it; nothing happens when there is none."""
        ...

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable (creations, renames and removals since the last time)."""
        ...

    def sync_many(self, files: Sequence[File]) -> list[OSError | None]:
        """Make the bytes of many files durable in one round; one result a file, `None` where it worked."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole content of a small file."""
        ...

    def write(self, path: str, data: Buffer) -> None:
        """Create or replace a small file in place; neither atomic nor durable (see `write_durably`)."""
        ...

    def lock(self, path: str) -> None:
        """Take the exclusive lock file until `close`; `BlockingIOError` when another holds it."""
        ...

    def save_array(self, path: str, array: NDArray[np.int64], tag: int) -> None:
        """Store an array as the folder `path`, replacing what was there; `tag` (u64) says whose it is.

        It is a cache, never synced: a crash leaves the old one, none, or one that `open_array` refuses.
        """
        ...

    def open_array(self, path: str, tag: int) -> NDArray[np.int64] | None:
        """Map a stored array read-only, or return `None` when it is missing, damaged or has another tag."""
        ...

    def free_bytes(self) -> int:
        """Return how many more bytes the file system would take."""
        ...

    def close(self) -> None:
        """Release the lock and the root."""
        ...


def write_durably(files: Files, path: str, *pieces: Buffer) -> None:
    """Replace a file in one durable step: write beside it, sync, rename over it, sync the folder."""
    temporary = path + ".tmp"
    if files.exists(temporary):
        files.unlink(temporary)
    file = files.create(temporary)
    try:
        position = 0
        for piece in pieces:
            file.write_at(position, piece)
            position += len(piece)
        file.sync()
    except OSError:
        with suppress(OSError):
            files.unlink(temporary)  # a full disk needs its space
        raise
    finally:
        file.close()
    files.rename(temporary, path)
    files.sync_folder(path.rpartition("/")[0])
