"""Messages with a retry policy of their own: what the `retry` column of their batch says, over the group's policy.

The column is read when a message is leased, and again at a start for those that are leased then; it is kept while the
lease runs, since it may lie cold when the lease ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from ...protocol.batch import HEADER_BYTES, decode_routing
from ...protocol.columns import RETRY
from ...protocol.retries import NO_JITTER, NO_RETRY, BackoffCode
from ..delivery.backoff import Backoff, BackoffKind, RetryPolicy
from ..delivery.events import Span
from ..delivery.range_map import RangeMap
from .leased_batches import LeasedBatch

ROUTING_BYTES = 40
"""At most so many bytes of routing columns a record lie before the payload."""

MILLISECOND_US = 1_000


class OwnRetries:
    """Ranges of offsets -> what their messages say, as 16 bytes of the column."""

    def __init__(self) -> None:
        self._given: RangeMap[bytes] = RangeMap()
        self._merged: dict[tuple[bytes, RetryPolicy], RetryPolicy] = {}

    def __len__(self) -> int:
        return len(self._given)

    def note(self, batch: LeasedBatch) -> None:
        """Read what the messages of a batch say."""
        for start, end, given in read_retries(batch):
            self._given.set(start, end, given)

    def forget(self, ranges: Iterable[Span]) -> None:
        """Keep nothing of messages that are leased no more."""
        for start, end in ranges:
            self._given.delete(start, end)

    def clear(self) -> None:
        """Keep nothing."""
        self._given = RangeMap()
        self._merged.clear()

    def parts(self, start: int, end: int, group: RetryPolicy) -> Iterable[tuple[int, int, RetryPolicy]]:
        """Return the policies of a range, as parts that cover it."""
        if not self._given:
            return ((start, end, group),)
        return [
            (first, last, group if given is None else self._merge(given, group))
            for first, last, given in self._given.pieces(start, end)
        ]

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
