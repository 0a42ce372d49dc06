"""The members that get nothing new until they hold nothing, so that suspects find somebody to take them.

One is drained first. What it holds it may hold for hours, so another one joins it each time that `MORE_US` went by:
suspects wait for the first of them that is through, and not for the slowest.
"""

from __future__ import annotations

from collections.abc import Callable

from .member import Member

MORE_US = 1_000_000
"""How long it takes until one more member is drained: some handle their messages in less, and it costs them a pause."""


class Draining:
    """Those of one group."""

    def __init__(self, monotonic_us: Callable[[], int]) -> None:
        self._monotonic_us = monotonic_us
        self._members: dict[Member, None] = {}
        self._since_us = 0
        """When one was added last."""

    def __contains__(self, member: Member) -> bool:
        return member in self._members

    def __repr__(self) -> str:
        return f"<Draining {[*self._members]}>"

    def add(self, member: Member) -> None:
        """Drain a member that holds something, if it is time for one more. Those that hold nothing and do not ask are
        waited for no longer."""
        self._members = {one: None for one in self._members if not one.is_idle}
        now_us = self._monotonic_us()
        if member not in self._members and (not self._members or now_us - self._since_us >= MORE_US):
            self._members[member] = None
            self._since_us = now_us

    def end(self, member: Member) -> None:
        """Give a member what there is again."""
        self._members.pop(member, None)

    def clear(self) -> None:
        """Drain nobody: there are no suspects."""
        self._members.clear()
