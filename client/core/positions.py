"""All partitions of one reader: what to ask for next, and what to make of the answer.

One fetch at a time covers every partition. The next one is sent before the batches of the last are handed out, so the
broker and the socket's buffer work ahead while the user's code runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...protocol.errors import CorruptError, OffsetOutOfRangeError, TidelogError, TruncatedError
from ...protocol.limits import MAX_BATCH_PAYLOAD_BYTES, MAX_CONTROL_BYTES, MIB
from ...protocol.messages import Fetch, FetchReply
from ...protocol.messages.fetch import FETCH_RESULT_BYTES
from ..message_batch import MessageBatch
from .directory import TopicEntry
from .position import Position, Times

FETCH_BYTES = MIB
"""What one fetch asks for: two of them (one handed out, one on its way) still fit the processor's cache."""

MAX_PLACES = MAX_CONTROL_BYTES // FETCH_RESULT_BYTES
"""Partitions in one fetch, so that every answer fits the reply's control."""

CROWDED_WAIT_US = 100_000
"""How long a fetch of some of more partitions than that waits."""

Place = tuple[int, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do about holes: raise, or go on behind them with a warning."""

    skips_damage: bool = False
    skips_gaps: bool = False


@dataclass(frozen=True, slots=True)
class Skipped:
    """A hole that was passed over because the user said so."""

    where: str
    error: TidelogError
    next_offset: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A fetch, and how often each of its partitions had been sought when it was made.

    `is_partial`: there are more partitions than one fetch can ask for.
    """

    message: Fetch
    seeks: dict[Place, int]
    is_partial: bool


class Positions:
    """The partitions a reader reads."""

    def __init__(self, policy: Policy, times: Times | None = None) -> None:
        self.max_payload_bytes = MAX_BATCH_PAYLOAD_BYTES
        self.metadata_version = 0
        self.is_any_topic = False
        """Whether topics that are made later may be read too."""
        self.is_archived = False
        """Whether what retention removed is read from the archive."""
        self._policy = policy
        self._times = times
        self._positions: dict[Place, Position] = {}

    def __iter__(self) -> Iterator[Position]:
        return iter(self._positions.values())

    def __repr__(self) -> str:
        return f"<Positions in {self}>"

    def __str__(self) -> str:
        count = len(self._positions)
        return "no partition yet" if not count else f"{count:,} partition{'' if count == 1 else 's'}"

    def add(self, position: Position) -> None:
        """Read one more partition."""
        self._positions[position.topic.id, position.partition] = position

    def adopt(self, others: Positions) -> None:
        """Read what others read, from the beginning."""
        for position in others:
            self.add(position.again())
        self.metadata_version = others.metadata_version

    def is_new(self, topic: TopicEntry, partition: int) -> bool:
        """Whether this partition appeared since the read began. A topic made again under a name that is read already
        is another topic: its records are not those that were asked for."""
        is_read = (topic.id, partition) in self._positions
        return not is_read and all(each.topic.id == topic.id for each in self if each.topic.name == topic.name)

    def matching(self, topic: str | None, partition: int | None) -> list[Position]:
        """Return the partitions of a topic (its full name; None for all) with a number (None for any)."""
        return [
            position
            for position in self
            if topic in (None, position.topic.name) and partition in (None, position.partition)
        ]

    @property
    def is_empty(self) -> bool:
        """Whether there is no partition: a topic that matches a pattern may come."""
        return not self._positions

    @property
    def is_finished(self) -> bool:
        """Whether every partition has an end and it is reached."""
        return all(position.is_finished for position in self)

    def next_fetch(self, max_wait_us: int) -> Sent | None:
        """Return what to ask for, or None if there is nothing."""
        wanted = [position for position in self if position.has_more and not position.is_paused]
        hungry = self._hungry(wanted)
        suspects = [position for position in wanted if position.must_verify]
        asked = (suspects or hungry)[:MAX_PLACES]
        if not asked:
            return None
        is_partial = len(asked) < len(suspects or wanted)
        if len(asked) < len(suspects or hungry):  # the others get their turn soon, also when these are quiet
            max_wait_us = min(max_wait_us, CROWDED_WAIT_US)
            for position in asked:
                self._to_the_end(position)
        message = Fetch(
            [position.question(self._share()) for position in asked],
            max_bytes=FETCH_BYTES,
            max_wait_us=max_wait_us,
            verify=bool(suspects),
            timestamps=self._times,
            metadata_version=self.metadata_version,
            archived=self.is_archived,
            any_topic=self.is_any_topic,
        )
        return Sent(message, {(at.topic.id, at.partition): at.seeks for at in asked}, is_partial)

    def is_outdated(self, sent: Sent) -> bool:
        """Whether a fetch does not ask for all that is wanted by now: after a seek, a resume, or damage."""
        for place, position in self._positions.items():
            asked = sent.seeks.get(place)
            if asked is None:
                if not (sent.is_partial or sent.message.verify) and position.has_more and not position.is_paused:
                    return True
            elif asked != position.seeks:
                return True
        return False

    def take(self, sent: Sent, reply: FetchReply, bulk: memoryview) -> bool:
        """Keep what a fetch brought; return whether it is better to pause before the next one."""
        start, pause = 0, False
        for result in reply.results:
            place = (result.topic_id, result.partition)
            end = start + result.bulk_bytes
            position = self._positions.get(place)
            if position is not None and position.seeks == sent.seeks.get(place):
                position.take(result, self._kept(bulk[start:end]))
                if position.error is not None and position.error.retriable:
                    position.error, pause = None, True
                self._to_the_end(position)  # a full reply holds what stood in front
            start = end
        return pause

    def next_batch(self) -> MessageBatch | Skipped | None:
        """Return the next batch to hand out, a hole that was passed over, or None. Raises what stops a partition."""
        for position in self:
            if position.is_ready:
                found = self._next_of(position)
                if found is not None:
                    return found
        return None

    def batch_at_hand(self) -> MessageBatch | None:
        """Return the next batch that is received and whole, in no order among partitions; what is to be raised, or
        passed over, stays for `next_batch`."""
        for position in self:
            if position.is_ready:
                found = position.batch_at_hand(self._times, self.max_payload_bytes)
                if found is not None:
                    return found
        return None

    def _next_of(self, position: Position) -> MessageBatch | Skipped | None:
        """Return the next batch of one partition, or what stands in its place."""
        try:
            return position.next_batch(self._times, self.max_payload_bytes)
        except TidelogError as error:
            next_offset = self._offset_behind(error, position.offset)
            if next_offset is None:
                raise
            position.seek(next_offset)
            return Skipped(f"{position.topic.shown}/{position.partition}", error, next_offset)

    def _hungry(self, wanted: list[Position]) -> list[Position]:
        """Return which of the partitions that are not at their end to ask for more now."""
        return wanted

    def _share(self) -> int:
        """Return how much to ask for of one partition."""
        return FETCH_BYTES

    def _kept(self, bulk: memoryview) -> memoryview:
        """Return one partition's part of a reply in the memory in which it waits."""
        return bulk

    def _to_the_end(self, position: Position) -> None:
        place = (position.topic.id, position.partition)
        self._positions[place] = self._positions.pop(place)

    def _offset_behind(self, error: TidelogError, offset: int) -> int | None:
        """Return where to go on behind a hole, if the user wants that and the error says it."""
        found = None
        if isinstance(error, CorruptError) and self._policy.skips_damage:
            found = error.details.get("next")
        elif isinstance(error, TruncatedError) and self._policy.skips_gaps:
            found = error.details.get("end")
        elif isinstance(error, OffsetOutOfRangeError) and self._policy.skips_gaps:
            # Below the range the oldest record is the nearest, past it the end.
            end = error.details.get("end")
            found = end if isinstance(end, int) and offset > end else error.details.get("start")
        return found if isinstance(found, int) else None
