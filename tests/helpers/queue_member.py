"""A member of a queue group that speaks raw frames: what it holds, what it asked, what it repeats until it is answered.

It keeps to the protocol as a client does (one number a settle request, the same again until it is answered, hand-overs
reported with what is sent anyway, what is held named after a reconnect) and decides nothing: a test says what to do.
What it does goes into a history (`queue_history`) by way of `note`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidelog.protocol.batch import decode_batch, iterate_headers
from tidelog.protocol.errors import LeaseLostError
from tidelog.protocol.limits import MIB
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    Grant,
    JoinGroup,
    JoinGroupReply,
    LeaseRanges,
    Settle,
    SettleItem,
    SettleReply,
    Settling,
)
from tidelog.protocol.messages.groups import GroupSettings, GroupStart
from tidelog.protocol.offset_ranges import iter_ranges, pack_ranges

from .frame_door import Call, FrameDoor
from .queue_history import Asked, Handed, How, QueueEvent, Told, What, message_of

WHATS: dict[Settling, What] = {
    Settling.ACCEPT: "ack",
    Settling.RELEASE: "nack",
    Settling.REJECT: "reject",
    Settling.RETURN: "return",
    Settling.SUSPECT: "suspect",
    Settling.RENEW: "extend",
}


@dataclass(eq=False)
class Held:
    """A lease as its member sees it. `left`: offset -> message, of what it did not settle; `earlier`: attempts before."""

    lease: int
    topic_id: int
    partition: int
    left: dict[int, str]
    earlier: dict[int, int]
    since_us: int
    until_us: int
    is_alone: bool
    is_doubtful: bool = False
    """Whether a power loss may have taken it."""
    handed: set[int] = field(default_factory=set[int])
    unreported: set[int] = field(default_factory=set[int])


@dataclass(eq=False)
class Request:
    """A settle that is repeated until it is answered; `was_done`: the broker did it, and the answer was lost."""

    settle: Settle
    asks: list[str]
    asked_us: int
    call: Call | None = None
    was_done: set[int] = field(default_factory=set[int])


class Notebook:
    """Where members write what happens, at the time of the test's clock; and which leases anybody was given."""

    def __init__(self, topic: str, now_us: Callable[[], int], note: Callable[[QueueEvent], None]) -> None:
        self.topic = topic
        self.now_us = now_us
        self.note = note
        self.leases: set[int] = set()
        self.grants = self.repeats = self.refused = 0


class QueueMember:
    """One member of one group."""

    def __init__(self, book: Notebook, group: str, number: int, topic_id: int) -> None:
        self.book = book
        self.group = group
        self.number = number
        self.topic_id = topic_id
        self.others: list[int] = []  # topics that it asks for beside its own
        self.group_id = self.generation = 0
        self.held: dict[int, Held] = {}
        self.came: list[str] = []  # by the last reply, in the order in which it is to be handed out
        self.ghosts: list[Held] = []  # leases that ended, as it believes or was told
        self.requests: list[Request] = []
        self._polls: list[Call] = []
        self._next, self._names_held = 1, False
        self.door: FrameDoor | None = None

    @property
    def name(self) -> str:
        """What histories call it."""
        return f"{self.group}-{self.number:x}"

    @property
    def connection(self) -> FrameDoor:
        """Its connection."""
        assert self.door is not None, "the member is not connected"
        return self.door

    def connect(self, door: FrameDoor) -> None:
        """Go on over a new connection: it names what it holds, and repeats what was not answered."""
        self._polls.clear()
        self._names_held = self.door is not None
        self.door = door
        for request in self.requests:
            self.book.repeats += 1
            request.call = door.ask(request.settle)

    def join(self, start: GroupStart | None = None, settings: GroupSettings | None = None) -> Call:
        """Ask to be let into the group."""
        full = f"default/{self.group}"
        return self.connection.ask(JoinGroup(full, [self.topic_id, *self.others], self.number, start, settings))

    def joined(self, call: Call) -> JoinGroupReply:
        """Take the answer of `join`."""
        reply = call.message()
        assert isinstance(reply, JoinGroupReply)
        self.group_id, self.generation = reply.group.id, reply.group.generation
        return reply

    # -- leases ----------------------------------------------------------------------------------------------------

    def acquire(self, count: int, *, max_wait_us: int = 0, visibility_us: int = 0, max_bytes: int = 8 * MIB) -> Call:
        """Ask for leases; `harvest` takes them."""
        # What it asked to settle and was not answered about, as where the disk was full, is its own until it is.
        unsettled = [item.lease for request in self.requests for item in request.settle.items]
        held = sorted({*self.held, *unsettled}) if self._names_held else None
        self._names_held = False
        call = self.connection.ask(
            Acquire(
                self.group_id,
                self.generation,
                self.number,
                [self.topic_id, *self.others],
                max_records=count,
                visibility_timeout_us=visibility_us,
                max_bytes=max_bytes,
                max_wait_us=max_wait_us,
                hand_overs=self._hand_overs(),
                held=held,
            )
        )
        self._polls.append(call)
        return call

    def hand_over(self, held: Held, offsets: Sequence[int]) -> None:
        """Give messages of a lease to this member's code."""
        for offset in offsets:
            if offset in held.left and offset not in held.handed:
                held.handed.add(offset)
                held.unreported.add(offset)
                self.book.note(
                    Handed(
                        group=self.group,
                        worker=self.name,
                        message=held.left[offset],
                        partition=f"{self.book.topic}/{held.partition}",
                        offset=offset,
                        lease=held.lease,
                        attempt=held.earlier.get(offset, 0) + 1,
                        since_ns=held.since_us * 1_000,
                        until_ns=held.until_us * 1_000,
                    )
                )

    def _hand_overs(self) -> list[LeaseRanges]:
        reports: list[LeaseRanges] = []
        for held in self.held.values():
            if held.unreported:
                ranges = packed(held.unreported)
                reports.append(LeaseRanges(held.topic_id, held.partition, held.lease, ranges))
                held.unreported.clear()
        return reports

    def settle(self, items: Sequence[tuple[Held, Settling, Sequence[int], int]], durability: int = 0) -> Request:
        """Ask to settle (lease, what, offsets, delay); `harvest` takes the answer. What was not handed over before is
        now, but for what is only given back."""
        asks: list[str] = []
        wire: list[SettleItem] = []
        for held, what, offsets, delay_us in items:
            if what in (Settling.ACCEPT, Settling.RELEASE, Settling.REJECT):
                self.hand_over(held, offsets)
            ask = f"{self.name}-{self._next}-{len(asks)}"
            asks.append(ask)
            until_us = self.book.now_us() + delay_us if what is Settling.RENEW else 0
            self.book.note(
                Asked(
                    ask=ask,
                    group=self.group,
                    worker=self.name,
                    what=WHATS[what],
                    lease=held.lease,
                    messages=[held.left[offset] for offset in (offsets or held.left)],
                    delay_us=delay_us if what is Settling.RELEASE and delay_us >= 0 else None,
                    until_ns=until_us * 1_000,
                )
            )
            wire.append(
                SettleItem(
                    held.topic_id,
                    held.partition,
                    held.lease,
                    what,
                    packed(offsets),
                    delay_us=delay_us if what is Settling.RELEASE else -1,
                    duration_us=delay_us if what is Settling.RENEW else 0,
                )
            )
            if what is Settling.RENEW:
                continue
            held.unreported -= set(offsets)
            for offset in offsets:
                held.left.pop(offset, None)
            if not held.left:
                self.held.pop(held.lease, None)
        request = Request(
            Settle(self.group_id, self.generation, self.number, self._next, wire, self._hand_overs(), durability),
            asks,
            self.book.now_us(),
        )
        self._next += 1
        self.requests.append(request)
        request.call = self.connection.ask(request.settle)
        return request

    # -- answers ---------------------------------------------------------------------------------------------------

    def harvest(self, *, lose: bool = False) -> None:
        """Take the answers that are there; `lose`: those of settles never arrive, and are asked for again."""
        for call in [call for call in self._polls if not call.is_pending]:
            self._polls.remove(call)
            if call.reply is not None and call.reply.error is None:
                self._take_grants(call)
        for request in [*self.requests]:
            if request.call is not None and not request.call.is_pending:
                self._take_results(request, lose)

    def _take_grants(self, call: Call) -> None:
        assert call.reply is not None
        reply, bulk, at = call.message(), call.reply.bulk, 0
        assert isinstance(reply, AcquireReply)
        for grant in reply.grants:
            self._take_grant(grant, bulk[at : at + grant.bulk_bytes], call.answered_us)
            at += grant.bulk_bytes
        assert at == len(bulk), "the bulk is that of the grants"
        self.came = in_order(reply, [[*self.held[grant.lease].left.values()] for grant in reply.grants])

    def _take_grant(self, grant: Grant, bulk: memoryview, since_us: int) -> None:
        assert grant.lease not in self.book.leases, f"lease {grant.lease:#x} was given out before"
        self.book.leases.add(grant.lease)
        self.book.grants += 1
        values: dict[int, bytes | None] = {}
        for at, header in iterate_headers(bulk):
            batch = decode_batch(bulk[at : at + header.batch_length])
            values.update(zip(batch.offsets.tolist(), batch.values, strict=True))
        offsets = [offset for start, end in iter_ranges(grant.ranges) for offset in range(start, end)]
        assert offsets
        assert set(offsets) <= values.keys(), f"leased {offsets}, sent {sorted(values)}"
        earlier = {
            offset: attempts.count
            for attempts in grant.attempts
            for start, end in iter_ranges(attempts.ranges)
            for offset in range(start, end)
        }
        beside = [held for held in self.held.values() if not held.is_doubtful and held.until_us > since_us]
        assert not grant.is_alone or not beside, f"a suspect was given beside {beside}"
        held = self.held[grant.lease] = Held(
            grant.lease,
            grant.topic_id,
            grant.partition,
            {offset: message_of(values[offset]) for offset in offsets},
            earlier,
            since_us,
            since_us + grant.duration_us,
            grant.is_alone,
        )
        if grant.is_alone and len(offsets) == 1:
            self.hand_over(held, offsets)  # it counts already

    def _take_results(self, request: Request, lose: bool) -> None:
        assert request.call is not None
        assert request.call.reply is not None
        if request.call.reply.error is not None:
            self._told(request, ["failed"] * len(request.asks))
            return
        reply = request.call.message()
        assert isinstance(reply, SettleReply)
        assert len(reply.results) == len(request.asks)
        errors = [None if result is None else result.error() for result in reply.results]
        if not all(error is None or isinstance(error, LeaseLostError) for error in errors):
            request.call = None  # nobody knows what is durable: it is asked again over the next connection
            return
        hows: list[How] = ["ok" if error is None else "lost" for error in errors]
        for place in request.was_done:
            assert hows[place] == "ok", f"{request.asks[place]} was done, and its repeat is answered {reply.results}"
        if lose:
            request.was_done |= {
                place
                for place, item in enumerate(request.settle.items)
                if hows[place] == "ok" and item.what is not Settling.RENEW
            }
            request.call = None
            return
        self._told(request, hows)

    def _told(self, request: Request, hows: list[How]) -> None:
        self.requests.remove(request)
        for ask, how, item in zip(request.asks, hows, request.settle.items, strict=True):
            self.book.refused += how == "lost"
            self.book.note(Told(ask=ask, how=how))
            if how == "lost" and (held := self.held.pop(item.lease, None)) is not None:
                self.ghosts.append(held)
            if how == "ok" and item.what is Settling.RENEW and (held := self.held.get(item.lease)) is not None:
                held.until_us = request.asked_us + item.duration_us

    def expect_ended(self) -> None:
        """Put aside the leases whose time is over."""
        for held in [held for held in self.held.values() if held.until_us <= self.book.now_us()]:
            del self.held[held.lease]
            self.ghosts.append(held)


def in_order(reply: AcquireReply, grants: list[list[str]]) -> list[str]:
    """What the grants of a reply brought as it is to be handed out: there is no order, or it names all of each."""
    order = [(one.grant, one.count) for one in reply.order]
    counts = Counter[int]()
    for grant, count in order:
        counts[grant] += count
    sizes = [*map(len, grants)]
    assert not order or [counts[grant] for grant in range(len(grants))] == sizes, f"{order} of {sizes}"
    left = [*map(iter, grants)]
    return [
        message for grant, count in order or [*enumerate(sizes)] for message in itertools.islice(left[grant], count)
    ]


def packed(offsets: Sequence[int] | set[int]) -> bytes:
    """Return offsets as ranges on the wire."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return pack_ranges(ranges)
