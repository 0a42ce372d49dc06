"""One open file over a descriptor; the same for a real file and for a memfd."""

import errno
import mmap
import os
import weakref
from collections import deque

from . import kernel
from .interface import Buffer

_PAGE = 4096
# A cold range is found by asking for one byte of a few places, not of every page: each costs a system call.
_PROBES = 4
_WARM_BYTES = 1 << 18
# Where the kernel does not say what is in the page cache, so many of the last ranges that were read in are believed to
# be there. Else who asks again after reading in would do so until it gave up: 32 times for each acquire.
_BELIEVED = 64
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class DescriptorFile:
    """A `File` over an owned descriptor, closed with `close` or when the last reference goes."""

    __slots__ = (
        "__weakref__",
        "_believed",
        "_can_reserve",
        "_close",
        "_failed",
        "_in_memory",
        "_map",
        "_path",
        "device",
        "fd",
    )

    def __init__(self, fd: int, path: str, *, in_memory: bool = False) -> None:
        self.fd = fd
        self.device = 0 if in_memory else os.fstat(fd).st_dev
        self._path = path
        self._in_memory = in_memory
        self._can_reserve = not in_memory
        self._failed = False
        self._map: memoryview | None = None
        self._believed: deque[tuple[int, int]] | None = None
        self._close = weakref.finalize(self, os.close, fd)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path!r} fd={self.fd} size={self.size()}>"

    @property
    def path(self) -> str:
        """The path it was opened by."""
        return self._path

    def size(self) -> int:
        """Return the size in bytes."""
        return os.fstat(self.fd).st_size

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of `data` at `position`."""
        written = os.pwrite(self.fd, data, position)
        if written == len(data):
            return
        rest = memoryview(data)
        while True:
            if written == 0:
                raise OSError(errno.EIO, "the file system took no bytes", self._path)
            position += written
            rest = rest[written:]
            if not rest:
                return
            written = os.pwrite(self.fd, rest, position)

    def read_at(self, position: int, length: int) -> bytes:
        """Read up to `length` bytes at `position`."""
        data = os.pread(self.fd, length, position)
        while len(data) < length:
            more = os.pread(self.fd, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def view(self, length: int) -> memoryview:
        """Return the read-only map, made at the first call."""
        if self._map is None:
            length = min(length, self.size())
            if length == 0:
                return memoryview(b"")
            self._map = memoryview(mmap.mmap(self.fd, length, mmap.MAP_SHARED, mmap.PROT_READ))
        return self._map

    def data_from(self, position: int) -> int:
        """Skip holes by SEEK_DATA."""
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return self.size()
            if error.errno in _UNSUPPORTED:
                return position
            raise

    def sync(self) -> None:
        """Make the bytes durable; refuses to be called again once it failed."""
        # After a failed sync the kernel marks the pages clean: a second call would succeed and prove nothing.
        assert not self._failed, f"sync called again on {self._path} after it failed"
        try:
            os.fdatasync(self.fd)
        except OSError:
            self._failed = True
            raise

    def reserve(self, upto: int) -> None:
        """Reserve blocks up to byte `upto`."""
        if self._can_reserve:
            self._can_reserve = kernel.reserve(self.fd, upto)

    def is_resident(self, position: int, length: int) -> bool:
        """Probe a few places of the range with one-byte reads that may not wait."""
        if self._in_memory or length <= 0:
            return True
        if self._believed is not None:
            return any(start <= position and position + length <= end for start, end in self._believed.copy())
        step = max(length // (_PROBES - 1), _PAGE)
        places = [*range(position, position + length - 1, step), position + length - 1]
        return all(self._is_byte_resident(place) for place in places)

    def _is_byte_resident(self, position: int) -> bool:
        try:
            os.preadv(self.fd, [bytearray(1)], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _UNSUPPORTED:
                # tmpfs cannot be asked, and need not be: its pages are the file. Others may have to read.
                self._in_memory = kernel.is_in_memory(self.fd)
                self._believed = deque(maxlen=_BELIEVED)
                return self._in_memory
            raise
        return True

    def warm(self, position: int, length: int) -> None:
        """Read the range once so that it is in the page cache."""
        scratch = bytearray(min(_WARM_BYTES, length))
        start, end = position, position + length
        while position < end:
            count = os.preadv(self.fd, [memoryview(scratch)[: end - position]], position)
            if count == 0:
                break
            position += count
        if self._believed is not None:
            self._believed.append((start, end))

    def send_to(self, socket_fd: int, position: int, length: int) -> int:
        """Send part of the range to a socket."""
        return os.sendfile(socket_fd, self.fd, position, length)

    def close(self) -> None:
        """Close the descriptor now; views live on."""
        self._map = None
        self._close()
