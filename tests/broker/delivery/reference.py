"""What becomes of messages in one queue group, said as plainly as it can be: one object a message, no ranges, no sets.

Written from the rules of delivery, not from the code that it is compared with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

SECOND = 1_000_000
MAX_ATTEMPTS = 3


def limit_of(offset: int) -> int:
    """Every fifth message says itself that it is tried once only."""
    return 1 if offset % 5 == 0 else MAX_ATTEMPTS


def wait_of(attempts: int) -> int:
    """The group's backoff: one second, two, four, at most three; without jitter."""
    return [1 * SECOND, 2 * SECOND, 3 * SECOND][min(attempts, 3) - 1]


@dataclass
class Message:
    state: str = "available"  # leased, waiting, acknowledged, rejected, dead-lettering, dead-lettered, damaged
    attempts: int = 0
    together: int = 0  # how many suspects may be leased at once; 0: it is none
    error: str | None = None
    lease: int = 0
    is_handed: bool = False
    delay: int = 0
    not_before: int = 0
    due: int = 0
    release: int = 0  # which release it waits for, or waited for
    is_given_up: bool = False
    intent: int = 0  # which announced its copy
    redrives: int = 0


@dataclass
class Lease:
    member: int
    own: int
    term: int
    ends: int
    ends_wall: int
    is_alone: bool


@dataclass
class Reference:
    begin: int
    end: int
    wall: int = 0
    mono: int = 0
    keeps: bool = False
    messages: dict[int, Message] = field(default_factory=dict[int, Message])
    leases: dict[int, Lease] = field(default_factory=dict[int, Lease])
    outcomes: set[tuple[int, int, str, int]] = field(default_factory=set[tuple[int, int, str, int]])
    outlived: set[int] = field(default_factory=set[int])  # leases of which no message was left that is not lost
    last: dict[tuple[int, int, str], int] = field(default_factory=dict[tuple[int, int, str], int])
    releases: int = 0

    def at(self, offset: int) -> Message:
        return self.messages.setdefault(offset, Message())

    def every(self) -> Iterable[tuple[int, Message]]:
        return [(offset, self.at(offset)) for offset in range(self.begin, self.end)]

    def held(self, lease: int) -> list[int]:
        return [at for at, message in self.every() if message.state == "leased" and message.lease == lease]

    def available(self, count: int) -> list[int]:
        return [at for at, one in self.every() if one.state == "available" and not one.together][:count]

    def suspects(self, count: int) -> list[int]:
        found: list[int] = []
        for at, one in self.every():
            if one.state == "available" and one.together:
                together = self.at(found[0]).together if found else one.together
                if one.together < together or len(found) == min(together, count):
                    break
                found.append(at)
        return found

    def acquire(self, lease: int, member: int, offsets: list[int], term: int, *, counts: bool) -> None:
        is_alone = bool(self.at(offsets[0]).together)
        self.leases[lease] = Lease(member, term, term, self.mono + term, self.wall + term, is_alone)
        for at in offsets:
            one = self.at(at)
            one.state, one.lease, one.release = "leased", lease, 0
            one.is_handed = counts or (is_alone and len(offsets) == 1)

    def hand_over(self, member: int, lease: int, offsets: list[int]) -> None:
        if lease in self.leases and self.leases[lease].member == member:
            for at in set(offsets) & {*self.held(lease)}:
                self.at(at).is_handed = True

    def settle(
        self, member: int, lease: int, how: str, asked: list[int], value: int | None, error: str | None, number: int
    ) -> bool:
        """Return whether it is done; else the lease is lost, and nothing was changed.

        `member` 0: by token. `value`: the delay of a release, the term of a renewal. What is left of a lease that has
        ended is known to the request that ended it, by its number.
        """
        mine = lease in self.leases and member in (0, self.leases[lease].member)
        held = self.held(lease) if mine else []
        done = {at for *deed, at in self.outcomes if deed == [member, lease, how]}
        gone = {at for at in asked if at < self.begin or self.at(at).state == "damaged"}
        if not asked and not held:
            return lease in self.outlived if how == "renew" else self.last.get((member, lease, how)) == number
        if not {*asked} <= {*held} | done | gone:
            return False
        if how == "renew":
            self._renew(lease, value)
            return True
        offsets = [at for at in held if at in asked] if asked else held
        self.outcomes |= {(member, lease, how, at) for at in offsets}
        if offsets:
            self.last[member, lease, how] = number if member else -1
        for at in offsets:
            self._settle(self.at(at), at, how, value, error)
        self._drop_empty(lease)
        return True

    def _settle(self, one: Message, at: int, how: str, delay: int | None, error: str | None) -> None:
        if how == "accept":
            one.state = "acknowledged"
        elif how == "reject":
            one.attempts, one.error = one.attempts + 1, error
            self._give_up(one)
        elif how == "release":
            one.together = 0
            self._failed(one, at, delay, error)
        elif how == "suspect" and self.leases[one.lease].is_alone and one.together == 1:
            self._failed(one, at, None, None)
        else:
            one.state = "available"
            one.together = 1 if how == "suspect" else one.together

    def _failed(self, one: Message, at: int, delay: int | None, error: str | None) -> None:
        one.attempts, one.error = one.attempts + 1, error
        if one.attempts >= limit_of(at):
            self._give_up(one)
            return
        self.releases += 1
        one.delay = wait_of(one.attempts) if delay is None else delay
        one.state, one.release = "waiting" if one.delay else "available", self.releases
        one.not_before, one.due = self.wall + one.delay, self.mono + one.delay

    def _give_up(self, one: Message) -> None:
        one.state, one.together, one.is_given_up = "dead-lettering" if self.keeps else "rejected", 0, True

    def intend(self, intent: int, offsets: list[int]) -> None:
        """Announce copies of what is given up, announced before or not, of what is available, or waits for its time."""
        for one in map(self.at, offsets):
            if one.state in ("available", "waiting", "dead-lettering"):
                one.state, one.intent, one.release = "dead-lettering", intent, 0

    def copied(self, intent: int, offsets: list[int]) -> None:
        for one in map(self.at, offsets):
            if one.state == "dead-lettering" and one.intent == intent:
                one.state, one.intent = "dead-lettered" if one.is_given_up else "acknowledged", 0

    def redrive(self, offsets: list[int]) -> None:
        for at in offsets:
            one = self.at(at)
            if one.state == "dead-lettered" or (one.state == "dead-lettering" and one.is_given_up):
                self.messages[at] = Message(redrives=self.at(at).redrives + 1)

    def resolve(self, offsets: list[int]) -> None:
        """Settle what nobody holds; what was given up stays that."""
        for one in map(self.at, offsets):
            if one.state not in ("leased", "damaged"):
                one.state, one.intent, one.release = "rejected" if one.is_given_up else "acknowledged", 0, 0

    def _renew(self, lease: int, term: int | None) -> None:
        held = self.leases.get(lease)
        if held and self.mono + (term or held.own) > held.ends:
            held.term = term or held.own
            held.ends, held.ends_wall = self.mono + held.term, self.wall + held.term

    def expire(self, lease: int) -> None:
        """The lease ended by itself, or its member went down."""
        held = self.held(lease)
        together = max(1, len(held) // 10)
        several = sum(self.at(at).is_handed for at in held) > 1
        for at in held:
            one = self.at(at)
            if one.is_handed and several and one.attempts + 1 >= limit_of(at):
                one.state, one.together = "available", 1
            elif one.is_handed:
                one.together = min(one.together or (together if several else 0), together)
                self._failed(one, at, None, None)
            else:
                one.state, one.together = "available", min(together, one.together or together)
        self._drop_empty(lease)

    def give_back(self, lease: int) -> None:
        for at in self.held(lease):
            self.at(at).state = "available"
        self._drop_empty(lease)

    def _drop_empty(self, lease: int) -> None:
        if lease in self.leases and not self.held(lease):
            del self.leases[lease]

    def wake(self) -> None:
        for _at, one in self.every():
            if one.state == "waiting" and one.due <= self.mono:
                one.state = "available"

    def damage(self, start: int, end: int) -> None:
        for at in range(max(start, self.begin), end):
            self.at(at).state = "damaged"
        self._forget_leases()

    def clip(self, begin: int, end: int) -> None:
        """Retention removed what is below `begin`; what is from `end` on was lost."""
        self.begin, self.end = min(max(self.begin, begin), end), end
        self.messages = {at: one for at, one in self.messages.items() if self.begin <= at < end}
        self._forget_leases()

    def _forget_leases(self) -> None:
        for lease in [*self.leases]:
            self._drop_empty(lease)
            if lease not in self.leases:
                self.outlived.add(lease)

    def restart(self, visibility: int, over: set[tuple[int, int]]) -> None:
        """Go on after a start; `over`: messages and releases of which a snapshot has it that they had waited enough."""
        for held in self.leases.values():
            held.ends = self.mono + max(visibility, min(held.term, held.ends_wall - self.wall))
        for at, one in self.every():
            if one.release and one.state in ("waiting", "available") and (at, one.release) not in over:
                one.due = self.mono + max(0, min(one.delay, one.not_before - self.wall))
                one.state = "waiting" if one.delay else "available"
