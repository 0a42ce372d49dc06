"""What time does to one group in one partition: leases end, and what waits for its time becomes available.

There is one timer, for what is due next; nothing polls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...protocol.errors import TidelogError
from ..dead_letters.dead_lettering import DeadLettering
from ..delivery.events import Event, Kind
from ..delivery.expiring import expired, leases_due
from ..delivery.releasing import Retrying
from .alarm import Alarm
from .ledger import Ledger
from .partition_lanes import PartitionLanes
from .surroundings import Surroundings

RETRY_US = 1_000_000
"""How soon what could not be recorded is tried again, where nobody asks."""


class Endings:
    """The deadlines of one group in one partition."""

    def __init__(
        self,
        ledger: Ledger,
        letters: DeadLettering,
        lanes: PartitionLanes,
        around: Surroundings,
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when something may be available."""
        self._ledger = ledger
        self._letters = letters
        self._lanes = lanes
        self._around = around
        self._changed = changed
        self._alarm = Alarm(around.services.timers, self._due)

    def __repr__(self) -> str:
        return f"<Endings of {self._ledger!r} {self._alarm!r}>"

    def begin(self) -> None:
        """Have be due in time what the ledger says now."""
        state = self._ledger.state
        if state is not None:
            self._alarm.at(state.next_due_us())

    def at(self, monotonic_us: int) -> None:
        """Note that something is due at a time."""
        self._alarm.at(monotonic_us)

    def note(self, events: Iterable[Event]) -> None:
        """Note what these events let wait; renewed leases are found later."""
        waits = [event.duration_us for event in events if event.kind is Kind.RELEASED and event.duration_us > 0]
        if waits:
            self._alarm.at(self._around.services.time.monotonic_us() + min(waits))

    def cancel(self) -> None:
        """Let nothing be due any more."""
        self._alarm.cancel()

    def _due(self) -> None:
        """End the leases that are over, and let be available what has waited long enough. After a start all leases may
        end at one moment: what is more than a piece is left to the next turn of the loop."""
        ledger, now = self._ledger, self._around.now()
        state, group = ledger.state, ledger.group
        if state is None:
            return
        retrying = Retrying(ledger.policies, self._around.chance, now, self._letters.keeps)
        # A lease ends as a whole: who is to blame is decided by how many of it were handed over.
        ended = (
            expired(state, group.id, ledger.generation, lease, retrying)
            for lease in leases_due(state, now.monotonic_us)
        )
        piece = next(ledger.log.pieces_of(ended), None)
        if piece is not None:
            try:
                ledger.append(piece)
            except TidelogError as error:
                # Fenced, or no room: they stay leased in the record, and end when that can be said.
                self._around.services.report("leases not ended", group=group.name, why=error.message)
                self._alarm.at(now.monotonic_us + RETRY_US)
                return
        self._lanes.wake(state, now.monotonic_us)
        self._letters.wake()
        self._alarm.at(state.next_due_us())
        self._changed()
