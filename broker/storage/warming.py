"""Read in what a lookup would wait for, before it is made.

A lookup goes through maps and runs on the event loop: a page that is not in memory would hold the loop for as long
as the disk takes, and a page that the disk does not give would kill the process. So it is asked first whether the
pages are there, and a thread reads them in where they are not. Nothing here changes a log.
"""

from ..errors import kept
from .files import File

_PROBE = 1


class Warming:
    """Work for a thread; `error` says afterwards what the disk did not give."""

    def __init__(self, file: File, path: str, position: int, length: int) -> None:
        self._file = file
        self._path = path
        self._position = position
        self._length = length
        self.error: OSError | None = None

    def __repr__(self) -> str:
        return f"<Warming of {self.place}>"

    @property
    def place(self) -> str:
        """What it reads, for an error message."""
        return f"{self._length} bytes of {self._path} at {self._position}"

    def run(self) -> None:
        """Read the range."""
        try:
            self._file.warm(self._position, self._length)
        except OSError as error:
            self.error = kept(error)


def is_in_memory(file: File, position: int, length: int) -> bool:
    """Whether a lookup may touch both ends of a range; the middle is sent, not looked at."""
    return file.is_resident(position, _PROBE) and file.is_resident(position + length - _PROBE, _PROBE)
