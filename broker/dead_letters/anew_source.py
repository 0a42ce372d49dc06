"""Dead letters of one partition on their way back to one partition of the topic they came from, as new messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...protocol.dead_letter_headers import ORIGIN_ID, REDRIVES, original_of, redrives_of
from ...protocol.durability import Durability
from ...protocol.errors import TidelogError, UnknownTopicIdError
from ..deferred import Deferred, failed, resolved
from ..delivery.acquiring import damaged
from ..delivery.events import Event, Kind
from ..delivery.moves import Intent
from ..delivery.offset_set import OffsetSet, packed_of, ranges_of, set_of
from ..delivery.pending_letters import PENDING_GENERATION, PENDING_GROUP
from ..delivery.queue_state import QueueState
from ..flow import Flow
from ..group_commit import Done
from ..moving.source import Copied, Header, Rewriting
from ..partition import Partition
from ..queues.delivery_log import DeliveryLog
from .letter_copier import REPLACED


class AnewSource:
    """A `moving.Source`; the state of which letters are pending says what was announced and what is done."""

    def __init__(
        self,
        partition: Partition,
        target_log: int,
        find: Callable[[], Partition],
        next_id: Callable[[], int],
        before_done: Callable[[OffsetSet], Flow[None]],
        on_done: Callable[[OffsetSet], None],
        on_blocked: Callable[[TidelogError], None],
    ) -> None:
        """`find` returns the partition that they go to, and raises what became of it; `before_done` gives up
        the messages of those that have their copy, before that is on record; `on_done` is told of them then, and of
        nothing where some are gone."""
        self.wanted = OffsetSet()
        """Those that are to be sent; replaced, never changed."""
        self._partition = partition
        self._target_log = target_log
        self._find = find
        self._next_id = next_id
        self._before_done = before_done
        self._on_done = on_done
        self._on_blocked = on_blocked

    def __repr__(self) -> str:
        return f"<AnewSource {len(self.wanted)} in {self._partition!r}>"

    @property
    def partition(self) -> Partition:
        """The partition of the dead-letter topic."""
        return self._partition

    @property
    def _log(self) -> DeliveryLog:
        log = self._partition.delivery.log
        assert log is not None, "nothing is sent before the log is open"
        return log

    @property
    def _state(self) -> QueueState:
        return self._log.fold.begin(PENDING_GROUP, PENDING_GENERATION, self._partition.start_offset)

    def problem(self) -> TidelogError | None:
        """Return why nothing can be recorded now, or None."""
        delivery = self._partition.delivery
        if delivery.log is None:
            return delivery.problem() or UnknownTopicIdError("expected a dead-letter topic, found that it was deleted")
        return delivery.problem()

    def intents(self) -> Sequence[Intent]:
        """Return what was announced and is not done, of what goes there."""
        if self._partition.delivery.log is None:
            return ()
        intents = self._state.moves.intents.values()
        return [intent for intent in intents if intent.target_log == self._target_log]

    def to_move(self) -> OffsetSet:
        """Return those that are still to be sent."""
        if self._partition.delivery.log is None:
            return OffsetSet()
        state = self._state
        fresh = set_of([(state.frontier, max(state.frontier, self._partition.visible_offset))])
        return self.wanted & (state.ready | state.moves.offsets | fresh)

    def find_target(self) -> Deferred[Partition]:
        """Return where they go."""
        try:
            return resolved(self._find())
        except TidelogError as error:
            return failed(error)

    def target_of(self, log_id: int) -> Partition | None:
        """Return the partition that an intent names, None where its topic was deleted."""
        try:
            return self._find()
        except UnknownTopicIdError:
            return None

    def intend(self, offsets: OffsetSet, target_log: int, search_from: int) -> int:
        """Record that copies are about to be made."""
        intent = self._next_id()
        self._append(Kind.MOVING, offsets, intent, target_log, search_from)
        return intent

    def before_done(self, copied: OffsetSet) -> Flow[None]:
        """Let their messages count as dead-lettered no more."""
        return self._before_done(copied)

    def done(self, intent: int, target_log: int, copied: Sequence[Copied]) -> None:
        """Record that these copies are durable."""
        for one in copied:
            self._append(Kind.MOVED, one.offsets, intent, target_log, one.first_copy)
        done = OffsetSet.union(*(one.offsets for one in copied))
        self.wanted = self.wanted - done
        self._on_done(done)  # once: whoever waits for some of each batch has its answer when all are done

    def _append(self, kind: Kind, offsets: OffsetSet, intent: int, target_log: int, number: int) -> None:
        _ = self._state  # it has begun before anything is said of it
        packed = packed_of(offsets)
        event = Event(kind, PENDING_GROUP, PENDING_GENERATION, packed, lease=intent, member=target_log, number=number)
        self._log.append([event])

    def when_synced(self, done: Done) -> None:
        """Call `done` once all that was recorded is synced."""
        self._log.wait(Durability.SYNCED, done)

    def rewriting(self, offsets: OffsetSet) -> Rewriting:
        """Return what the new messages say."""
        return sent_anew

    def is_copy(self, headers: Sequence[Header]) -> bool:
        """Whether a record of the target is a copy of a dead letter: its origin says so."""
        return True

    def pass_over(self) -> bool:
        """Settle what retention removed, and what is damaged."""
        gone = set_of((found.start, found.end) for found in self._partition.log.damaged) & self.to_move()
        if gone:
            self._log.append([damaged(PENDING_GROUP, PENDING_GENERATION, ranges_of(gone))])
        left = self.to_move()
        is_less = len(left) < len(self.wanted)
        self.wanted = left
        if is_less:
            self._on_done(OffsetSet())
        return is_less

    def blocked(self, error: TidelogError) -> None:
        """Tell whoever waits."""
        self._on_blocked(error)

    def unblocked(self) -> None:
        """Nobody waits for that: those who did were told what blocked it."""


def sent_anew(offset: int, headers: Sequence[Header]) -> Sequence[Header]:
    """Return the headers of a message that is a dead letter sent anew: its producer's own, how often it was redriven,
    and the first id that its producer was given."""
    own = [pair for pair in headers if pair[0] not in REPLACED]
    own.append((REDRIVES, b"%d" % (redrives_of(headers) + 1)))
    first_id = next((pair for pair in headers if pair[0] == ORIGIN_ID), None)
    if first_id is not None:
        own.append(first_id)
    elif (original := original_of(headers)) is not None:
        own.append((ORIGIN_ID, str(original).encode()))
    return own
