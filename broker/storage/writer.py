"""Append batches to the active segment, and go on in the next one when it is full or too old."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from ...protocol.batch import BatchHeader, stamp_leader, stamp_local
from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from ..errors import BatchTooLargeError, storage_error
from .files import File
from .layout import next_path
from .roll import FIRST_RESERVATION, Roll, header_page, prepare_file
from .segment import Segment, new_seed
from .segments import Segments
from .sparse_index import NO_MAX, NO_MIN, SparseIndex

_WIPED_HEADER = bytes(128)


@dataclass(frozen=True, slots=True)
class Placed:
    """One batch and where it goes."""

    header: BatchHeader
    segment: Segment
    position: int
    base_offset: int
    end_offset: int
    at: int  # its place in the caller's buffer


class Writer:
    """The end of a log. Not durable by itself: `rolls` is what the sync thread still has to prove."""

    def __init__(self, segments: Segments, log_id: int, last_append_us: int) -> None:
        self.rolls: list[Roll] = []
        self.prepared: File | None = None
        self.last_append_us = last_append_us
        self.appended_bytes = 0
        self._segments = segments
        self._log_id = log_id
        self._number = 0
        self._must_roll = False

    def __repr__(self) -> str:
        return f"<Writer at {self._segments.active!r}, {len(self.rolls)} rolls pending>"

    @property
    def end_offset(self) -> int:
        """The offset the next record gets."""
        return self._segments.active.end_offset

    def append(
        self, data: memoryview, headers: Sequence[BatchHeader], *, now_us: int, epoch: int, synced_upto: int
    ) -> list[Placed]:
        """Stamp and write batches; whatever is raised, the log is as it was before."""
        self._check_sizes(headers)
        now_us = max(now_us, self.last_append_us)
        staged: list[Segment] = []
        placed: list[Placed] = []
        written: list[Placed] = []
        try:
            self._place(placed, staged, headers, now_us, epoch)
            for batch in placed:
                at, base_offset = batch.at, batch.base_offset
                stamp_leader(data, at, base_offset=base_offset, append_time_us=now_us, leader_epoch=epoch)
                seed, position = batch.segment.seed, batch.position
                stamp_local(data, at, synced_upto=synced_upto, segment_seed=seed, segment_position=position)
            written = placed
            self._write(data, placed)
        except OSError as error:
            self._undo(written, staged)
            raise storage_error(error, f"an append to {self._segments.title}") from error
        self._commit(placed, staged, now_us)
        return placed

    def _place(
        self,
        placed: list[Placed],
        staged: list[Segment],
        headers: Sequence[BatchHeader],
        now_us: int,
        epoch: int,
    ) -> None:
        """Give every batch its offset and its position, in new segments where the active one ends."""
        segment, offset, at = self._segments.active, self.end_offset, 0
        position = segment.end_position
        is_due = self._is_due(segment, now_us)
        for header in headers:
            if is_due or position + header.batch_length > segment.capacity:
                segment, position = self._stage_next(staged, offset, epoch, now_us), SEGMENT_HEADER_BYTES
                is_due = False
            end_offset = offset if header.is_control else offset + header.record_count
            placed.append(Placed(header, segment, position, offset, end_offset, at))
            offset, position, at = end_offset, position + header.batch_length, at + header.batch_length

    def _check_sizes(self, headers: Sequence[BatchHeader]) -> None:
        limit = self._segments.settings.segment_bytes - SEGMENT_HEADER_BYTES
        for header in headers:
            if header.batch_length > limit:
                raise BatchTooLargeError(
                    f"expected a batch of at most {limit} bytes (a segment without its header page),"
                    f" found {header.batch_length}",
                    limit=limit,
                    found=header.batch_length,
                )

    def _is_due(self, segment: Segment, now_us: int) -> bool:
        if self._must_roll:
            return True
        age = self._segments.settings.max_segment_age_us
        return age is not None and segment.first_append_us is not None and now_us - segment.first_append_us >= age

    # ------------------------------------------------------------------------------------- writing bytes

    def _write(self, data: memoryview, placed: Sequence[Placed]) -> None:
        """Write each segment's part of the run in one call."""
        first = 0
        for place, batch in enumerate(placed):
            following = placed[place + 1] if place + 1 < len(placed) else None
            if following is None or following.segment is not batch.segment:
                begin, end = placed[first], batch.at + batch.header.batch_length
                begin.segment.opened.write_at(begin.position, data[begin.at : end])
                first = place + 1

    def _undo(self, written: Sequence[Placed], staged: Sequence[Segment]) -> None:
        """Make sure that nothing of a refused run is ever taken for a batch: wipe its headers, drop new files."""
        try:
            for batch in written:
                file = batch.segment.opened
                # Where nothing arrived nothing is written: that would need a block on a full disk.
                if any(file.read_at(batch.position, len(_WIPED_HEADER))):
                    file.write_at(batch.position, _WIPED_HEADER[: batch.header.batch_length])
        except OSError:
            # What lies behind the end of a segment that has a successor is never read.
            self._must_roll = True
        for segment in staged:
            # If this fails, the next start removes the file: it has no header page.
            with suppress(OSError):
                self._segments.files.unlink(segment.path)
            segment.opened.close()  # the error that is about to be raised refers to it
            segment.let_go()

    def _commit(self, placed: Sequence[Placed], staged: Sequence[Segment], now_us: int) -> None:
        old = self._segments.active
        following = iter(staged)
        self.last_append_us = now_us
        for batch in placed:
            segment, header = batch.segment, batch.header
            while segment is not old:
                old = self._roll_to(old, next(following))
            assert segment.index is not None, f"{segment!r} has no index"
            low, high = header.min_timestamp_us, header.max_timestamp_us
            if header.is_control:
                low, high = NO_MIN, NO_MAX
            assert segment.lanes is not None, f"{segment!r} has no lanes"
            segment.index.add(batch.position, batch.base_offset, now_us, low, high)
            segment.lanes.add(batch.base_offset, batch.end_offset, header.priority)
            segment.end_offset = batch.end_offset
            segment.size = batch.position + header.batch_length
            segment.last_append_us = now_us
            if segment.first_append_us is None:
                segment.first_append_us = now_us
            self.appended_bytes += header.batch_length

    # ------------------------------------------------------------------------------------------- rolling

    def is_aged(self, now_us: int) -> bool:
        """Whether the active segment is older than a segment may get."""
        return self._is_due(self._segments.active, max(now_us, self.last_append_us))

    def roll_if_aged(self, now_us: int, epoch: int) -> None:
        """Go on in the prepared segment although nothing is appended, so that an idle log ages out."""
        segment = self._segments.active
        # Only where nothing has to be made for it: this runs on the loop.
        if self._is_prepared and segment.end_offset > segment.base_offset and self.is_aged(now_us):
            self._roll_to(segment, self._stage_next([], segment.end_offset, epoch, now_us))

    def _roll_to(self, old: Segment, new: Segment) -> Segment:
        self._must_roll = False
        if old.end_offset == old.base_offset:
            self._segments.replace_active(new)  # the same name: the new file takes the place of the empty one
        else:
            old.seal()
            self._segments.add(new)
        page = header_page(self._log_id, new, self._segments.settings)
        self.rolls.append(Roll(self._segments.folder, old, new, page))
        return new

    def _stage_next(self, staged: list[Segment], base_offset: int, epoch: int, now_us: int) -> Segment:
        """Return a new segment that takes effect with `_roll_to`."""
        size = self._segments.settings.segment_bytes
        misfit = self.take_misfit()
        if misfit is not None:
            misfit.close()
            self._segments.files.unlink(misfit.path)
        file, self.prepared = self.prepared, None
        if file is None:
            file = prepare_file(self._segments.files, self.new_path(), size)
        seed = new_seed(self._log_id, base_offset, epoch, now_us, self._number)
        index = SparseIndex(self._segments.settings.index_interval_bytes)
        segment = Segment.active(file.path, base_offset, seed, file, index)
        segment.reserved, segment.reserve_step = min(FIRST_RESERVATION, size), 2 * FIRST_RESERVATION
        staged.append(segment)
        return segment

    @property
    def _is_prepared(self) -> bool:
        return self.prepared is not None and self.prepared.size() == self._segments.settings.segment_bytes

    def take_misfit(self) -> File | None:
        """Return the prepared file if the segment size was changed since: a batch allowed now might not fit into it."""
        if self.prepared is None or self._is_prepared:
            return None
        misfit, self.prepared = self.prepared, None
        return misfit

    def close(self) -> None:
        """Let go of the files that are not among the segments: the prepared one, and an empty one that was replaced."""
        if self.prepared is not None:
            self.prepared.close()
            self.prepared = None
        for roll in self.rolls:
            roll.old.let_go()
            roll.new.let_go()

    def new_path(self) -> str:
        """Return a path for the next prepared file, never one that was given out before."""
        self._number += 1
        return next_path(self._segments.folder, self._number)
