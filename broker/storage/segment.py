"""One segment of a log: a header page, then batches back to back.

Only the last segment of a log grows. A sealed one keeps its file and index only while somebody reads it.
"""

import xxhash

from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from .files import File
from .lane_index import LaneIndex
from .scan import Gap, SegmentBytes
from .sealed import SealedSegment
from .sparse_index import SparseIndex


class Segment:
    """What is known about one segment; `None` is what nobody has looked up yet."""

    __slots__ = (
        "base_offset",
        "capacity",
        "end_offset",
        "file",
        "first_append_us",
        "gaps",
        "index",
        "is_index_stored",
        "is_readable",
        "is_sealed",
        "lane_mask",
        "lanes",
        "last_append_us",
        "max_timestamp_us",
        "min_timestamp_us",
        "path",
        "reserve_step",
        "reserved",
        "seed",
        "size",
    )

    def __init__(self, path: str, base_offset: int, seed: int, *, end_offset: int | None = None) -> None:
        self.path = path
        self.base_offset = base_offset
        self.seed = seed
        self.end_offset = base_offset if end_offset is None else end_offset
        self.is_sealed = end_offset is not None
        self.is_readable = True
        self.file: File | None = None
        self.index: SparseIndex | None = None
        self.is_index_stored = False
        self.lanes: LaneIndex | None = None
        """Of a sealed one only while it is asked for, unless all of it is one lane."""
        self.lane_mask: int | None = None
        """The priorities in it, once it is sealed."""
        self.gaps: list[Gap] = []
        self.size: int | None = None  # bytes in use, the header page included: the position of the end
        self.first_append_us: int | None = None
        self.last_append_us: int | None = None
        self.min_timestamp_us: int | None = None
        self.max_timestamp_us: int | None = None
        self.capacity = 0
        self.reserved = 0
        self.reserve_step = 0

    def __repr__(self) -> str:
        state = "sealed" if self.is_sealed else "active"
        return f"<Segment {self.path!r} {state} offsets {self.base_offset}..{self.end_offset}>"

    @classmethod
    def active(cls, path: str, base_offset: int, seed: int, file: File, index: SparseIndex) -> "Segment":
        """Return a segment that can be appended to."""
        segment = cls(path, base_offset, seed)
        segment.file, segment.index, segment.lanes = file, index, LaneIndex(base_offset)
        segment.capacity = file.size()
        segment.size = SEGMENT_HEADER_BYTES
        return segment

    @property
    def end_position(self) -> int:
        """Where the next batch would go, or where the last one ends."""
        assert self.size is not None, f"the end of {self.path} was not looked up"
        return self.size

    @property
    def has_batches(self) -> bool:
        """Whether any batch is known to be in it."""
        return self.first_append_us is not None

    @property
    def opened(self) -> File:
        """Its file, which must be open."""
        assert self.file is not None, f"{self.path} is not open"
        return self.file

    def bytes(self) -> SegmentBytes:
        """Return its bytes up to the end for reading."""
        view = self.opened.view(self.capacity or self.opened.size())
        return SegmentBytes(view[: self.size] if self.size is not None else view, self.seed, self.opened.data_from)

    def readable_bytes(self) -> SegmentBytes:
        """Return its bytes for reading all of them: no more than the file has now, however long the map is."""
        data = self.bytes()
        return SegmentBytes(data.view[: self.opened.size()], data.seed, data.data_from)

    def is_cut_short(self) -> bool:
        """Whether somebody cut the file since it was mapped: touching what is gone would end the process."""
        return self.file is not None and self.size is not None and self.file.size() < self.size

    def take_over(self, copy: "Segment") -> None:
        """Take over what was found out about a sealed segment by way of a copy."""
        self.file, self.index, self.is_index_stored = copy.file, copy.index, copy.is_index_stored
        self.gaps, self.capacity = copy.gaps, copy.capacity
        self.take_lanes(copy)
        self.take_times()

    def take_lanes(self, copy: "Segment") -> None:
        """Take over what was found out about its lanes."""
        if copy.lanes is not None:
            self.lanes, self.lane_mask = copy.lanes, copy.lane_mask

    def let_go(self) -> None:
        """Close it for reading, once what is being sent or looked at just now is through."""
        self.file = self.index = None

    def take_times(self) -> None:
        """Copy from a closed index what is asked for most often, so that it need not be loaded for that."""
        index = self.index
        assert index is not None, f"{self.path} has no index"
        self.size = index.row(len(index) - 1).position
        self.last_append_us = index.append_time_us(-1)
        self.min_timestamp_us, self.max_timestamp_us = index.min_timestamp_us, index.max_timestamp_us
        if len(index) > 1:
            self.first_append_us = index.append_time_us(0)

    def seal(self) -> None:
        """Close the index: nothing is appended any more."""
        assert self.index is not None, f"{self!r} has no index"
        assert not self.is_sealed, f"{self!r} is sealed already"
        assert self.lanes is not None, f"{self!r} has no lanes"
        self.index.close(self.end_offset, self.end_position, self.last_append_us or 0)
        self.is_sealed = True
        self.lane_mask = self.lanes.mask
        self.take_times()

    def sealed(self) -> SealedSegment:
        """Return what is known of it once it is sealed."""
        seed = self.seed if self.is_readable else None
        return SealedSegment(self.path, self.base_offset, self.end_offset, seed, self.last_append_us)

    def gap_at(self, position: int) -> Gap | None:
        """Return the damaged bytes that start at a position, if that is known."""
        return next((gap for gap in self.gaps if gap.position == position), None)

    def next_gap_position(self, position: int, limit: int) -> int:
        """Return where the first damaged bytes after a position start, at most `limit`."""
        return min([limit, *(gap.position for gap in self.gaps if gap.position > position)])


def new_seed(log_id: int, base_offset: int, epoch: int, now_us: int, number: int) -> int:
    """Return a seed that no other segment file of this broker has had, as far as a hash can.

    Not drawn by lot, so that a run can be repeated; the epoch differs in every run of a broker.
    """
    return xxhash.xxh32_intdigest(repr((log_id, base_offset, epoch, now_us, number)).encode())
