"""The Linux calls that Python's `os` lacks, through cffi: fallocate that keeps the size, syncfs, and fstatfs.

`os.posix_fallocate` is not used: where a file system lacks the call, glibc emulates it by writing zeros into
blocks that read as zero, which races with the writer.
"""

import errno
import os
from collections.abc import Sequence
from functools import cache
from typing import Protocol, cast

import cffi

_FALLOC_FL_KEEP_SIZE = 1
# Before 5.8 syncfs reported success even when pages could not be written.
_FIRST_KERNEL_WITH_SYNCFS_ERRORS = (5, 8)
# The first field of struct statfs, a long; what follows it differs between machines and is not looked at.
_STATFS_BYTES = 256
_TMPFS_MAGIC = 0x01021994
_RAMFS_MAGIC = 0x858458F6


class _Library(Protocol):
    def fallocate(self, fd: int, mode: int, offset: int, length: int) -> int: ...
    def syncfs(self, fd: int) -> int: ...
    def fstatfs(self, fd: int, found: object) -> int: ...


@cache
def _load() -> tuple[cffi.FFI, _Library]:
    ffi = cffi.FFI()
    ffi.cdef(
        "int fallocate(int fd, int mode, int64_t offset, int64_t length); int syncfs(int fd);"
        "int fstatfs(int fd, long *found);"
    )
    return ffi, cast("_Library", ffi.dlopen(None))


def reserve(fd: int, upto: int) -> bool:
    """Reserve blocks up to byte `upto`, size unchanged; False where unsupported; raises `OSError`."""
    ffi, library = _load()
    if library.fallocate(fd, _FALLOC_FL_KEEP_SIZE, 0, upto) == 0:
        return True
    code = ffi.errno
    if code in (errno.EOPNOTSUPP, errno.ENOSYS):
        return False
    raise OSError(code, os.strerror(code))


def syncfs(fd: int) -> None:
    """Sync the file system that holds `fd`; `OSError` when any write to it failed since the last call."""
    ffi, library = _load()
    if library.syncfs(fd) != 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))


def is_in_memory(fd: int) -> bool:
    """Say whether the file system that holds `fd` keeps its files in memory (tmpfs, ramfs); raises `OSError`."""
    ffi, library = _load()
    found = ffi.new("long[]", _STATFS_BYTES // ffi.sizeof("long"))
    if library.fstatfs(fd, found) != 0:
        raise OSError(ffi.errno, os.strerror(ffi.errno))
    kind = cast("Sequence[int]", found)[0] & 0xFFFF_FFFF
    return kind in (_TMPFS_MAGIC, _RAMFS_MAGIC)


@cache
def syncfs_reports_errors() -> bool:
    """Say whether this kernel's syncfs tells of failed writes (Linux 5.8 and later)."""
    release = os.uname()
    if release.sysname != "Linux":
        return False
    major, minor = release.release.split(".")[:2]
    numbers = (int(major), int("".join(c for c in minor if c.isdigit()) or 0))
    return numbers >= _FIRST_KERNEL_WITH_SYNCFS_ERRORS
