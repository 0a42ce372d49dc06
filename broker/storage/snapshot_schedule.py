"""When a log takes its snapshots, and the one it is taking.

One is due at each roll and every `snapshot_interval_bytes`, but never within a second of the last nor before
four times its own size was appended. Its state is taken at the end of the log, a large one a part at each
upkeep; it is packed and written, in a thread, once the log is synced that far.
"""

from collections.abc import Callable
from dataclasses import dataclass

from .epochs import Epochs
from .fold import Fold, Freezing, Section
from .segments import Segments
from .snapshot import KEPT, SnapshotPlace, encode_snapshot, own_sections, write_snapshot
from .writer import Writer

# A snapshot costs as much writing as it has bytes; this bounds it to a fifth of all writing.
_APPENDED_PER_SNAPSHOT_BYTE = 4


@dataclass(slots=True)
class _Taken:
    offset: int
    own: list[Section]
    pack_fold: Callable[[], list[Section]]
    appended_bytes: int
    size: int = 0  # known once it is packed

    @property
    def is_held(self) -> bool:
        return not isinstance(self.pack_fold, Freezing) or self.pack_fold.is_held

    def hold_more(self) -> None:
        if isinstance(self.pack_fold, Freezing) and not self.pack_fold.is_held:
            self.pack_fold.hold_more()


class SnapshotSchedule:
    """The snapshots of one log."""

    def __init__(self, segments: Segments, writer: Writer, epochs: Epochs, fold: Fold | None, log_id: int) -> None:
        self.is_due = False
        self.is_wanted = False  # at once, whatever was appended: retention waits for it
        self.kept: list[int] = []  # offsets of those that are durable, newest first
        self.bad: set[int] = set()
        self._segments = segments
        self._writer = writer
        self._epochs = epochs
        self._fold = fold
        self._log_id = log_id
        self._taken: _Taken | None = None
        self._appended_bytes = 0
        self._last_us: int | None = None
        self._size = 0

    def __repr__(self) -> str:
        return f"<SnapshotSchedule {self.kept}{' due' if self.is_due else ''}>"

    @property
    def waits(self) -> bool:
        """Whether one is due but for the time since the last, or its state is not all held on to yet."""
        return self._is_due_by_bytes if self._taken is None else not self._taken.is_held

    def begin(self, monotonic_us: int, synced_bytes: int) -> Callable[[], None] | None:
        """Return the write that is to be done now, if any; `synced_bytes` of all that was appended are durable.

        Bytes, not offsets: a control batch takes no offset, and a snapshot behind one that a power loss then takes
        would vouch for what is not there.
        """
        if self._taken is None and self._is_due(monotonic_us):
            self._last_us = monotonic_us
            self.take()
        elif self._taken is not None:
            self._taken.hold_more()
        if self._taken is None or self._taken.appended_bytes > synced_bytes:
            return None
        return self._write if self._taken.is_held else None

    def _is_due(self, monotonic_us: int) -> bool:
        if self.is_wanted:
            return True
        interval_us = self._segments.settings.snapshot_min_interval_us
        is_early = self._last_us is not None and monotonic_us - self._last_us < interval_us
        return not is_early and self._is_due_by_bytes

    @property
    def _is_due_by_bytes(self) -> bool:
        appended = self._writer.appended_bytes - self._appended_bytes
        if not self.is_due and appended < self._segments.settings.snapshot_interval_bytes:
            return False
        return appended >= _APPENDED_PER_SNAPSHOT_BYTE * self._size

    def take(self) -> None:
        """Take the state as it is now."""
        active = self._segments.active
        place = SnapshotPlace(
            active.base_offset, active.end_position, active.seed, self._epochs.last, self._writer.last_append_us
        )
        self._epochs.forget_before(self._segments.start_offset)
        own = own_sections(place, self._epochs, active, self._segments.all[:-1])
        pack_fold = list[Section] if self._fold is None else self._fold.freeze()
        self._taken = _Taken(active.end_offset, own, pack_fold, self._writer.appended_bytes)
        self._appended_bytes = self._writer.appended_bytes
        self.is_due = self.is_wanted = False

    def _write(self) -> None:
        taken = self._taken
        assert taken is not None, "there is no snapshot to write"
        pieces = encode_snapshot(self._log_id, taken.offset, [*taken.own, *taken.pack_fold()])
        taken.size = sum(map(len, pieces))
        write_snapshot(self._segments.files, self._segments.folder, taken.offset, pieces, self.bad)

    def finish(self, worked: bool) -> None:
        """Note that the write was done, or try again with a newer state."""
        assert self._taken is not None, "there was no snapshot to write"
        self._size = self._taken.size or self._size
        if worked:
            self.kept = [self._taken.offset, *(offset for offset in self.kept if offset < self._taken.offset)][:KEPT]
        else:
            self.is_due = True
        self._taken = None

    def write_now(self) -> None:
        """Take and write one at once, unless the last one covers everything; for a clean stop."""
        if self.kept[:1] != [self._segments.active.end_offset]:
            self.take()
            assert self._taken is not None
            while not self._taken.is_held:
                self._taken.hold_more()
            self._write()
            self.finish(worked=True)
