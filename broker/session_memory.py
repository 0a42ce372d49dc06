"""What all connections together may hold in memory.

A connection that holds no more than its first small buffer is never stopped here. Beyond that, whoever wants to
receive more while the total is used up first makes idle connections give their buffers back, then waits, first come
first served; one of them at a time may overdraw, so that a broker whose budget is spent on half-received frames
still finishes one after the other:

    used < total            everybody receives
    used >= total           one overdraws until its frame is through, the others wait
    all memory together     at most total + what one connection may hold
"""

from __future__ import annotations

from typing import Protocol

import trio


class Holder(Protocol):
    """A connection as the budget sees it."""

    def give_back(self) -> None:
        """Shrink an idle buffer, and say so by `change`."""
        ...


class MemoryBudget:
    """Bytes held by the connections of one broker."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0
        self.waits = 0
        self._overdrawer: Holder | None = None
        self._waiting = trio.lowlevel.ParkingLot()
        self._idle: dict[Holder, int] = {}
        self._sweeps = 0

    def __repr__(self) -> str:
        return f"<MemoryBudget {self.used_bytes} of {self.total_bytes}, {len(self._waiting)} wait>"

    @property
    def is_spent(self) -> bool:
        """Whether whoever wants more must ask first."""
        return self.used_bytes >= self.total_bytes

    def change(self, holder: Holder, by_bytes: int) -> None:
        """Count what a connection holds more, or less; one that holds less gives up its right to overdraw."""
        self.used_bytes += by_bytes
        assert self.used_bytes >= 0, f"more memory given back than taken: {self.used_bytes}"
        if by_bytes < 0:
            self._end_overdraft(holder)
            if not self.is_spent:
                self._waiting.unpark()

    def leave(self, holder: Holder) -> None:
        """Forget a connection that closed."""
        self._idle.pop(holder, None)
        self._end_overdraft(holder)

    def _end_overdraft(self, holder: Holder) -> None:
        if self._overdrawer is holder:
            self._overdrawer = None
            self._waiting.unpark()

    async def wait(self, holder: Holder) -> None:
        """Wait until there is room, or until it is this connection's turn to overdraw."""
        self._reclaim(self._sweeps)
        while self.is_spent and self._overdrawer is not holder:
            if self._overdrawer is None:
                self._overdrawer = holder
                return
            self.waits += 1
            await self._waiting.park()
        self._waiting.unpark()  # whoever finds room passes the word on

    # -- idle buffers --------------------------------------------------------------------------------------------

    def idle(self, holder: Holder) -> None:
        """Note that a connection waits for its peer with a buffer that is large and empty."""
        self._idle[holder] = self._sweeps
        if self._overdrawer is holder or self._waiting:
            holder.give_back()

    def busy(self, holder: Holder) -> None:
        """Note that it received something."""
        self._idle.pop(holder, None)

    def sweep(self) -> None:
        """Take back the buffers that have been idle since the sweep before the last; called every so often."""
        self._sweeps += 1
        self._reclaim(self._sweeps - 2)

    def _reclaim(self, last_sweep: int) -> None:
        idle = [holder for holder, sweep in self._idle.items() if sweep <= last_sweep]
        for holder in idle:
            del self._idle[holder]
            holder.give_back()
