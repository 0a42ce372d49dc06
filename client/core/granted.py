"""Leases that came and were not handed out yet: their batches, decoded when their turn comes.

They are not put in another order by their priorities: the broker has given each lane its share. Where it says how the
leases of one answer are mixed (`Portion`), they are decoded together and handed out in portions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...protocol.batch import RecordBatch, iterate_headers, verify
from ...protocol.batch_decode import decode_columns
from ...protocol.errors import CorruptError, InvalidBatchError
from ...protocol.messages import Portion
from .held_lease import HeldLease

PRIORITY_AT = 64
"""Where a batch says it; see protocol/README.md."""


TOGETHER = 2_000
"""Messages of small batches that are handed out as one list. Several priorities make small ones: a producer's batch is
of one, so of ten it sends ten where it would send one. Profiled with batches of 80: nine tenths of what a message cost
was paid for each list (a settle, a look for more, the locks; and its share of both in the broker)."""


class Received(NamedTuple):
    """Leases, each with the stored batches that came with it, that are handed out one after the other; or in the
    portions of an order, whose numbers are their indexes here."""

    leases: list[tuple[HeldLease, memoryview]]
    order: Sequence[Portion] = ()

    def without(self, lease: HeldLease) -> Received:
        """Return the others."""
        at = next(at for at, (each, _bulk) in enumerate(self.leases) if each is lease)
        order = [Portion(one.grant - (one.grant > at), one.count) for one in self.order if one.grant != at]
        return Received([*self.leases[:at], *self.leases[at + 1 :]], order)


class Leased(NamedTuple):
    """The leased records of one stored batch: `start` to `stop`, or those of `rows`. `at`: where in the lease's
    `offsets` the first of them is."""

    lease: HeldLease
    records: RecordBatch
    at: int
    start: int
    stop: int
    rows: npt.NDArray[np.int64] | None = None

    @property
    def size(self) -> int:
        """How many there are."""
        return self.stop - self.start if self.rows is None else len(self.rows)

    def parted(self, count: int) -> tuple[Leased, Leased]:
        """Return the first so many of them, and the others."""
        lease, records, at, start, stop, rows = self
        if rows is None:
            middle = start + count
            return Leased(lease, records, at, start, middle), Leased(lease, records, at + count, middle, stop)
        return (
            Leased(lease, records, at, 0, 0, rows[:count]),
            Leased(lease, records, at + count, 0, 0, rows[count:]),
        )


class Granted:
    """The leases that wait for their turn, in the order in which they came."""

    def __init__(self) -> None:
        self.max_payload_bytes = 0
        self.priorities: set[int] = set()
        """All that ever came: a lease is of one, as its batches are (but for what is given for its age)."""
        self.failed: HeldLease | None = None
        """Of whose bytes `pop` raised last that they are damaged."""
        self._received: deque[Received] = deque()
        self._ready: deque[Leased] = deque()
        self._damaged: deque[tuple[HeldLease, CorruptError | InvalidBatchError]] = deque()
        """Of those that came together with others: told one by one, and none of them keeps the others back."""

    def __len__(self) -> int:
        return len(self._received) + len(self._ready) + len(self._damaged)

    def __repr__(self) -> str:
        return f"<Granted with {len(self._received)} leases not looked at, {len(self._ready)} batches ready>"

    def add(self, lease: HeldLease, bulk: memoryview) -> Received:
        """Keep the batches of a lease; return it as it is kept."""
        return self.add_all([(lease, bulk)], ())

    def add_all(self, leases: Sequence[tuple[HeldLease, memoryview]], order: Sequence[Portion]) -> Received:
        """Keep leases that are handed out in an order, as one."""
        received = Received([*leases], order)
        self._received.append(received)
        self.priorities.update(bulk[PRIORITY_AT] for _lease, bulk in leases if len(bulk) > PRIORITY_AT)
        return received

    def take_back(self, received: Received) -> bool:
        """Drop leases of which nobody has begun to take any out; return whether they were there. In one step: another
        thread may take them out at this moment."""
        try:
            self._received.remove(received)
        except ValueError:
            return False
        return True

    def next_lease(self) -> HeldLease | None:
        """Return whose turn it is."""
        if self._damaged:
            return self._damaged[0][0]
        if self._ready:
            return self._ready[0].lease
        return self._received[0].leases[0][0] if self._received else None

    def skip(self) -> None:
        """Drop the lease whose turn it is: it has ended."""
        lease = self.next_lease()
        if self._damaged and self._damaged[0][0] is lease:
            self._damaged.popleft()
        elif self._ready:
            self._ready = deque(one for one in self._ready if one.lease is not lease)
        elif self._received and lease is not None:
            others = self._received[0].without(lease)
            if others.leases:
                self._received[0] = others
            else:
                self._received.popleft()

    def pop(self, together: int = 1) -> list[Leased]:
        """Return the next batch, and those behind it of the same lease up to `together` messages; none at the end.
        Raises CorruptError or InvalidBatchError for bytes that are not what was stored; their lease (`failed`) is
        dropped then, and no other."""
        ready = self._ready
        while self._damaged or not ready:
            if self._damaged:
                self.failed, error = self._damaged.popleft()
                raise error
            if not self._received:
                return []
            self._look_into(self._received.popleft())
        found = [ready.popleft()]
        lease, end, last = found[0].lease, found[0].at + found[0].size, found[0].at + together
        while ready and ready[0].lease is lease and ready[0].at == end and (end := end + ready[0].size) <= last:
            found.append(ready.popleft())
        return found

    def _look_into(self, received: Received) -> None:
        pieces: list[list[Leased]] = []
        for lease, bulk in received.leases:
            try:
                pieces.append(leased_batches(lease, bulk, self.max_payload_bytes))
            except (CorruptError, InvalidBatchError) as error:
                pieces.append([])
                self._damaged.append((lease, error))
        self._ready.extend(in_order(pieces, received.order))

    def put_back(self, batches: Iterable[Leased]) -> None:
        """Have batches be the next again, in this order."""
        self._ready.extendleft(reversed([*batches]))

    def clear(self) -> None:
        """Forget all of them."""
        self._received.clear()
        self._ready.clear()
        self._damaged.clear()


def in_order(pieces: Sequence[Sequence[Leased]], order: Sequence[Portion]) -> list[Leased]:
    """Return what is leased, of each lease a list, in the portions of an order; what it does not name comes last."""
    if not order:
        return [one for each in pieces for one in each]
    left = [deque(each) for each in pieces]
    found: list[Leased] = []
    for portion in order:
        count, of = portion.count, left[portion.grant] if portion.grant < len(left) else deque[Leased]()
        while count > 0 and of:
            one = of.popleft()
            if one.size > count:
                one, rest = one.parted(count)
                of.appendleft(rest)
            count -= one.size
            found.append(one)
    return [*found, *(one for each in left for one in each)]


def leased_batches(lease: HeldLease, bulk: memoryview, max_payload_bytes: int) -> list[Leased]:
    """Verify and decode the batches of a lease; return of each what is leased.

    Where each begins and ends in the lease is looked up for all together: of small batches that is a fifth of it.
    """
    batches: list[RecordBatch] = []
    for at, header in iterate_headers(bulk):
        view = bulk[at : at + header.batch_length]
        verify(view)
        batches.append(decode_columns(header, view, max_payload_bytes))
    firsts = lease.array.searchsorted([records.header.base_offset for records in batches]).tolist()
    lasts = lease.array.searchsorted([*map(_end_of, batches)]).tolist()
    found: list[Leased] = []
    for records, first, last in zip(batches, firsts, lasts, strict=True):
        part = None if first == last else _part_of(lease, records, first, last)
        if part is not None:
            found.append(part)
            retries = records.routing.retries
            if retries is not None:
                lease.note_limits(records.offsets, retries["max_attempts"])
    return found


def _end_of(records: RecordBatch) -> int:
    is_dense = records.routing.offset_deltas is None
    return records.header.end_offset if is_dense else int(records.offsets[-1]) + 1


def _part_of(lease: HeldLease, records: RecordBatch, first: int, last: int) -> Leased | None:
    """Return which records of a batch are leased, of those that the lease has from one place to another."""
    base, is_dense = records.header.base_offset, records.routing.offset_deltas is None
    if is_dense and last - first == len(records):
        return Leased(lease, records, first, 0, last - first)
    offsets = lease.array[first:last]
    if not is_dense:
        rows = np.flatnonzero(np.isin(records.offsets, offsets))
    elif int(offsets[-1]) - int(offsets[0]) + 1 == len(offsets):
        start = int(offsets[0]) - base
        return Leased(lease, records, first, start, start + len(offsets))
    else:
        rows = offsets - base
    if not len(rows):
        return None
    start, stop = int(rows[0]), int(rows[-1]) + 1
    first = int(lease.array.searchsorted(int(records.offsets[start])))
    if stop - start == len(rows):
        return Leased(lease, records, first, start, stop)
    return Leased(lease, records, first, 0, 0, rows)
