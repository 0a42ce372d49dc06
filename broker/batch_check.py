"""Checking what a producer sent, on the loop while it is little, in a worker when it is much.

A plain batch of 100 KB takes some 20 us, so the usual request is checked in place at once. A request may also hold
four thousand tiny batches, or a small compressed batch that unfolds to 48 MiB: so the check counts what it is about
to cost, stops before it would hold the loop, and goes on in a worker from where it stopped.
"""

from __future__ import annotations

from ..protocol.batch import HEADER_BYTES, Attributes, BatchHeader, check_from_producer
from ..protocol.errors import InvalidBatchError, TidelogError
from ..protocol.limits import KIB, MAX_DEDUP_IDS_PER_REQUEST, MIB, BatchLimits
from .errors import kept

LOOP_BUDGET = MIB
"""Bytes that may be checked on the loop: some 150 us."""

BATCH_COST = 16 * KIB
"""What a batch costs however small it is, in bytes of checking."""

MAX_BATCHES = 4096
"""Batches of one request; more would hold the loop when they are appended."""


class BatchCheck:
    """The batches of one request: `headers` of the good ones so far, `refused` for the first that is not."""

    __slots__ = ("_dedup_ids", "_limits", "_position", "_view", "headers", "refused")

    def __init__(self, view: memoryview, limits: BatchLimits) -> None:
        self._view = view
        self._limits = limits
        self._position = 0
        self._dedup_ids = 0
        self.headers: list[BatchHeader] = []
        self.refused: TidelogError | None = None

    @property
    def is_done(self) -> bool:
        """Whether every batch was checked, or one was refused."""
        return self.refused is not None or self._position >= len(self._view)

    @property
    def good_bytes(self) -> int:
        """Bytes of the good batches, which come first."""
        return self._position

    def run(self, budget: int | None = None) -> None:
        """Check on until done, or until the next batch would exceed the budget."""
        view, limits = self._view, self._limits
        try:
            while self._position < len(view):
                if budget is not None:
                    budget -= self._next_cost()
                    if budget < 0:
                        return
                if len(self.headers) == MAX_BATCHES:
                    raise InvalidBatchError(f"expected at most {MAX_BATCHES} batches in one request, found more")
                header = check_from_producer(
                    view,
                    self._position,
                    max_batch_bytes=limits.max_batch_bytes,
                    max_payload_bytes=limits.max_payload_bytes,
                    max_message_bytes=limits.max_message_bytes,
                )
                if header.attributes & Attributes.DEDUP_ID:
                    self._count_dedup_ids(header.record_count)
                self.headers.append(header)
                self._position += header.batch_length
        except TidelogError as error:
            self.refused = kept(error)

    def _count_dedup_ids(self, count: int) -> None:
        self._dedup_ids += count
        if self._dedup_ids > MAX_DEDUP_IDS_PER_REQUEST:
            raise InvalidBatchError(
                f"expected at most {MAX_DEDUP_IDS_PER_REQUEST} records with dedup ids in one request,"
                f" found {self._dedup_ids}",
                limit=MAX_DEDUP_IDS_PER_REQUEST,
            )

    def _next_cost(self) -> int:
        """Return what the next batch will cost, going by what its header claims."""
        left = len(self._view) - self._position
        if left < HEADER_BYTES:
            return 0
        header = BatchHeader.read(self._view, self._position)
        unpacked = min(header.payload_length, self._limits.max_payload_bytes) if header.codec else 0
        return BATCH_COST + min(header.batch_length, left) + unpacked
