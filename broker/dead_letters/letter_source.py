"""The messages that one group gave up on in one partition, on their way to its dead-letter topic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...protocol.dead_letter_headers import GROUP
from ...protocol.durability import Durability
from ...protocol.errors import TidelogError
from ...protocol.topic_name import short_name
from ..deferred import Deferred
from ..delivery.events import Event, Kind
from ..delivery.moves import Intent
from ..delivery.offset_set import OffsetSet, packed_of
from ..flow import Flow
from ..group_commit import Done
from ..moving.source import Copied, Header, Rewriting
from ..partition import Partition
from ..queues.ledger import Ledger
from ..report import Report
from .letter_copier import LetterCopier
from .letter_topics import LetterTopics


class LetterSource:
    """A `moving.Source`; the group's state in its delivery log says what is to be moved and what was."""

    def __init__(self, ledger: Ledger, topics: LetterTopics, next_id: Callable[[], int], report: Report) -> None:
        """`next_id` gives out ids as leases have them, each once."""
        self._ledger = ledger
        self._topics = topics
        self._next_id = next_id
        self._report = report

    def __repr__(self) -> str:
        return f"<LetterSource {short_name(self._ledger.group.name)!r} in {self.partition!r}>"

    @property
    def partition(self) -> Partition:
        """Where the messages are."""
        return self._ledger.partition

    def problem(self) -> TidelogError | None:
        """Return why nothing can be recorded now, or None."""
        return self._ledger.problem()

    def intents(self) -> Sequence[Intent]:
        """Return what was announced and is not done."""
        state = self._ledger.state
        return () if state is None else [*state.moves.intents.values()]

    def to_move(self) -> OffsetSet:
        """Return all that was given up and has no copy yet."""
        state = self._ledger.state
        return OffsetSet() if state is None else state.moves.offsets

    def find_target(self) -> Deferred[Partition]:
        """Return where copies go now."""
        return self._topics.partition_for(self._ledger.group, self.partition.topic_id, self.partition.index)

    def target_of(self, log_id: int) -> Partition | None:
        """Return the partition that an intent names, None where its topic was deleted."""
        return self._topics.partition_of(log_id)

    def intend(self, offsets: OffsetSet, target_log: int, search_from: int) -> int:
        """Record that copies are about to be made."""
        intent = self._next_id()
        self._ledger.append([self._event(Kind.MOVING, offsets, intent, target_log, search_from)])
        return intent

    def before_done(self, copied: OffsetSet) -> Flow[None]:
        """Nothing is to be done of them elsewhere."""
        yield from ()

    def done(self, intent: int, target_log: int, copied: Sequence[Copied]) -> None:
        """Record that these copies are durable."""
        self._ledger.append(
            [self._event(Kind.MOVED, one.offsets, intent, target_log, one.first_copy) for one in copied]
        )

    def _event(self, kind: Kind, offsets: OffsetSet, intent: int, target_log: int, number: int) -> Event:
        ledger = self._ledger
        return Event(
            kind,
            ledger.group.id,
            ledger.generation,
            packed_of(offsets),
            lease=intent,
            member=target_log,
            number=number,
        )

    def when_synced(self, done: Done) -> None:
        """Call `done` once all that was recorded is synced."""
        self._ledger.log.wait(Durability.SYNCED, done)

    def rewriting(self, offsets: OffsetSet) -> Rewriting:
        """Return what the copies of these say."""
        state, partition = self._ledger.state, self.partition
        marks = [] if state is None else state.rejected.items(offsets)
        topic = self._topics.topic_of(partition.topic_id)
        return LetterCopier(self._ledger.group.name, topic.name, partition.index, marks, topic_count=topic.count)

    def is_copy(self, headers: Sequence[Header]) -> bool:
        """Whether a copy of one of these messages is this group's: others may give up on it too."""
        name = self._ledger.group.name.encode()
        return any(header == (GROUP, name) for header in headers)

    def pass_over(self) -> bool:
        """Settle what retention removed, and what is damaged."""
        before = len(self.to_move())
        self._ledger.clip()
        self._ledger.pass_over_damage()
        return len(self.to_move()) < before

    def blocked(self, error: TidelogError) -> None:
        """Tell the operator."""
        self._tell("dead letters blocked", why=f"{error.code}: {error.message}")

    def unblocked(self) -> None:
        """Tell the operator."""
        self._tell("dead letters go on")

    def _tell(self, event: str, **fields: str | int) -> None:
        partition = self.partition
        self._report(
            event,
            group=short_name(self._ledger.group.name),
            topic_id=partition.topic_id,
            partition=partition.index,
            messages=len(self.to_move()),
            **fields,
        )
