"""What becomes of the messages that one group gives up on in one partition: kept in a dead-letter topic, or dropped.

given up --keeps--> waits for its copy --moved--> dead-lettered
         '--else--> dropped
"""

from __future__ import annotations

from ...protocol.errors import TidelogError
from ...protocol.topic_name import short_name
from ..delivery.offset_set import OffsetSet
from ..moving.mover import Mover
from ..queues.ledger import Ledger
from ..queues.surroundings import Surroundings
from .letter_source import LetterSource


class DeadLettering:
    """The dead letters of one group in one partition."""

    def __init__(self, ledger: Ledger, around: Surroundings) -> None:
        self._ledger = ledger
        self._around = around
        self._mover: Mover | None = None
        ledger.on_lost = self._lost

    def __repr__(self) -> str:
        return f"<DeadLettering {self._mover!r}>"

    @property
    def keeps(self) -> bool:
        """Whether what is given up now is kept."""
        settings, topic_id = self._ledger.group.settings, self._ledger.partition.topic_id
        return settings.dead_letter and not self._around.letters.is_one(topic_id)

    @property
    def is_busy(self) -> bool:
        """Whether something waits for its copy, or for what is on record of it to be durable."""
        state = self._ledger.state
        return bool(state is not None and state.moves) or (self._mover is not None and self._mover.is_busy)

    @property
    def problem(self) -> TidelogError | None:
        """Why copies cannot be made now; it is tried again."""
        return None if self._mover is None else self._mover.problem

    def wake(self) -> None:
        """Have copies made of what was given up."""
        state = self._ledger.state
        if state is not None and state.moves:
            self._make_mover().wake()

    def try_now(self) -> None:
        """Try again what is blocked: something changed."""
        if self._mover is not None:
            self._mover.try_now()

    def restart(self) -> None:
        """Go on with what the delivery log says now."""
        state = self._ledger.state
        if self._mover is not None or (state is not None and state.moves):
            self._make_mover().restart()

    def close(self) -> None:
        """Have nothing copied any more."""
        if self._mover is not None:
            self._mover.close()

    def _make_mover(self) -> Mover:
        if self._mover is None:
            around = self._around
            source = LetterSource(self._ledger, around.letters, around.next_lease, around.services.report)
            self._mover = Mover(around.services, around.waits, source, around.pins)
        return self._mover

    def _lost(self, offsets: OffsetSet, why: str) -> None:
        """Tell of messages that are gone before their copies were made: nothing is left of them."""
        lost = offsets if self._mover is None else offsets - self._mover.in_hand
        if not lost:
            return
        self._ledger.counters.dead_letters_lost += len(lost)
        partition = self._ledger.partition
        self._around.services.report(
            "dead letters lost",
            group=short_name(self._ledger.group.name),
            topic_id=partition.topic_id,
            partition=partition.index,
            messages=len(lost),
            first=lost.min(),
            why=why,
        )
