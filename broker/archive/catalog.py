"""Which ranges of one partition are in the archive, and what lies at an offset."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from ...protocol.errors import CorruptError, OffsetOutOfRangeError, TidelogError
from ..storage.sealed import SealedSegment
from .entry import Entry


@dataclass(frozen=True, slots=True)
class BadEntry:
    """An entry that cannot be read: what it describes lies between it and the next."""

    base_offset: int
    why: str


class Catalog:
    """The entries of one partition by offset. Ranges may have holes: the archive was off for a while."""

    def __init__(
        self, title: str, entries: Iterable[Entry] = (), bad: Iterable[BadEntry] = (), notes: Iterable[str] = ()
    ) -> None:
        """`title` is what the partition is called in errors, `notes` say what of the archive is not used."""
        self.title = title
        self.notes = list(notes)
        self._entries = sorted(entries, key=lambda entry: entry.base_offset)
        self._bad = sorted(bad, key=lambda one: one.base_offset)
        self._joined: tuple[int, int] | None = None

    def __repr__(self) -> str:
        return f"<Catalog of {self.title}: {len(self._entries)} segments from {self.start} to {self.end}>"

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the partition is in the archive, readable or not."""
        return not self._entries and not self._bad

    @property
    def entries(self) -> list[Entry]:
        """All entries, oldest first."""
        return list(self._entries)

    @property
    def bad(self) -> list[BadEntry]:
        """The entries that cannot be read."""
        return list(self._bad)

    @property
    def start(self) -> int:
        """The first offset archived; the end when there is none."""
        bases = [one.base_offset for one in (*self._entries[:1], *self._bad[:1])]
        return min(bases, default=0)

    @property
    def end(self) -> int:
        """One past the last offset archived."""
        return self._entries[-1].end_offset if self._entries else self.start

    @property
    def bytes(self) -> int:
        """Of all segments."""
        return sum(entry.bytes for entry in self._entries)

    def has(self, segment: SealedSegment) -> bool:
        """Whether this very segment is archived, as far as is known of it.

        A log that was restored from an old copy gives offsets out a second time: seed and time tell. A segment that is
        damaged, or lost its header page since, is known by its offsets.
        """
        entry = self.find(segment.base_offset)
        if entry is None or entry.end_offset != segment.end_offset:
            return False
        if segment.seed is None or entry.seed is None or entry.damaged:
            return True
        return (segment.seed, segment.last_append_us or entry.last_append_us) == (entry.seed, entry.last_append_us)

    def find(self, base_offset: int) -> Entry | None:
        """Return the entry that begins at an offset."""
        entry = self._at(base_offset)
        return entry if entry is not None and entry.base_offset == base_offset else None

    def joined_start(self, log_start: int) -> int:
        """Return from where on archive and log have every offset, damaged ones counted: behind the last hole."""
        if self._joined is None or self._joined[0] != log_start:
            offset = log_start
            ranges: list[tuple[int, int | None]] = [(one.base_offset, one.end_offset) for one in self._entries]
            ranges += [(one.base_offset, None) for one in self._bad]  # it ends where the next begins
            for base, end in sorted(ranges, key=lambda one: one[0], reverse=True):
                if base < offset and end is not None and end < offset:
                    break
                offset = min(offset, base)
            self._joined = (log_start, offset)
        return self._joined[1]

    def locate(self, offset: int, log_start: int, log_end: int) -> Entry:
        """Return the entry that holds an offset below the log's start.

        Raises OffsetOutOfRangeError with the valid range (behind a hole it begins where reading goes on), and
        CorruptError where an entry cannot be read.
        """
        entry = self._at(offset)
        if entry is not None and offset < entry.end_offset:
            return entry
        following = self._next(offset, log_start)
        bad = next((one for one in reversed(self._bad) if one.base_offset <= offset), None)
        if bad is not None and (entry is None or bad.base_offset >= entry.end_offset):
            raise CorruptError(
                f"expected to read offset {offset} of {self.title} in the archive, found its entry damaged: {bad.why};"
                f" reading goes on at {following}",
                start=bad.base_offset,
                end=following,
                next=following,
            )
        raise self._out_of_range(offset, following, log_end)

    def _out_of_range(self, offset: int, following: int, log_end: int) -> TidelogError:
        if offset < self.start or not self._entries:
            start = min(self.start if self._entries else following, following)
            text = f"expected an offset from {start} to {log_end} of {self.title} and its archive, found {offset}"
            return OffsetOutOfRangeError(text, start=start, end=log_end)
        text = (
            f"expected offset {offset} of {self.title} in the archive, found a hole from {self.before(offset)} to"
            f" {following}: retention removed them while the archive was off"
        )
        return OffsetOutOfRangeError(text, start=following, end=log_end)

    def before(self, offset: int) -> int:
        """Return where the last range below an offset ends."""
        place = bisect_right(self._entries, offset, key=lambda one: one.base_offset) - 1
        return self._entries[place].end_offset if place >= 0 else offset

    def _next(self, offset: int, log_start: int) -> int:
        """Return the first offset past one that may be read."""
        place = bisect_right(self._entries, offset, key=lambda one: one.base_offset)
        bases = [one.base_offset for one in self._entries[place : place + 1]]
        bases += [one.base_offset for one in self._bad if one.base_offset > offset][:1]
        return min([log_start, *bases])

    def _at(self, offset: int) -> Entry | None:
        place = bisect_right(self._entries, offset, key=lambda one: one.base_offset) - 1
        return self._entries[place] if place >= 0 else None

    # -- changes -------------------------------------------------------------------------------------------------

    def add(self, entry: Entry) -> None:
        """Take in an entry, in place of one with the same base."""
        self._joined = None
        self._bad = [one for one in self._bad if one.base_offset != entry.base_offset]
        place = bisect_left(self._entries, entry.base_offset, key=lambda one: one.base_offset)
        is_there = place < len(self._entries) and self._entries[place].base_offset == entry.base_offset
        self._entries[place : place + is_there] = [entry]

    def forget(self, entries: Iterable[Entry]) -> None:
        """Take out what was removed from the archive."""
        self._joined = None
        bases = {entry.base_offset for entry in entries}
        self._entries = [entry for entry in self._entries if entry.base_offset not in bases]
