"""Read in what a lookup would wait for, before it is made.

A lookup goes through maps and runs on the event loop: a page that is not in memory would hold the loop for as long
as the disk takes, and a page that the disk does not give would kill the process. So it is asked first whether the
pages are there, and a thread reads them in where they are not. Nothing here changes a log.
"""

from .files import File, Files
from .files.arrays import CHECKSUM, PARTS
from .layout import index_paths
from .segment import Segment

_PROBE = 1


class Warming:
    """Work for a thread; `error` says afterwards what the disk did not give."""

    def __init__(self, files: Files, folder: str, segment: Segment, position: int, length: int) -> None:
        self._files = files
        self._path = segment.path
        self._file = segment.file
        self._index_paths = () if segment.index is not None else index_paths(folder, segment.base_offset)
        self._position = position
        self._length = length
        self.error: OSError | None = None

    def __repr__(self) -> str:
        return f"<Warming of {self._path!r} at {self._position}, {self._length} bytes>"

    @property
    def place(self) -> str:
        """What it reads, for an error message."""
        return f"{self._length} bytes of {self._path} at {self._position}"

    def run(self) -> None:
        """Read the parts of the index, where it is not open, and the range of the segment."""
        try:
            for path in self._index_paths:
                for part in (*PARTS, CHECKSUM):
                    if self._files.exists(f"{path}/{part}"):
                        self._files.read(f"{path}/{part}")
            file = self._file if self._file is not None else self._files.open(self._path, writable=False)
            file.warm(self._position, self._length)
        except OSError as error:
            self.error = error


def is_in_memory(file: File, position: int, length: int) -> bool:
    """Whether a lookup may touch both ends of a range; the middle is sent, not looked at."""
    return file.is_resident(position, _PROBE) and file.is_resident(position + length - _PROBE, _PROBE)


def is_header_in_memory(files: Files, path: str) -> bool:
    """Whether opening a segment would not wait for its header page; a file that cannot be opened fails later."""
    try:
        return files.open(path, writable=False).is_resident(0, _PROBE)
    except OSError:
        return True
