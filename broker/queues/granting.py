"""The reply to an acquire: leases with their batches, answered when what gave them is written.

Small parts of batches are cut out on the loop where that is quick, else in a worker; the lease runs already meanwhile.
So a member is told how long it still runs, and one that is over by then, or was reset, is not delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...protocol.durability import Durability
from ...protocol.errors import TidelogError
from ...protocol.messages import AcquireReply, Attempts, FetchPosition, Grant, Portion
from ..deferred import Bulk, Deferred, Reply
from ..delivery.marks import Marked
from ..delivery.offset_set import packed_of
from ..errors import kept, storage_error
from ..services import Services
from .bug import told_bug
from .group_partition import Leased
from .leased_batches import LeasedBatch, slices_of
from .offer import Offer
from .sparse_batch import are_quick, cut


class Granting:
    """Makes one reply of what was leased."""

    def __init__(self, services: Services, offer: Offer, version: int) -> None:
        self._services = services
        self._leased = offer.leased
        self._order = offer.order
        self._problems = offer.problems
        self._version = version
        self._pieces: list[list[Bulk]] = []
        self._failure: TidelogError | None = None
        self._bad: dict[int, TidelogError] = {}
        """Leases with batches that cannot be cut, and why. The others are delivered."""
        self._unwritten = self._unverified = 0
        self.answer: Deferred[Reply] = Deferred()

    def begin(self) -> Deferred[Reply]:
        """Have the batches made, and the events written."""
        self._unwritten = 1 + len(self._leased)
        for one in self._leased:
            log = one.part.partition.delivery.log
            assert log is not None, "what was leased was recorded"
            log.wait(Durability.WRITTEN, self._written)
        if are_quick([batch for one in self._leased for batch in one.batches.batches if not batch.is_whole]):
            self._make()
            self._written(None)
        else:
            self._services.offload(self._make, partial(self._written, None))
        return self.answer

    def _make(self) -> None:
        limit = self._services.batch_limits.max_payload_bytes
        for one in self._leased:
            try:
                self._pieces.append(_bulk(one, limit))
            except OSError as error:
                self._failure = storage_error(error, "reading leased batches")
            except TidelogError as error:
                self._bad[one.lease] = kept(error)
                self._pieces.append([])
            except Exception as bug:  # in a worker it would take the broker along
                self._failure = told_bug(self._services.report, bug)

    def _written(self, error: TidelogError | None) -> None:
        self._failure = self._failure or error
        self._unwritten -= 1
        if not self._unwritten:
            self._verify([one for one in self._leased if one.lease in self._bad])

    def _verify(self, bad: Sequence[Leased]) -> None:
        """Have what cannot be cut checked before anything is answered: what is damaged is known then, and passed over
        by who asks again."""
        self._unverified = 1
        for one in bad:
            partition = one.part.partition
            for batch in one.batches.batches:
                if not batch.is_whole:
                    position = FetchPosition(partition.topic_id, partition.index, batch.base_offset)
                    found = partition.verify(position, max_bytes=1)
                    if isinstance(found, Deferred):
                        self._unverified += 1
                        found.on_done(self._verified)
        self._verified()

    def _verified(self, _found: object = None) -> None:
        self._unverified -= 1
        if not self._unverified:
            self._answer()

    def _answer(self) -> None:
        if self._failure is None and len(self._bad) == len(self._leased):
            self._failure = next(iter(self._bad.values()))  # there is nothing else to be delivered
        if self._failure is not None:
            self._take_back()
            self.answer.fail(self._failure)
            return
        grants: list[Grant] = []
        bulk: list[Bulk] = []
        places: list[int | None] = []
        now_us = self._services.time.monotonic_us()
        for one, pieces in zip(self._leased, self._pieces, strict=True):
            left_us = 0 if one.lease in self._bad else one.part.ledger.left_us(one.lease, now_us)
            places.append(len(grants) if left_us else None)
            if left_us:
                grants.append(_grant(one, pieces, left_us))
                bulk += pieces
            else:
                one.part.give_back([one.lease])  # where it is on record still: nobody was given its messages
        order = [Portion(place, one.count) for one in self._order if (place := places[one.grant]) is not None]
        reply = AcquireReply(self._version, grants, self._problems, order)
        self.answer.resolve(Reply(reply, bulk, undelivered=self._take_back))

    def _take_back(self) -> None:
        """Return all of it, uncounted: it did not reach its member."""
        for one in self._leased:
            one.part.give_back([one.lease])


def _bulk(one: Leased, max_payload_bytes: int) -> list[Bulk]:
    batches = one.batches
    if batches.are_whole:
        return [*slices_of(batches.batches)]
    bulk: list[Bulk] = []
    ranges = batches.choice.ranges
    whole: list[LeasedBatch] = []
    for batch in batches.batches:
        if batch.is_whole:
            whole.append(batch)
            continue
        bulk += slices_of(whole)
        whole.clear()
        bulk.append(cut(batch, ranges, max_payload_bytes))
    return [*bulk, *slices_of(whole)]


def _grant(one: Leased, pieces: Sequence[Bulk], left_us: int) -> Grant:
    partition = one.part.partition
    return Grant(
        partition.topic_id,
        partition.index,
        one.lease,
        one.batches.choice.packed,
        left_us,
        sum(piece.length if not isinstance(piece, (bytes, bytearray, memoryview)) else len(piece) for piece in pieces),
        _attempts(one.earlier),
        one.batches.choice.are_suspects,
    )


def _attempts(earlier: Sequence[Marked]) -> list[Attempts]:
    return [Attempts(packed_of(offsets), mark.attempts, mark.last_us, mark.error) for mark, offsets in earlier]
