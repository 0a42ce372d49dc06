"""Moves the records of one source to their target, so that each has exactly one copy there; README.md has the steps.

    idle --wake--> moving --nothing left----> idle
                      '----what it raises---> blocked --its time, or somebody says so--> moving

    intent of an earlier run, or whose copies may be there: uncertain --searched--> clean: no copy but those recorded

One flow at a time; whatever goes wrong ends it, and the next one begins by looking for what is uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.errors import TidelogError, UnknownTopicIdError
from ..deferred import Deferred, end
from ..delivery.moves import Intent
from ..delivery.offset_set import OffsetSet, lowest
from ..flow import Flow, awaited, start_flow
from ..group_commit import fenced_error
from ..partition import Partition
from ..services import Services
from ..timers import Timer, Timers
from .blockade import Blockade
from .copying import MAX_RECORDS, OWN_BYTES, CopyBatch
from .held_copies import HeldCopies
from .piece import Pieces
from .pins import Pins
from .search import Search, in_runs
from .source import Copied, Source
from .steps import durable, room

INTENDED = 10_000
"""Records that one intent names at most: some 160 KB of ranges where they are far apart."""


class Mover:
    """All moves of one source."""

    def __init__(self, services: Services, waits: Timers, source: Source, pins: Pins) -> None:
        """`waits` has deadlines that nobody waits for."""
        self._services = services
        self._source = source
        self._held = HeldCopies(pins)
        self._blockade = Blockade(services.time, waits, self._again)
        self._pieces = Pieces(services, source)
        self._clean: set[int] = set()
        """Intents that led to no copies but those that are recorded."""
        self._step: Deferred[None] | None = None
        """What the flow waits for."""
        self._soon: Timer | None = None
        """What begins one after a restart, on the loop: a broker that opens its logs does so in a thread."""
        self._is_moving = self._is_over = False
        self.unrecorded = OffsetSet()
        """Those whose copies are in the target, which is not on record yet."""

    def __repr__(self) -> str:
        state = "moving" if self._is_moving else "blocked" if self.problem else "idle"
        return f"<Mover {state} of {self._source!r}>"

    # -- its life ------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> TidelogError | None:
        """Why it is blocked, or None."""
        return self._blockade.problem

    @property
    def is_busy(self) -> bool:
        """Whether there is something to move, or what was moved is not on record for sure."""
        return bool(self._is_moving or self._soon or self._blockade.is_waiting or self._held)

    @property
    def in_hand(self) -> OffsetSet:
        """Those of which copies are being made, or are there and not recorded."""
        return self._pieces.in_hand

    def wake(self) -> None:
        """Move what there is; while it is blocked that waits for its time."""
        if not (self._is_moving or self._blockade.is_waiting or self._is_over) and self._source.problem() is None:
            self._is_moving = True
            self._pieces.aside = OffsetSet()
            start_flow(self._stoppable(self._all())).on_done(self._ended)

    def try_now(self) -> None:
        """Try again at once what is blocked: something changed."""
        self._blockade.try_now()

    def restart(self) -> None:
        """Go on with what the source says now: it was opened, opened anew, or takes no more."""
        self._stop()
        self._clean.clear()
        is_durable = self._source.problem() is None
        self._held.restart(self._source.intents(), is_durable=is_durable)
        if is_durable and self._source.to_move():
            self._soon = self._services.timers.add(self._services.time.monotonic_us(), self._again)

    def close(self) -> None:
        """Move nothing any more, and hold nothing."""
        self._is_over = True
        self._stop()
        self._held.close()

    def _stop(self) -> None:
        if self._step is not None:
            self._step.withdraw()  # so nobody goes on with the flow
            self._step = None
        if self._soon is not None:
            self._services.timers.cancel(self._soon)
            self._soon = None
        self._is_moving = False
        self.unrecorded = self._pieces.in_hand = OffsetSet()
        self._blockade.stop()

    # -- one flow after the other ----------------------------------------------------------------------------------

    def _stoppable(self, flow: Flow[None]) -> Flow[None]:
        """Go through a flow, and know what it waits for."""
        error: TidelogError | None = None
        while True:
            try:
                step = next(flow) if error is None else flow.throw(error)
            except StopIteration:
                return
            self._step, error = step, None
            try:
                yield step
            except TidelogError as failure:
                error = failure

    def _ended(self, done: Deferred[None]) -> None:
        self._is_moving, self._step = False, None
        self.unrecorded = self._pieces.in_hand = OffsetSet()
        if self._is_over:
            return
        if done.error is None:
            self._goes_on()
            self._blockade.stop()  # nobody is woken by what others append there
            if self._source.to_move():
                self.wake()  # they came in its last step
        elif self._blockade.block(done.error):
            self._source.blocked(done.error)

    def _again(self) -> None:
        self._soon = None
        self.wake()

    def _goes_on(self) -> None:
        if self._blockade.lift():
            self._source.unblocked()

    def _all(self) -> Flow[None]:
        for intent in [one for one in self._source.intents() if one.id not in self._clean]:
            yield from self._look_for(intent)
        while offsets := self._source.to_move() - self._pieces.aside:
            yield from self._move(lowest(offsets, INTENDED))
        if self._pieces.aside:
            raise self._pieces.why_aside()

    # -- what was begun before -------------------------------------------------------------------------------------

    def _look_for(self, intent: Intent) -> Flow[None]:
        """Record the copies of an intent that are there. The others are not, and go by another intent."""
        target = self._source.target_of(intent.target_log)
        if target is not None:
            log, is_durable = target.log, not target.is_fenced
            if is_durable:
                yield durable(self._services.commit, log)
            limit = self._services.batch_limits.max_payload_bytes + OWN_BYTES
            origin = self._source.partition.log.log_id
            search = Search(log, self._services.offload, origin, intent.offsets, self._source.is_copy, limit)
            copies = yield from search.run(intent.search_from)
            if copies and not is_durable:  # what of them is on the disk is known when it is opened anew
                self._blockade.watch(target)
                raise fenced_error()
            if copies:
                yield from self._source.before_done(OffsetSet(copies))
            # Meanwhile some may have been brought back, or given up for good: of those there is nothing to record.
            found = in_runs({offset: copy for offset, copy in copies.items() if offset in intent.offsets})
            if found:
                self._record(intent.id, intent.target_log, found)
            for error in search.unread:
                self._services.report("copies not looked for", topic_id=target.topic_id, why=error.message)
        self._clean.add(intent.id)
        self._held.let_go(intent.id)

    # -- what is moved now -----------------------------------------------------------------------------------------

    def _move(self, offsets: OffsetSet) -> Flow[None]:
        """Announce copies, and make them piece by piece."""
        target = yield from awaited(self._source.find_target())
        self._blockade.watch(target)
        if target.is_fenced:
            raise fenced_error()
        intent = self._source.intend(offsets, target.log.log_id, target.log.synced_offset)
        self._clean.add(intent)
        recorded: Deferred[None] = Deferred()
        self._source.when_synced(lambda error: end(recorded, error))
        yield recorded
        while left := self._left_of(intent):
            batches = yield from self._pieces.make(lowest(left, MAX_RECORDS), target)
            if batches:
                yield from self._append(intent, batches, target)
                self._goes_on()
            self._pieces.in_hand = OffsetSet()

    def _left_of(self, intent: int) -> OffsetSet:
        found = next((one.offsets for one in self._source.intents() if one.id == intent), OffsetSet())
        return found - self._pieces.aside

    def _append(self, intent: int, batches: Sequence[CopyBatch], target: Partition) -> Flow[None]:
        """Append copies, and record them once they are durable."""
        data = memoryview(bytearray().join(one.data for one in batches))
        yield room(self._services.commit, len(data))
        log, target_log = target.log, target.log.log_id
        bases = target.append_copies(data, [one.header for one in batches])
        self.unrecorded = self._pieces.in_hand
        self._clean.discard(intent)
        self._held.hold(intent, target_log, bases[0])
        yield durable(self._services.commit, log)
        yield from self._source.before_done(self._pieces.in_hand)
        if self._source.target_of(target_log) is None:  # in this very turn
            raise UnknownTopicIdError("expected the topic that copies go to, found that it was deleted meanwhile")
        copied = [Copied(one.offsets, base) for one, base in zip(batches, bases, strict=True)]
        self._record(intent, target_log, copied)
        self.unrecorded = OffsetSet()
        self._clean.add(intent)
        self._held.let_go(intent)

    def _record(self, intent: int, target_log: int, copied: Sequence[Copied]) -> None:
        """Record what is done, and hold the copies until that is durable."""
        self._source.done(intent, target_log, copied)
        first = min(one.first_copy for one in copied)
        self._source.when_synced(self._held.recorded(target_log, first))
