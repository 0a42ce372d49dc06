"""How far a log is proven to be synced, in two slots that are written in turn.

    slot at 0 and at 4096   off size field
                              0   4  magic "TLM1"
                              4   4  segment_seed    of the segment it speaks about
                              8   8  counter         the valid slot with the higher one counts
                             16   8  segment_base
                             24   8  offset          everything below it was synced
                             32   8  position        where it ends in that segment
                             40   8  checksum        xxh3_64 of bytes 0..40

The mark is written after each sync and itself synced within a second: after kill -9 it is exact, after power
loss it is a lower bound. Little endian.
"""

import struct
from dataclasses import dataclass

import xxhash

from .files import File, Files
from .layout import SYNCED

_MAGIC = b"TLM1"
_FIELDS = struct.Struct("<4sIqqqq")
_CHECKSUM = struct.Struct("<Q")
_SLOTS = (0, 4096)
_FILE_BYTES = 8192


@dataclass(frozen=True, slots=True)
class Mark:
    """Everything below `offset` was synced and ends at `position` of the segment."""

    segment_base: int
    segment_seed: int
    offset: int
    position: int


class SyncedMark:
    """The file `synced` of one log."""

    __slots__ = ("_counter", "_file", "_files", "_is_unsynced", "_path", "bad_slots", "is_broken", "value")

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self._path = f"{folder}/{SYNCED}"
        self._file: File | None = None
        self._counter = 0
        self.value: Mark | None = None
        self.bad_slots = 0
        self._is_unsynced = False
        self.is_broken = False

    def __repr__(self) -> str:
        return f"<SyncedMark {self._path!r} {self.value}>"

    def read(self) -> Mark | None:
        """Return the newest valid slot, None when there is none."""
        if not self._files.exists(self._path):
            return None
        self._file = self._files.open(self._path)
        for position in _SLOTS:
            slot = self._file.read_at(position, _FIELDS.size + _CHECKSUM.size)
            found = _decode(slot)
            if found is None:
                self.bad_slots += any(slot)
            elif found[0] > self._counter:
                self._counter, self.value = found
        return self.value

    def create(self) -> None:
        """Make the file if there is none yet, so that a sync of the folder makes its name durable."""
        if self._file is None:
            self._file = self._files.create(self._path, _FILE_BYTES)

    def write(self, mark: Mark) -> None:
        """Write the older slot; the next `sync` makes it durable."""
        if self.is_broken:
            return
        self.create()
        assert self._file is not None, "there is no file to write to"
        self._counter += 1
        fields = _FIELDS.pack(_MAGIC, mark.segment_seed, self._counter, mark.segment_base, mark.offset, mark.position)
        slot = fields + _CHECKSUM.pack(xxhash.xxh3_64_intdigest(fields))
        self._file.write_at(_SLOTS[self._counter % len(_SLOTS)], slot)
        self.value = mark
        self._is_unsynced = True

    @property
    def is_dirty(self) -> bool:
        """Whether a sync would make something durable."""
        return self._is_unsynced and not self.is_broken

    @property
    def file(self) -> File | None:
        """The open file, for whoever syncs it together with others."""
        return self._file

    def sync(self) -> None:
        """Make what was written durable; after a failure nothing syncs or writes it again."""
        if self._file is None or self.is_broken:
            return
        self._is_unsynced = False
        try:
            self._file.sync()
        except OSError:
            self.is_broken = True
            raise

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _decode(slot: bytes) -> tuple[int, Mark] | None:
    if len(slot) < _FIELDS.size + _CHECKSUM.size:
        return None
    magic, seed, counter, base, offset, position = _FIELDS.unpack_from(slot)
    if magic != _MAGIC or _CHECKSUM.unpack_from(slot, _FIELDS.size)[0] != xxhash.xxh3_64_intdigest(
        slot[: _FIELDS.size]
    ):
        return None
    return counter, Mark(base, seed, offset, position)
