"""What settle requests did, so that a request whose answer was lost can be repeated.

Of each member what its last 64 requests did (a client has at most 32 in flight), until ten minutes after its last one;
of settles by token what the last 10,000 did. Kept by lease and outcome, so that a repeat is known however its ranges
were merged.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from ...protocol.messages.queue import BY_TOKEN
from .offset_set import OffsetSet

REMEMBERED_REQUESTS = 64
REMEMBERED_US = 600_000_000
REMEMBERED_TOKENS = 10_000


class Deed(NamedTuple):
    """What (`protocol.messages.Settling`) was done to parts of which lease."""

    lease: int
    what: int


class Done(NamedTuple):
    """To which messages, and with which request of the member (counted from its first) the last of them; `number` is
    the one that the member gave it, 0 for what was done by token."""

    offsets: OffsetSet
    request: int
    number: int = 0


class Doer:
    """What one member did, or all who settle by token."""

    __slots__ = ("deeds", "last_us", "number", "requests")

    def __init__(self) -> None:
        self.deeds: OrderedDict[Deed, Done] = OrderedDict()
        """The latest last."""
        self.requests = 0
        self.number = -1
        """Of the last request."""
        self.last_us = 0
        """Wall time of it."""

    def note(self, number: int, deed: Deed, offsets: OffsetSet, wall_us: int, kept: int) -> None:
        """Note what a request did, and forget what only requests before the last `kept` did."""
        if number != self.number or not number:
            self.requests += 1
            self.number = number
        self.last_us = wall_us
        known = self.deeds.pop(deed, None)
        self.deeds[deed] = Done(offsets if known is None else known.offsets | offsets, self.requests, number)
        while next(iter(self.deeds.values())).request <= self.requests - kept:
            self.deeds.popitem(last=False)


class Remembered:
    """What settles of one group did in one partition."""

    __slots__ = ("_doers", "_tokens")

    def __init__(self) -> None:
        self._doers: OrderedDict[int, Doer] = OrderedDict()
        """By member, who settled last comes last."""
        self._tokens = Doer()

    def __len__(self) -> int:
        return len(self._doers)

    def note(self, member: int, number: int, deed: Deed, offsets: OffsetSet, wall_us: int) -> None:
        """Remember what was done, and forget members that settled nothing for long."""
        if member == BY_TOKEN:
            self._tokens.note(0, deed, offsets, wall_us, REMEMBERED_TOKENS)
            return
        doer = self._doers.get(member)
        if doer is None:
            doer = self._doers[member] = Doer()
        doer.note(number, deed, offsets, wall_us, REMEMBERED_REQUESTS)
        self._doers.move_to_end(member)
        self.forget_old(wall_us)

    def done(self, member: int, lease: int, what: int) -> OffsetSet | None:
        """Return what a member is known to have done to a lease in this way, or None."""
        doer = self._tokens if member == BY_TOKEN else self._doers.get(member)
        done = None if doer is None else doer.deeds.get(Deed(lease, what))
        return None if done is None else done.offsets

    def did_last(self, member: int, number: int, lease: int, what: int) -> bool:
        """Return whether the member's request of this number was the last to do something to a lease in this way."""
        doer = self._doers.get(member)
        done = None if doer is None else doer.deeds.get(Deed(lease, what))
        return done is not None and done.number == number

    def forget_old(self, wall_us: int) -> None:
        """Forget members that settled nothing for long; what was done by token has its own bound."""
        while self._doers:
            member, doer = next(iter(self._doers.items()))
            if wall_us - doer.last_us <= REMEMBERED_US:
                return
            del self._doers[member]

    def items(self) -> list[tuple[int, Doer]]:
        """Return all, by member."""
        return [(BY_TOKEN, self._tokens), *self._doers.items()]

    def restore(self, member: int, doer: Doer) -> None:
        """Put one back as a snapshot has it."""
        if member == BY_TOKEN:
            self._tokens = doer
        else:
            self._doers[member] = doer
