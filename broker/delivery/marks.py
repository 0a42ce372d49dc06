"""What is known of an unsettled message beyond where it is: attempts, suspicion, and how the last attempt ended."""

from __future__ import annotations

from typing import NamedTuple

from ...protocol.messages import SettleError


class Mark(NamedTuple):
    """Of messages that are not as new; all zero is the default, and is not kept."""

    attempts: int = 0
    """Hand-overs that count."""
    suspect: int = 0
    """How many of such may be leased together, 0: no suspect."""
    last_us: int = 0
    """When the last hand-over was recorded, wall clock."""
    error: SettleError | None = None
    """Why the last attempt failed."""

    def handed_over(self, now_us: int) -> Mark:
        """Return the mark after one more hand-over."""
        return self._replace(attempts=self.attempts + 1, last_us=now_us)

    def taken_back(self) -> Mark:
        """Return the mark after a hand-over that does not count after all."""
        return self._replace(attempts=max(0, self.attempts - 1))


NEW = Mark()


def kept(mark: Mark) -> Mark | None:
    """Return a mark as a RangeMap keeps it."""
    return None if mark == NEW else mark
