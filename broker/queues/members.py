"""The members of one group: who they are, what they hold, and when they are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .group_partition import GroupPartition
from .member import Member
from .surroundings import Surroundings

MIN_FORGET_US = 60_000_000
"""How long a member that holds nothing is remembered at least."""


class Members:
    """All members of a group, by the numbers they drew."""

    def __init__(self, around: Surroundings, visibility_timeout_us: Callable[[], int]) -> None:
        self._around = around
        self._visibility_timeout_us = visibility_timeout_us
        self._by_id: dict[int, Member] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def count(self) -> int:
        """Return how many there are, those not counted that left what they had leased."""
        return sum(not one.has_left for one in self)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, number: int) -> Member:
        """Return a member, which may be new."""
        member = self._by_id.get(number)
        if member is None:
            member = self._by_id[number] = Member(number, heard_us=self._around.services.time.monotonic_us())
        return member

    def hear(self, number: int, client: str = "") -> Member:
        """Note that a member asks for something."""
        member = self.get(number)
        member.heard_us = self._around.services.time.monotonic_us()
        member.client = client or member.client
        member.has_left = False
        return member

    def hear_settling(self, number: int, client: str) -> None:
        """Note that a member settles something; who is not known has nothing to settle, and is not made one."""
        if number in self._by_id:
            self.hear(number, client)

    def leave(self, number: int) -> Member | None:
        """Note that a member is gone; return it if it was there. It is kept while something is leased to it."""
        member = self._by_id.get(number)
        if member is not None:
            member.has_left = True
            self._forget_left(member)
        return member

    def _forget_left(self, member: Member) -> None:
        if member.has_left and member.is_idle:
            del self._by_id[member.id]

    def forget_silent(self) -> None:
        """Forget those that hold nothing, wait for nothing and were not heard of for long."""
        before_us = self._around.services.time.monotonic_us() - max(MIN_FORGET_US, self._visibility_timeout_us())
        for member in [*self]:
            if member.is_idle and not member.waiting and member.heard_us <= before_us:
                del self._by_id[member.id]

    def add_leases(self, part: GroupPartition) -> None:
        """Note who holds what in a partition of which nothing is noted yet."""
        for lease in () if part.state is None else part.state.leases.values():
            self.get(lease.member).leases[lease.id] = part

    def take_leases(self, part: GroupPartition) -> None:
        """Note who holds what in a partition, as its delivery log says."""
        held: dict[int, list[int]] = {}
        for lease in () if part.state is None else part.state.leases.values():
            held.setdefault(lease.member, []).append(lease.id)
        for number in held:
            self.get(number)
        for member in [*self]:
            for lease in [lease for lease, where in member.leases.items() if where is part]:
                del member.leases[lease]
            member.leases |= dict.fromkeys(held.get(member.id, ()), part)
            self._forget_left(member)

    def drop_leases(self, part: GroupPartition) -> None:
        """Let nobody hold anything in a partition."""
        for member in [*self]:
            for lease in [lease for lease, where in member.leases.items() if where is part]:
                del member.leases[lease]
            self._forget_left(member)

    def lease_over(self, number: int, lease: int) -> None:
        """Note that a lease of a member has nothing left."""
        member = self._by_id.get(number)
        if member is not None:
            member.leases.pop(lease, None)
            self._forget_left(member)
