"""What is to be told to the broker of leased messages: merged into ranges, numbered, kept until it is answered.

    ack, nack ... -> entry (PENDING) -> request n (SENT, at most 32) -> answered: done, or LEASE_LOST
                                           '-- connection lost: the same request under the same number again

A lone entry goes out at once. While something is on its way others gather, and share the next request: so a loop that
acknowledges each message sends a few ranges for a thousand. The broker remembers what the last 64 numbers of a member
did, so a repeat changes nothing and is answered as the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...protocol.errors import ClosedError, LeaseLostError, TidelogError
from ...protocol.messages import LeaseRanges, Settle, SettleError, SettleItem, SettleReply, Settling
from ...protocol.messages.queue import POLICY_DELAY
from ...protocol.offset_ranges import merge_offsets, pack_ranges
from .held_lease import HeldLease

MAX_IN_FLIGHT = 32
"""Settle requests without an answer: half of what the broker remembers of a member."""

MAX_ITEMS = 1_000
"""Of one request, so that its results fit a reply."""

MAX_RANGE_BYTES = 1 << 19
"""Packed ranges of one request: half of what the broker takes, hand-overs included."""


MAX_ERROR_BYTES = 1 << 20
"""Errors of one request, beyond which nothing is added: with what the last one adds, its ranges and its items it stays
below the four mebibytes that a request may have."""


class How(NamedTuple):
    """What becomes of messages; entries of one lease with the same are one item."""

    what: Settling
    delay_us: int = POLICY_DELAY
    duration_us: int = 0
    error: tuple[str, str, str] | None = None

    def settle_error(self) -> SettleError | None:
        """Return the error as it is sent."""
        return None if self.error is None else SettleError(*self.error)

    @property
    def error_bytes(self) -> int:
        """The size of its error."""
        return 0 if self.error is None else sum(len(part.encode()) for part in self.error)


class Entry:
    """Messages of one lease that were settled together. `serial` counts all entries of a queue.

    The broker does nothing of an item of which one message was settled otherwise. So an entry that is refused is tried
    again in halves, until what is refused is one message (unless the lease has ended anyway).
    """

    __slots__ = ("error", "how", "is_answered", "lease", "offsets", "open_parts", "parent", "sent_at", "serial")

    def __init__(self, lease: HeldLease, how: How, offsets: Sequence[int], serial: int) -> None:
        self.lease = lease
        self.how = how
        self.offsets = offsets
        self.serial = serial
        self.is_answered = False
        self.error: TidelogError | None = None
        self.sent_at = 0.0
        self.parent: Entry | None = None
        self.open_parts = 0

    def root(self) -> Entry:
        """Return the entry that this one is a part of, or itself."""
        return self if self.parent is None else self.parent.root()

    def halves(self) -> list[Entry]:
        """Return two entries that stand for this one."""
        middle = len(self.offsets) // 2
        parts = [
            Entry(self.lease, self.how, each, self.serial) for each in (self.offsets[:middle], self.offsets[middle:])
        ]
        self.open_parts = len(parts)
        for part in parts:
            part.parent = self
        return parts

    def whole(self) -> Entry:
        """Return an entry that stands for this one, and is sent by itself."""
        part = Entry(self.lease, self.how, self.offsets, self.serial)
        self.open_parts, part.parent = 1, self
        return part

    def __repr__(self) -> str:
        state = f"failed: {self.error}" if self.error else "answered" if self.is_answered else "open"
        return f"<Entry {self.serial}: {self.how.what.name} {len(self.offsets)} of {self.lease!r}, {state}>"


class Flight:
    """A numbered request and the entries that each of its items stands for."""

    __slots__ = ("entries", "is_sent", "message")

    def __init__(self, message: Settle, entries: list[list[Entry]]) -> None:
        self.message = message
        self.entries = entries
        self.is_sent = False
        """Over the connection that there is now."""

    def __repr__(self) -> str:
        return f"<Flight {self.message.number} with {len(self.entries)} items>"

    def all_entries(self) -> Iterator[Entry]:
        """Yield the entries of all items."""
        for entries in self.entries:
            yield from entries


class Settles:
    """The settles of one member: what is pending, and what is on its way."""

    def __init__(self, member: int) -> None:
        self.member = member
        self.group: tuple[int, int] = (0, 0)
        """Group id and generation."""
        self.flights: dict[int, Flight] = {}
        self._pending: list[Entry] = []
        self._serial = 0
        self._number = 0

    def __repr__(self) -> str:
        return f"<Settles with {len(self._pending)} pending, {len(self.flights)} in flight>"

    @property
    def has_pending(self) -> bool:
        """Whether something is not on its way yet."""
        return bool(self._pending)

    @property
    def has_room(self) -> bool:
        """Whether one more request may be on its way."""
        return len(self.flights) < MAX_IN_FLIGHT

    @property
    def last_serial(self) -> int:
        """The serial of the latest entry."""
        return self._serial

    def add(self, lease: HeldLease, how: How, offsets: Sequence[int]) -> Entry:
        """Take an entry; `offsets` ascend (a renewal has none)."""
        entry = Entry(lease, how, offsets, self._serial + 1)
        lease.unanswered += 1
        self._serial += 1
        self._pending.append(entry)  # last: what Ctrl-C kept from it is said again
        return entry

    def unanswered(self) -> Iterator[Entry]:
        """Yield every entry that is not answered, the earliest request first."""
        for flight in self.flights.values():
            yield from flight.all_entries()
        yield from self._pending

    def is_answered_up_to(self, serial: int) -> bool:
        """Whether no entry up to that one waits for its answer."""
        return all(entry.serial > serial for entry in self.unanswered())

    def next_request(self, hand_overs: list[LeaseRanges], now: float) -> Flight | None:
        """Return the next request to send, if there is anything to say and room for it."""
        if not self.has_room or not (self._pending or hand_overs):
            return None
        items: dict[tuple[int, How, int], list[Entry]] = {}
        ranges_left, errors_left, taken = MAX_RANGE_BYTES, MAX_ERROR_BYTES, 0
        for entry in self._pending:
            ranges_left -= 16 * len(entry.offsets)  # at most: they are mostly next to each other
            is_full = len(items) >= MAX_ITEMS or errors_left <= 0
            if taken and (is_full or (ranges_left < 0 and _is_scattered(entry.offsets))):
                break
            key = (entry.lease.id, entry.how, 0 if entry.parent is None else id(entry))
            if key in items:
                items[key].append(entry)
            else:
                items[key] = [entry]
                errors_left -= entry.how.error_bytes
            entry.sent_at = now
            taken += 1
        self._number += 1
        message = Settle(
            *self.group,
            self.member,
            self._number,
            [_item(how, entries) for (_lease, how, _alone), entries in items.items()],
            hand_overs,
        )
        flight = self.flights[self._number] = Flight(message, [*items.values()])
        del self._pending[:taken]
        return flight

    def to_send(self) -> list[Flight]:
        """Return the requests that have not gone out over the connection there is, in order of their numbers."""
        return [flight for flight in self.flights.values() if not flight.is_sent]

    def lost_connection(self) -> None:
        """Every request without an answer is to go out again."""
        for flight in self.flights.values():
            flight.is_sent = False

    def answered(self, flight: Flight, reply: SettleReply, now: float) -> tuple[list[Entry], bool]:
        """Take an answer; return the entries it is final for, and whether to pause: something that the broker could not
        do now is pending again."""
        closed: list[Entry] = []
        must_pause = False
        for entries, result in zip(flight.entries, reply.results, strict=True):
            error = None if result is None else result.error()
            if error is not None and error.retriable:
                self._pending += entries
                must_pause = True
                continue
            if isinstance(error, LeaseLostError) and entries[0].lease.expires_at > now:
                closed += self._refused_item(entries, error)
                continue
            for entry in entries:
                _close(entry, error)
            closed += entries
        self.flights.pop(flight.message.number, None)
        return closed, must_pause

    def _refused_item(self, entries: list[Entry], error: LeaseLostError) -> list[Entry]:
        """The lease runs, so one message of an item was settled otherwise: find out which. Return what is final."""
        closed: list[Entry] = []
        for entry in entries:
            if len(entry.offsets) <= 1 and len(entries) == 1:
                _close(entry, error)
                closed.append(entry)
            else:
                parts = entry.halves() if len(entry.offsets) > 1 else [entry.whole()]
                entry.lease.unanswered += len(parts)
                self._pending += parts
        return closed

    def refused(self, flight: Flight, error: TidelogError) -> list[Entry]:
        """The broker refused a whole request for good: return its entries, which all failed."""
        entries = [*flight.all_entries()]
        for entry in entries:
            _close(entry, error)
        self.flights.pop(flight.message.number, None)
        return entries

    def give_up(self, error: ClosedError) -> list[Entry]:
        """Nothing is sent any more: return what is not answered. Of what was sent nobody knows, the rest is void."""
        entries = [*self.unanswered()]
        doubt = ClosedError(f"{error.message}: the broker did not say before whether these messages are settled")
        for flight in self.flights.values():
            for entry in flight.all_entries():
                _close(entry, doubt)
        for entry in self._pending:
            _close(entry, lost_error(entry.lease))
        self.flights.clear()
        self._pending.clear()
        return entries


def _close(entry: Entry, error: TidelogError | None) -> None:
    if not entry.is_answered:
        entry.is_answered = True
        entry.error = entry.error or error
        entry.lease.unanswered -= 1
        parent = entry.parent
        if parent is not None:
            parent.error = parent.error or entry.error
            parent.open_parts -= 1
            if not parent.open_parts:
                _close(parent, None)


def _item(how: How, entries: list[Entry]) -> SettleItem:
    lease = entries[0].lease
    return SettleItem(
        lease.topic.id,
        lease.partition,
        lease.id,
        how.what,
        packed(entries[0].offsets if len(entries) == 1 else _merged(entry.offsets for entry in entries)),
        how.delay_us,
        how.duration_us,
        how.settle_error(),
    )


def _merged(columns: Iterable[Sequence[int]]) -> list[int]:
    joined: list[int] = []
    for offsets in columns:
        if joined and offsets and offsets[0] <= joined[-1]:
            return np.unique(
                np.concatenate([np.asarray(each, np.int64) for each in [joined, offsets, *columns]])
            ).tolist()
        joined += offsets
    return joined


def _is_scattered(offsets: Sequence[int]) -> bool:
    return bool(offsets) and offsets[-1] - offsets[0] + 1 != len(offsets)


def packed(offsets: Sequence[int]) -> bytes:
    """Return ascending offsets as packed ranges."""
    if not offsets:
        return b""
    if not _is_scattered(offsets):
        return pack_ranges([(offsets[0], offsets[-1] + 1)])
    return merge_offsets(np.asarray(offsets, np.int64)).astype("<i8").tobytes()


def lease_ranges(lease: HeldLease, offsets: Sequence[int]) -> LeaseRanges:
    """Return a report of hand-overs."""
    return LeaseRanges(lease.topic.id, lease.partition, lease.id, packed(offsets))


def lost_error(lease: HeldLease) -> LeaseLostError:
    """Return what is raised for a message that was settled otherwise before, or whose lease is known to be gone."""
    return LeaseLostError(
        f"{lease.topic.shown}/{lease.partition}: expected a message that this queue holds, found one whose lease"
        " ended, or that was settled otherwise: nothing was changed",
        lease=lease.id,
        partition=lease.partition,
    )
