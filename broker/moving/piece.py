"""One piece of a move: stored records found, read by a worker, and the batches that their copies come to.

A record that cannot be copied is put aside, so that the others go on: it is larger than the segments of its target, or
the disk does not give it. What is damaged or gone is settled as such.
"""

from __future__ import annotations

from ...protocol.errors import BatchTooLargeError, CorruptError, OffsetOutOfRangeError, StorageError, TidelogError
from ...protocol.messages import FetchPosition
from ...protocol.segment_header import SEGMENT_HEADER_BYTES
from ..deferred import Deferred
from ..delivery.acquiring import Choice
from ..delivery.offset_set import OffsetSet
from ..errors import anew, kept
from ..flow import Flow, awaited, offloaded
from ..partition import Partition
from ..queues.batch_finder import BatchFinder
from ..queues.leased_batches import LeasedBatches
from ..services import Services
from .copying import MAX_BYTES, OWN_BYTES, CopyBatch, Copying
from .source import Source


class Pieces:
    """Makes the copies of one source, some at a time."""

    def __init__(self, services: Services, source: Source) -> None:
        self.in_hand = OffsetSet()
        """Those that are being copied."""
        self.aside = OffsetSet()
        """Those that cannot be copied as things are."""
        self._services = services
        self._source = source
        self._why_aside: TidelogError | None = None
        self._finder: BatchFinder | None = None
        self._looked: Deferred[None] = Deferred()

    def __repr__(self) -> str:
        return f"<Pieces of {self._source!r}, {len(self.aside)} aside>"

    def why_aside(self) -> TidelogError:
        """Return why some cannot be copied."""
        assert self._why_aside is not None, "something was put aside"
        return anew(self._why_aside)

    def make(self, wanted: OffsetSet, target: Partition) -> Flow[list[CopyBatch]]:
        """Make copies of the first of what is wanted; none where what is wanted is to be asked for again."""
        batches = yield from self._stored(wanted)
        if batches is None:
            return []
        self.in_hand = batches.choice.offsets
        limits = self._services.batch_limits
        largest = target.log.segment_bytes - SEGMENT_HEADER_BYTES
        copying = Copying(
            batches.batches,
            self.in_hand,
            self._source.rewriting(self.in_hand),
            self._source.partition.log.log_id,
            max_batch_bytes=min(largest, limits.max_batch_bytes, limits.max_payload_bytes),
            max_payload_bytes=limits.max_payload_bytes + OWN_BYTES,
        )
        yield offloaded(self._services.offload, copying.run)
        for one in copying.made:
            if len(one.data) > largest:
                self._put_aside(one.offsets, _too_large(len(one.data), largest))
        fitting = [one for one in copying.made if len(one.data) <= largest]
        self.in_hand = OffsetSet().union(*(one.offsets for one in fitting))
        if not copying.made and copying.bad is not None:
            yield from self._look_at(*copying.bad, wanted)
        return fitting

    def _stored(self, wanted: OffsetSet) -> Flow[LeasedBatches | None]:
        """Find stored batches, in a worker where that may wait for the disk; None where some are gone."""
        if self._finder is None:
            self._finder = BatchFinder(self._source.partition, self._services.offload, self._ready)
        while True:
            self._looked = Deferred()
            try:
                found = self._finder.find(Choice(wanted), MAX_BYTES, must=True)
            except (CorruptError, OffsetOutOfRangeError):
                if not self._source.pass_over():
                    raise
                return None
            if found is not None and found.batches:
                return found
            if found is not None:
                raise CorruptError(f"expected a stored message at offset {wanted.min()}, found none")
            yield self._looked
            trouble = self._finder.take_trouble()
            if trouble is not None:
                raise trouble

    def _ready(self) -> None:
        self._looked.resolve(None)

    def _look_at(self, offset: int, error: TidelogError, wanted: OffsetSet) -> Flow[None]:
        """Have a stored batch checked that could not be copied; what is not found damaged is put aside."""
        if not isinstance(error, StorageError):
            partition = self._source.partition
            position = FetchPosition(partition.topic_id, partition.index, offset)
            checked = partition.verify(position, max_bytes=1)
            if isinstance(checked, Deferred):
                yield from awaited(checked)
            self._source.pass_over()
        first = wanted.min()
        if first in self._source.to_move():
            self._put_aside(OffsetSet([first]), error)

    def _put_aside(self, offsets: OffsetSet, why: TidelogError) -> None:
        self.aside |= offsets
        self._why_aside = kept(why)


def _too_large(found: int, limit: int) -> BatchTooLargeError:
    return BatchTooLargeError(
        f"expected a copy of at most {limit} bytes, found one of {found}: it fits into no segment of its topic"
        " (`topics set TOPIC segment_bytes=...` makes room)",
        limit=limit,
        found=found,
    )
