# Generated from client/aio/queue_batch.py by client/generate.py: change that, then run it.
"""A stored batch, or the leased part of one, as a queue hands it out: columns, and one call that settles all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING, Generic, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ...protocol.batch import RecordBatch
from ..core.granted import Leased
from ..core.held_lease import HeldLease
from ..core.settles import How
from ..core.times import Timeout
from ..headers import NO_HEADERS
from ..message import UNDECODED
from ..message_batch import MessageBatch
from . import runtime
from .queue_message import AnyQueueMessage, QueueMessage, TypedQueueMessage
from .settleable import Settleable

if TYPE_CHECKING:
    from ..codec import Decoder
    from .queue_desk import QueueDesk

T = TypeVar("T")


class QueueBatch(Settleable, MessageBatch[AnyQueueMessage], Generic[AnyQueueMessage]):  # pyright: ignore[reportInvalidTypeArguments]
    """Leased messages of one partition and one priority, in offset order: a MessageBatch that can be settled as one.

    Its messages can be settled by themselves as well; what is settled already stays as it is.
    """

    __slots__ = ("_lease",)

    def __init__(
        self,
        lease: HeldLease,
        records: RecordBatch,
        start: int = 0,
        stop: int | None = None,
        rows: npt.NDArray[np.int64] | None = None,
        decoder: Decoder[object] | None = None,
    ) -> None:
        """Hold records `start` to `stop`, or those whose numbers are `rows`, which a lease has."""
        super().__init__(lease.topic.shown, lease.topic.count, lease.partition, records, start, stop, rows, decoder)
        self._lease = lease

    @overload
    def __getitem__(self, index: int) -> AnyQueueMessage: ...
    @overload
    def __getitem__(self, index: slice) -> QueueBatch[AnyQueueMessage]: ...
    def __getitem__(self, index: int | slice) -> AnyQueueMessage | QueueBatch[AnyQueueMessage]:
        return self._slice(index) if isinstance(index, slice) else super().__getitem__(index)

    def __repr__(self) -> str:
        return super().__repr__().replace("<MessageBatch", f"<{type(self).__name__}", 1)

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a batch of a queue is held by a lease and cannot be pickled; its messages can")

    @property
    def lease(self) -> HeldLease:
        """The lease that holds it."""
        return self._lease

    def messages(self) -> list[AnyQueueMessage]:
        """Return the messages as objects, their bytes copied: what is kept of them does not hold the buffer."""
        count, times = len(self), self._records.own_timestamps_us
        return _made(
            [
                repeat(self.topic, count),
                repeat(self.partition),
                self._offsets(),
                repeat(None) if self._records.keys is None else self.keys,
                self.values,
                repeat(self._records.header.min_timestamp_us) if times is None else self.timestamps_us.tolist(),
                repeat(self.append_time_us),
                repeat(self.priority),
                self.headers,
                repeat(self.topic_count),
                repeat(self._lease),
            ],
            self._decoder,
        )

    def place(self) -> tuple[int, int]:
        """Return where in the lease's `offsets` the messages of a batch are that is as it came, or a tail of that."""
        records, at = self._records, self._start if self._rows is None else int(self._rows[0])
        first = records.header.base_offset + at if records.routing.offset_deltas is None else int(records.offsets[at])
        start = int(np.searchsorted(self._lease.array, first))
        return start, start + len(self)

    def _offsets(self) -> list[int]:
        """Return the lease's own number objects, so that it recognises them at a glance."""
        lease, count = self._lease, len(self)
        if not count:
            return []
        if self._rows is not None:  # of a slice they may be in any order, and any distance
            found = np.searchsorted(lease.array, self.offsets)
            if bool(np.any(np.diff(found) != 1)):
                return [lease.offsets[index] for index in found.tolist()]
            return lease.offsets[int(found[0]) : int(found[0]) + count]
        start, end = self.place()
        return lease.offsets[start:end]

    def _settle(self, how: How, wait: bool, timeout: Timeout) -> runtime.Settled:
        if not len(self):
            return runtime.SETTLED
        desk = cast("QueueDesk", self._lease.desk)
        return desk.settle_all(self._lease, self.offsets.tolist(), how, wait, timeout)

    def _slice(self, index: slice) -> QueueBatch[AnyQueueMessage]:
        found = super()._slice(index)
        assert isinstance(found, QueueBatch)
        return found

    def _like(
        self, start: int = 0, stop: int = 0, rows: npt.NDArray[np.int64] | None = None
    ) -> QueueBatch[AnyQueueMessage]:
        return QueueBatch(self._lease, self._records, start, stop, rows, self._decoder)


def joined_messages(found: Sequence[Leased], decoder: Decoder[object] | None) -> list[AnyQueueMessage]:
    """Return the messages of neighbours in one lease, as `QueueBatch.messages` of each would, but by one list: of
    small batches that took most of the time."""
    lease, start, end = found[0].lease, found[0].at, found[-1].at + found[-1].size
    values: list[object] = []
    times: list[object] = []
    appended: list[int] = []
    priorities: list[int] = []
    for each in found:
        header, size, own_times = each.records.header, each.size, each.records.own_timestamps_us
        values += _entries(each, each.records.values.to_list())
        times += [header.min_timestamp_us] * size if own_times is None else _entries(each, own_times.tolist())
        appended += [header.append_time_us] * size
        priorities += [header.priority] * size
    have_keys = any(each.records.keys is not None for each in found)
    have_headers = any(each.records.headers is not None for each in found)
    count = end - start
    columns: list[Iterable[object]] = [
        repeat(lease.topic.shown, count),
        repeat(lease.partition),
        lease.offsets[start:end],
        chain.from_iterable(_batch(each).keys for each in found) if have_keys else repeat(None),
        values,
        times,
        appended,
        priorities,
        chain.from_iterable(_batch(each).headers for each in found) if have_headers else repeat(NO_HEADERS),
        repeat(lease.topic.count),
        repeat(lease),
    ]
    return _made(columns, decoder)


def _batch(leased: Leased) -> QueueBatch[QueueMessage]:
    return QueueBatch(leased.lease, leased.records, leased.start, leased.stop, leased.rows)


def _entries(leased: Leased, entries: list[T]) -> list[T]:
    """Return those of a whole batch's entries that are leased."""
    if leased.rows is not None:
        return [entries[at] for at in leased.rows.tolist()]
    return entries if leased.size == len(entries) else entries[leased.start : leased.stop]


def _made(columns: list[Iterable[object]], decoder: Decoder[object] | None) -> list[AnyQueueMessage]:
    """Return messages of columns in the order of their fields; the first column says how many."""
    if decoder is None:
        return cast("list[AnyQueueMessage]", [*map(QueueMessage, *columns)])
    columns.insert(7, repeat(decoder))
    columns.insert(11, repeat(UNDECODED))
    return cast("list[AnyQueueMessage]", [*map(TypedQueueMessage, *columns)])
