"""One log's folder: every header page, batch, index, snapshot and mark in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from ...protocol.errors import CorruptError
from ...protocol.quantities import format_size
from ...protocol.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader
from ..storage.entries import Entries, join
from ..storage.files import Files
from ..storage.lane_index import LaneIndex
from ..storage.layout import (
    SYNCED,
    UNFINISHED_SUFFIXES,
    index_base,
    index_paths,
    lanes_path,
    segment_base,
    segment_path,
    snapshot_offset,
)
from ..storage.scan import Gap, Place, Scan, has_data, scan_sealed, scan_tail
from ..storage.snapshot import decode_snapshot
from ..storage.synced_mark import Mark, SyncedMark
from .findings import Findings
from .segment_reading import SegmentFile, read_segment, undecodable

OnBatches = Callable[[SegmentFile, Entries], None]


def check_log(files: Files, folder: str, log_id: int, findings: Findings, on_batches: OnBatches | None = None) -> None:
    """Check everything in a log's folder; `on_batches` is given what is readable, in order."""
    findings.logs += 1
    names = files.list_folder(folder)
    _LogCheck(files, folder, log_id, findings, on_batches).run(names)


class _LogCheck:
    def __init__(
        self, files: Files, folder: str, log_id: int, findings: Findings, on_batches: OnBatches | None
    ) -> None:
        self._files = files
        self._folder = folder
        self._log_id = log_id
        self._findings = findings
        self._on_batches = on_batches
        self._mark: Mark | None = None
        self._epoch = 0

    def run(self, names: Sequence[str]) -> None:
        self._read_mark(names)
        bases = sorted(base for name in names if (base := segment_base(name)) is not None)
        for base, end in pairwise([*bases, None]):
            assert base is not None, "only the last is None"
            self._check_segment(base, end)
        for name in names:
            self._check_name(name, bases)

    def _read_mark(self, names: Sequence[str]) -> None:
        if SYNCED not in names:
            return
        mark = SyncedMark(self._files, self._folder)
        self._mark = mark.read()
        mark.close()
        if mark.bad_slots:
            self._findings.note(
                f"{self._folder}/{SYNCED}",
                f"{mark.bad_slots} of 2 slots have a bad checksum; the next start reads more than it would have to",
            )

    # -- segments ------------------------------------------------------------------------------------------------

    def _check_segment(self, base: int, end: int | None) -> None:
        """Check the segment that begins at offset `base`; `end` is where the next begins, None for the last."""
        findings, path = self._findings, segment_path(self._folder, base)
        findings.segments += 1
        try:
            segment = read_segment(self._files, path)
        except OSError as error:
            findings.damage(path, f"cannot be opened: {error.strerror}", base, end)
            return
        for problem in segment.problems:
            findings.damage(path, problem)
        header = segment.header
        if header is None:
            return
        if (header.log_id, header.base_offset) != (self._log_id, base):
            findings.damage(
                path,
                f"expected log {self._log_id} from offset {base}, found log {header.log_id} from {header.base_offset}:"
                " the file was moved here",
                base,
                end,
            )
            return
        entries, found = self._scan(segment, header, base, end)
        self._count(segment, entries, found)
        self._check_indexes(segment, header, base, entries, found)

    def _scan(self, segment: SegmentFile, header: SegmentHeader, base: int, end: int | None) -> tuple[Entries, Scan]:
        parts: list[Entries] = []
        start = Place(SEGMENT_HEADER_BYTES, base, self._epoch)
        if end is not None:
            found = scan_sealed(segment.bytes(), start, end, parts.append)
        else:
            proven, mark = start, self._mark
            if mark is not None and (mark.segment_base, mark.segment_seed) == (base, header.seed):
                proven = Place(mark.position, mark.offset)
            found = scan_tail(segment.bytes(), start, proven, header.max_unsynced_bytes, parts.append)
            self._note_tail(segment, found)
        return join(parts), found

    def _note_tail(self, segment: SegmentFile, found: Scan) -> None:
        if has_data(segment.bytes(), found.position):
            self._findings.note(
                segment.path,
                f"after offset {found.offset}, at byte {found.position}, the rest of a write that was cut off;"
                " the next start leaves it behind",
            )

    def _count(self, segment: SegmentFile, entries: Entries, found: Scan) -> None:
        findings = self._findings
        for gap in found.gaps:
            findings.damage(segment.path, _describe(gap), gap.start, gap.end)
        for number, error in undecodable(segment, entries):
            entry = entries[number]
            start = int(entry["base_offset"])
            findings.damage(
                segment.path,
                f"the batch at byte {int(entry['position'])} has good checksums and bad columns: {error.message}",
                start,
                start + int(entry["record_count"]),
            )
        findings.batches += len(entries)
        findings.records += int(entries["record_count"].sum())
        findings.bytes += int(entries["length"].sum())
        self._epoch = found.epoch
        if self._on_batches is not None:
            self._on_batches(segment, entries)

    # -- indexes -------------------------------------------------------------------------------------------------

    def _check_indexes(
        self, segment: SegmentFile, header: SegmentHeader, base: int, entries: Entries, found: Scan
    ) -> None:
        for path, columns in zip(index_paths(self._folder, base), (_OFFSET_COLUMNS, _TIME_COLUMNS), strict=True):
            if not self._files.exists(path):
                continue
            rows = self._files.open_array(path, header.seed)
            if rows is None:
                self._findings.note(path, "the index is damaged; it is made again when it is needed")
            elif not found.gaps and not _fits(rows[:-1], entries, columns):
                self._findings.note(path, "the index does not fit its segment; lookups verify where they land")
        self._check_lanes(header, base, entries, found)

    def _check_lanes(self, header: SegmentHeader, base: int, entries: Entries, found: Scan) -> None:
        path = lanes_path(self._folder, base)
        if not self._files.exists(path):
            return
        stored = self._files.open_array(path, header.seed)
        lanes = None if stored is None else LaneIndex.from_stored(base, found.offset, stored)
        if lanes is None:
            self._findings.note(path, "the index is damaged; it is made again when it is needed")
            return
        expected = LaneIndex(base)
        expected.add_all(entries)
        priorities = {*lanes.priorities, *expected.priorities}
        if not found.gaps and any(lanes.of(priority) != expected.of(priority) for priority in priorities):
            self._findings.note(
                path, "the index does not fit its segment; messages come in another order, none is lost"
            )

    # -- everything else -----------------------------------------------------------------------------------------

    def _check_name(self, name: str, bases: Sequence[int]) -> None:
        findings, path = self._findings, f"{self._folder}/{name}"
        if snapshot_offset(name) is not None:
            try:
                decode_snapshot(self._files.read(path), self._log_id)
            except CorruptError as error:
                findings.note(path, f"the snapshot is damaged; the next start reads more instead: {error.message}")
        elif name.endswith(UNFINISHED_SUFFIXES):
            findings.note(path, "unfinished work of a broker that was killed; the next start removes it")
        elif index_base(name) is not None and index_base(name) not in bases:
            findings.note(path, "an index without its segment; the next start removes it")
        elif not _is_ours(name):
            findings.note(path, "a file that no broker made")


_OFFSET_COLUMNS = {0: "base_offset", 1: "position"}
_TIME_COLUMNS = {0: "append_time_us", 1: "base_offset"}


def _fits(rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], entries: Entries, columns: dict[int, str]) -> bool:
    """Whether every row of an index (its closing one left out) is true of a batch of the segment."""
    batches = {tuple(int(entry[name]) for name in columns.values()) for entry in entries}
    return all(tuple(int(row[column]) for column in columns) in batches for row in rows)


def _is_ours(name: str) -> bool:
    return name == SYNCED or name.endswith(".next") or segment_base(name) is not None or index_base(name) is not None


def _describe(gap: Gap) -> str:
    size = format_size(gap.end_position - gap.position)
    return f"{size} at byte {gap.position} hold no readable batch: {gap.end - gap.start} records are lost"
