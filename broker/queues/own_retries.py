"""Messages with a retry policy of their own: what the `retry` column of their batch says, over the group's policy.

The column is read when a message is leased, and again at a start for those that are leased then; it is kept while
leases run, since it may lie cold when one ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from ...protocol.batch import HEADER_BYTES, decode_routing
from ...protocol.columns import RETRY
from ...protocol.errors import TidelogError
from ...protocol.retries import NO_JITTER, NO_RETRY, BackoffCode
from ..delivery.acquiring import Choice
from ..delivery.backoff import Backoff, BackoffKind, RetryPolicy
from ..delivery.offset_set import OffsetSet, below
from ..storage.log import Log
from .leased_batches import LeasedBatch, find_batches

ROUTING_BYTES = 40
"""At most so many bytes of routing columns a record lie before the payload."""

MILLISECOND_US = 1_000


ALL_BYTES = 1 << 62
MAX_OFFSET = 1 << 62

SWEEP_AT = 4_096
"""So many runs are kept before those of settled messages are looked for."""


class OwnRetries:
    """Runs of offsets -> what their messages say, as 16 bytes of the column."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._runs: list[tuple[int, int, bytes]] = []
        self._merged: dict[tuple[bytes, RetryPolicy], RetryPolicy] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def note(self, batch: LeasedBatch, floor: int) -> None:
        """Read what the messages of a batch say, and forget what lies below `floor` if much is kept."""
        for run in read_retries(batch):
            place = bisect_left(self._starts, run[0])
            if place == len(self._starts) or self._starts[place] != run[0]:
                self._starts.insert(place, run[0])
                self._runs.insert(place, run)
        if len(self._runs) > SWEEP_AT:
            self.keep(floor, MAX_OFFSET)

    def load(self, log: Log, leased: OffsetSet) -> None:
        """Read what these messages say; may wait for the disk. What cannot be read says nothing."""
        while leased:
            try:
                found = find_batches(
                    log, Choice(leased), max_bytes=ALL_BYTES, upto=log.end_offset, may_wait=True
                ).batches
            except TidelogError:
                return
            if not found:
                return
            for batch in found:
                if batch.has_retries:
                    self.note(batch, 0)
            leased = leased - below(leased, found[-1].end_offset)

    def keep(self, start: int, end: int) -> None:
        """Keep nothing of messages outside of a range."""
        self._runs = [run for run in self._runs if run[1] > start and run[1] <= end]
        self._starts = [run[0] for run in self._runs]

    def clear(self) -> None:
        """Keep nothing."""
        self._starts.clear()
        self._runs.clear()
        self._merged.clear()

    def parts(self, start: int, end: int, group: RetryPolicy) -> Iterable[tuple[int, int, RetryPolicy]]:
        """Return the policies of a range, as parts that cover it."""
        if not self._runs:
            return ((start, end, group),)
        parts: list[tuple[int, int, RetryPolicy]] = []
        at = start
        for first, last, given in self._runs[max(bisect_right(self._starts, start) - 1, 0) :]:
            if first >= end:
                break
            if last <= at:
                continue
            if at < first:
                parts.append((at, first, group))
            at = min(last, end)
            parts.append((max(first, start), at, self._merge(given, group)))
        if at < end:
            parts.append((at, end, group))
        return parts

    def _merge(self, given: bytes, group: RetryPolicy) -> RetryPolicy:
        key = (given, group)
        merged = self._merged.get(key)
        if merged is None:
            merged = self._merged[key] = merge(given, group)
        return merged


def read_retries(batch: LeasedBatch) -> Iterator[tuple[int, int, bytes]]:
    """Yield the runs of messages of a batch that say the same, those that say nothing left out."""
    count = batch.end_offset - batch.base_offset
    head = batch.file.read_at(batch.position, min(batch.length, HEADER_BYTES + ROUTING_BYTES * count))
    column = decode_routing(head).retries
    if column is None:
        return
    words = np.ascontiguousarray(column).view(np.uint64).reshape(-1, 2)
    changes = np.flatnonzero((words[1:] != words[:-1]).any(axis=1)) + 1
    for first, last in zip([0, *changes.tolist()], [*changes.tolist(), count], strict=True):
        given = column[first].tobytes()
        if given != NO_RETRY:
            yield batch.base_offset + first, batch.base_offset + last, given


def merge(given: bytes, group: RetryPolicy) -> RetryPolicy:
    """Return what a message says, with the group's word where it says nothing."""
    (row,) = np.frombuffer(given, RETRY)
    backoff = group.backoff
    if row["backoff_kind"]:
        jitter = int(row["jitter_percent"])
        backoff = Backoff(
            BackoffKind(BackoffCode(int(row["backoff_kind"])).word),
            int(row["initial_ms"]) * MILLISECOND_US or backoff.initial_us,
            int(row["max_ms"]) * MILLISECOND_US or backoff.max_us,
            int(row["multiplier_thousandths"]) / 1_000 or backoff.multiplier,
            backoff.jitter if not jitter else 0.0 if jitter == NO_JITTER else jitter / 100,
        )
    return RetryPolicy(int(row["max_attempts"]) or group.max_attempts, backoff)
