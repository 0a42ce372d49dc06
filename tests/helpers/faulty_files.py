"""Any `Files` with faults put in: the N-th call of an operation fails, is short, or is held up.

    files = FaultyFiles(MemoryFiles())
    fault = files.fail("write_at", errno.ENOSPC, path="*.log", after=3, keep=100)
    ...
    assert fault.fired                            # a fault that never fired proves nothing

Operations carry the names of the methods of `File` and `Files`. `fault.fired` counts how often it did.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from tidelog.broker.storage.files import Buffer, File, Files


@dataclass
class Fault:
    """One fault: which calls it waits for, what it does to them, how often it did."""

    operation: str
    code: int = 0
    path: str = "*"
    after: int = 0  # let this many matching calls pass first
    times: int | None = 1  # then fire this often; None fires for ever
    keep: int = 0  # how many bytes of a failing write arrive all the same
    action: Callable[[], None] | None = None  # called before the real call, instead of failing it, when code is 0
    seen: int = 0
    fired: int = 0

    def takes(self, operation: str, path: str) -> bool:
        """Say whether the fault fires in this call, and count."""
        if operation != self.operation or not fnmatchcase(path, self.path):
            return False
        self.seen += 1
        if self.seen <= self.after or (self.times is not None and self.fired >= self.times):
            return False
        self.fired += 1
        return True

    def error(self, path: str) -> OSError:
        """Return the error as the kernel would raise it."""
        return OSError(self.code, os.strerror(self.code), path)


class FaultyFiles:
    """`Files` that passes every call on to another one, unless a fault takes it."""

    def __init__(self, files: Files) -> None:
        self.inner = files
        self.faults: list[Fault] = []
        self.calls: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<FaultyFiles over {self.inner!r}, {len(self.faults)} faults>"

    def fail(
        self,
        operation: str,
        code: int,
        *,
        path: str = "*",
        after: int = 0,
        times: int | None = 1,
        keep: int = 0,
    ) -> Fault:
        """Fail matching calls with an errno, the first `keep` bytes of a write arriving all the same."""
        fault = Fault(operation, code, path=path, after=after, times=times, keep=keep)
        self.faults.append(fault)
        return fault

    def hold(self, operation: str, action: Callable[[], None], *, path: str = "*", times: int | None = None) -> Fault:
        """Call `action` (which may wait) before matching calls: a slow disk, or a peek between two steps."""
        fault = Fault(operation, path=path, times=times, action=action)
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """End all faults; their counters stay with whoever made them."""
        self.faults.clear()

    def enter(self, operation: str, path: str) -> Fault | None:
        """Count a call, run what holds it up, and return the fault that fails it."""
        self.calls[operation] += 1
        failing: Fault | None = None
        for fault in list(self.faults):
            if fault.takes(operation, path):
                if fault.action is not None:
                    fault.action()
                else:
                    failing = failing or fault
        return failing

    def pass_or_raise(self, operation: str, path: str) -> None:
        """Count a call and raise when a fault takes it."""
        fault = self.enter(operation, path)
        if fault is not None:
            raise fault.error(path)

    def create(self, path: str, size: int = 0) -> File:
        """Create a file."""
        self.pass_or_raise("create", path)
        return FaultyFile(self, self.inner.create(path, size))

    def open(self, path: str, *, writable: bool = True) -> File:
        """Open a file."""
        self.pass_or_raise("open", path)
        return FaultyFile(self, self.inner.open(path, writable=writable))

    def exists(self, path: str) -> bool:
        """Say whether the name is taken."""
        return self.inner.exists(path)

    def list_folder(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        self.pass_or_raise("list_folder", folder)
        return self.inner.list_folder(folder)

    def make_folder(self, path: str) -> None:
        """Make one folder."""
        self.pass_or_raise("make_folder", path)
        self.inner.make_folder(path)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or folder."""
        self.pass_or_raise("rename", old)
        self.inner.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file's name."""
        self.pass_or_raise("unlink", path)
        self.inner.unlink(path)

    def remove_folder(self, path: str) -> None:
        """Remove a folder with everything in it."""
        self.pass_or_raise("remove_folder", path)
        self.inner.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        """Sync a folder."""
        self.pass_or_raise("sync_folder", path)
        self.inner.sync_folder(path)

    def sync_many(self, files: Sequence[File]) -> list[OSError | None]:
        """Sync many files; a fault of `sync` takes those it matches, without syncing them."""
        self.calls["sync_many"] += 1
        unwrapped = [file.inner if isinstance(file, FaultyFile) else file for file in files]
        faults = [self.enter("sync", file.path) for file in files]
        real = iter(self.inner.sync_many([file for file, fault in zip(unwrapped, faults, strict=True) if not fault]))
        return [fault.error(file.path) if fault else next(real) for file, fault in zip(files, faults, strict=True)]

    def read(self, path: str) -> bytes:
        """Return a small file's content."""
        self.pass_or_raise("read", path)
        return self.inner.read(path)

    def write(self, path: str, data: Buffer) -> None:
        """Write a small file."""
        fault = self.enter("write", path)
        if fault is not None:
            self.inner.write(path, memoryview(data)[: fault.keep])
            raise fault.error(path)
        self.inner.write(path, data)

    def lock(self, path: str) -> None:
        """Take the lock."""
        self.pass_or_raise("lock", path)
        self.inner.lock(path)

    def save_array(self, path: str, array: NDArray[np.int64], tag: int) -> None:
        """Store an array."""
        self.pass_or_raise("save_array", path)
        self.inner.save_array(path, array, tag)

    def open_array(self, path: str, tag: int) -> NDArray[np.int64] | None:
        """Map a stored array."""
        self.pass_or_raise("open_array", path)
        return self.inner.open_array(path, tag)

    def free_bytes(self) -> int:
        """Return how much the file system would take; a fault of it says none is left."""
        return 0 if self.enter("free_bytes", "") else self.inner.free_bytes()

    def close(self) -> None:
        """Release the lock and the root."""
        self.inner.close()


class FaultyFile:
    """One open file of a `FaultyFiles`."""

    def __init__(self, files: FaultyFiles, inner: File) -> None:
        self._files = files
        self.inner = inner
        self._is_mapped = False

    def __repr__(self) -> str:
        return f"<FaultyFile over {self.inner!r}>"

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return self.inner.path

    def size(self) -> int:
        """Return the size in bytes."""
        return self.inner.size()

    def write_at(self, position: int, data: Buffer) -> None:
        """Write; a failing one leaves its first `keep` bytes behind, as a short write and ENOSPC do."""
        fault = self._files.enter("write_at", self.path)
        if fault is None:
            self.inner.write_at(position, data)
            return
        if fault.keep:
            self.inner.write_at(position, memoryview(data)[: fault.keep])
        raise fault.error(self.path)

    def read_at(self, position: int, length: int) -> bytes:
        """Read part of the file."""
        self._files.pass_or_raise("read_at", self.path)
        return self.inner.read_at(position, length)

    def view(self, length: int) -> memoryview:
        """Return the read-only map; only making it can fail."""
        if not self._is_mapped:
            self._files.pass_or_raise("view", self.path)
            self._is_mapped = True
        return self.inner.view(length)

    def data_from(self, position: int) -> int:
        """Return the first position from here on that may hold anything but zeros."""
        return self.inner.data_from(position)

    def sync(self) -> None:
        """Sync; a failing one does not sync."""
        self._files.pass_or_raise("sync", self.path)
        self.inner.sync()

    def reserve(self, upto: int) -> None:
        """Ask for disk space."""
        self._files.pass_or_raise("reserve", self.path)
        self.inner.reserve(upto)

    def is_resident(self, position: int, length: int) -> bool:
        """Say whether the range is in memory; a fault says that it is not."""
        return self._files.enter("is_resident", self.path) is None and self.inner.is_resident(position, length)

    def warm(self, position: int, length: int) -> None:
        """Read the range into memory."""
        self._files.pass_or_raise("warm", self.path)
        self.inner.warm(position, length)

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        """Send part of the file to a socket."""
        self._files.pass_or_raise("send_to", self.path)
        return self.inner.send_to(socket_fd, position, length)

    def close(self) -> None:
        """Close the file."""
        self.inner.close()
