"""Gives dead letters up for good.

    asked -> MOVING in the delivery log of the dead-letter topic, synced: announced, and pending no more
          -> RESOLVED in that of the message's group, synced: it counts as dead-lettered no more
          -> RESOLVED in that of the dead-letter topic, synced -> answered

What was announced is finished by whoever opens that delivery log next, at a start or anew: nobody else could tell then
which messages count as dead-lettered without a dead letter.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ...protocol.errors import TidelogError
from ..delivery.offset_set import OffsetSet
from ..flow import Flow, start_flow
from ..partition import Partition
from ..services import Services
from .letters import Letters, read_letters
from .origins import Origins
from .pending import FOR_GOOD, PendingLetters, announced
from .redrive import give_up_for_good


class Purging:
    """All dead letters of one broker that are given up for good."""

    def __init__(self, services: Services, origins: Origins, pending: Callable[[int, int], PendingLetters]) -> None:
        """`pending` returns those of a topic's partition, and raises what became of it."""
        self._services = services
        self._origins = origins
        self._pending = pending

    def __repr__(self) -> str:
        return f"<Purging by {self._origins!r}>"

    def purge(self, pending: PendingLetters, letters: Letters, gone: OffsetSet, intent: int) -> Flow[None]:
        """Give pending ones up, `letters` among them. Fails with what keeps it from being recorded."""
        yield pending.intend(gone, intent, FOR_GOOD)
        yield from self._finish(pending, letters, gone)

    def opened(self, partition: Partition) -> None:
        """Finish what a delivery log says was announced that was opened; soon, on the loop: a broker that opens its
        logs does so in a thread."""
        if announced(partition, FOR_GOOD):
            finish = partial(self._finish_announced, partition.topic_id, partition.index)
            self._services.timers.add(self._services.time.monotonic_us(), lambda: start_flow(finish()) and None)

    def _finish_announced(self, topic_id: int, index: int) -> Flow[None]:
        with suppress(TidelogError):  # whoever opens it next tries again
            pending = self._pending(topic_id, index)
            problem, gone = pending.partition.delivery.problem(), announced(pending.partition, FOR_GOOD)
            if problem is not None:  # whether that is durable is not known
                raise problem
            letters = yield from read_letters(pending.partition, self._services.offload, gone)
            yield from self._finish(pending, letters, gone)

    def _finish(self, pending: PendingLetters, letters: Letters, gone: OffsetSet) -> Flow[None]:
        places = self._origins.dead_lettered(letters.found, pending.partition.log.log_id)
        yield from give_up_for_good(places.values())
        if gone:
            yield pending.resolve(gone)
