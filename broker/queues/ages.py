"""Since when messages of one partition are available: since they were appended, or came back.

Append times are read from the headers of stored batches, many at a time, from the oldest message on that matters; what
is cold is read in by a worker first. What came back is remembered while it is younger than the longest wait, and only
where there is one: else it is as old as its append.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from ..delivery.offset_set import OffsetSet
from ..storage.loading import NotReadyError
from ..storage.log import Log
from ..storage.warming import Warming

HEADERS = 1_024
"""Read at a time."""

HEADER_RUN_BYTES = 256 * 1024
"""So many bytes of batches are gone through for their headers at a time."""


TIMES = 64
"""Times of coming back within the longest wait: those closer together are one, the later."""


class Ages:
    """The ages in one partition."""

    def __init__(self) -> None:
        self._start = 0
        self._ends: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._times: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self._came: deque[tuple[int, OffsetSet]] = deque()
        """What came back, and when; the oldest first."""
        self._began_us = 0
        """When the last of them began."""
        self._keep_us: int | None = None

    def __repr__(self) -> str:
        return f"<Ages of {len(self._ends)} batches from {self._start}, {len(self._came)} times of coming back>"

    def keep(self, keep_us: int | None) -> None:
        """Remember for so long what came back; nothing with None."""
        self._keep_us = keep_us
        if keep_us is None:
            self._came.clear()

    def came_back(self, offsets: OffsetSet, now_us: int) -> None:
        """Note when messages came back."""
        if self._keep_us is None:
            return
        self._forget(now_us - self._keep_us)
        if self._came and now_us - self._began_us <= self._keep_us // TIMES:
            self._came[-1] = (now_us, self._came[-1][1] | offsets)
        else:
            self._began_us = now_us
            self._came.append((now_us, offsets))

    def _forget(self, before_us: int) -> None:
        while self._came and self._came[0][0] < before_us:
            self._came.popleft()

    def fresh(self, before_us: int) -> OffsetSet:
        """Return what came back at or after a time, and forget what came before it: its age is that of its append."""
        self._forget(before_us)
        found = OffsetSet()
        for _, offsets in self._came:
            found |= offsets
        return found

    def appended_us(self, log: Log, offset: int) -> int:
        """Return when a message was appended. Raises NotReadyError, and what keeps it from being read."""
        place = self._place(log, offset)
        return int(self._times[place])

    def end_of_older(self, log: Log, offset: int, before_us: int) -> int:
        """Return an offset up to which all from one on were appended before a time: of the headers that are at hand."""
        place = self._place(log, offset)
        count = int(self._times[place:].searchsorted(before_us, "left"))
        return int(self._ends[place + count - 1]) if count else offset

    def _place(self, log: Log, offset: int) -> int:
        if not len(self._ends) or not self._start <= offset < int(self._ends[-1]):
            listed = log.batches(
                offset, log.end_offset, max_bytes=HEADER_RUN_BYTES, upto=log.end_offset, limit=HEADERS, may_wait=False
            )
            first, last = listed.entries[0], listed.entries[-1]
            position = int(first["position"])
            length = int(last["position"]) - position + 1
            if not listed.file.is_resident(position, length):
                raise NotReadyError(Warming(listed.file, listed.file.path, position, length))
            self._start = int(first["base_offset"])
            self._ends, self._times = listed.ends, listed.entries["append_time_us"].astype(np.int64)
        return int(self._ends.searchsorted(offset, "right"))
