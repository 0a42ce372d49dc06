"""The door to dead letters: which are pending, and what is done with them.

Dead letters that a request is about are its own until it is answered: another that names them meanwhile passes over
them. Else the second could bring a message back that came, and was given up again, between its look and its deed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from ...protocol.errors import InvalidRequestError, TidelogError
from ...protocol.group_name import full_group_name
from ...protocol.messages import (
    DeadLetters,
    DeadLettersReply,
    MessageAttempts,
    MessageAttemptsReply,
    Purge,
    PurgeReply,
    Redrive,
    RedriveReply,
)
from ...protocol.topic_name import short_name
from ..deferred import Deferred
from ..delivery.offset_set import OffsetSet, lowest, packed_of, set_of_packed
from ..flow import Flow, start_flow
from ..groups import Groups
from ..partition import Partition
from ..queues.partition_delivery import PartitionDelivery
from ..queues.queues import Queues
from ..services import Services
from ..topics import Topics
from .attempts import check_exists, read_attempts
from .begun import resolve_begun
from .dead_letter_topics import is_dead_letter_topic
from .letters import Letters, read_letters
from .origins import Origins
from .pending import PendingLetters
from .purging import Purging
from .redrive import Redriven, give_up_for_good, redrive_as_new, redrive_in_place
from .sending_anew import SendingAnew

MAX_REDRIVEN = 1_000
"""Of one request; a client that brings back more asks in several, and can stop, or go on, in between."""

MAX_PURGED = 10_000
"""Of one request: their headers are read, to tell their groups."""


class DeadLetterDesk:
    """Dead letters of one broker."""

    def __init__(self, services: Services, topics: Topics, groups: Groups, queues: Queues) -> None:
        self._services = services
        self._topics = topics
        self._groups = groups
        self._queues = queues
        self._anew = SendingAnew(topics, queues.around, self._give_up)
        queues.when_delivery_changed.append(self._delivery_changed)
        self._origins = Origins(topics, groups, queues)
        self._purging = Purging(services, self._origins, self._pending)
        self._in_hand: dict[tuple[int, int], OffsetSet] = {}

    def __repr__(self) -> str:
        return f"<DeadLetterDesk {sum(map(len, self._in_hand.values()))} in hand>"

    def start(self) -> None:
        """Go on with what was begun before; blocks. Before anything is served."""
        resolve_begun(self._topics, self._groups)
        self._anew.start()
        for topic in self._topics.all():
            for partition in topic.partitions:
                self._purging.opened(partition)

    def _delivery_changed(self, delivery: PartitionDelivery) -> None:
        with suppress(TidelogError):  # of a topic that is gone
            partition = self._topics.partition(delivery.topic_id, delivery.index)
            self._anew.opened(delivery, partition)
            self._purging.opened(partition)

    def pending(self, request: DeadLetters) -> DeadLettersReply:
        """Return which dead letters of a partition are pending. Raises UnknownTopicIdError, UnknownPartitionError."""
        pending = self._pending(request.topic_id, request.partition).offsets()
        total = len(pending)
        pending.remove_range(0, request.offset)
        page = lowest(pending, request.limit)
        following = page.max() + 1 if len(page) < len(pending) else None
        return DeadLettersReply(self._topics.version, packed_of(page), total, following)

    def redrive(self, request: Redrive) -> Deferred[RedriveReply]:
        """Bring dead letters back. Raises, or fails with, UnknownTopicIdError, UnknownPartitionError,
        InvalidRequestError, LogFencedError."""
        asked = _asked(request.ranges, MAX_REDRIVEN)
        return start_flow(self._redrive(self._pending(request.topic_id, request.partition), asked, request))

    def purge(self, request: Purge) -> Deferred[PurgeReply]:
        """Give dead letters up for good. Raises, or fails, as `redrive` does."""
        asked = _asked(request.ranges, MAX_PURGED)
        return start_flow(self._purge(self._pending(request.topic_id, request.partition), asked))

    def attempts(self, request: MessageAttempts) -> Deferred[MessageAttemptsReply]:
        """Return what became of a message in a group. Raises UnknownGroupError, UnknownTopicIdError, NotFoundError."""
        group = self._groups.named(full_group_name(request.group))
        partition = self._topics.partition(request.topic_id, request.partition)
        if not group.reads(request.topic_id):
            raise InvalidRequestError(f"expected a topic that group {short_name(group.name)} reads, found another")
        check_exists(partition, request.offset)
        begin = group.begin(request.topic_id, request.partition)
        reading = read_attempts(self._services, partition, group.id, begin, request.offset, request.since_us)
        return start_flow(reading)

    def _pending(self, topic_id: int, index: int) -> PendingLetters:
        self._topics.partition(topic_id, index)
        return PendingLetters(partial(self._topics.partition, topic_id, index), self._anew.in_hand)

    # -- steps -----------------------------------------------------------------------------------------------------

    def _redrive(self, pending: PendingLetters, asked: OffsetSet, request: Redrive) -> Flow[RedriveReply]:
        partition, done = pending.partition, Redriven()
        wanted = yield from self._take(pending, asked)
        try:
            done.passed |= asked - wanted
            letters = yield from read_letters(partition, self._services.offload, wanted)
            done.refused += letters.unreadable
            log_id, limit = partition.log.log_id, request.max_redrives
            plan = self._origins.plan(letters.found, log_id, as_new=request.as_new, max_redrives=limit)
            done.refused += plan.refused
            yield from redrive_in_place(plan, pending, self._queues.around.next_lease(), done)
            for place, moving in plan.as_new.items():
                yield from redrive_as_new(partition, partial(self._topics.partition, *place), moving, self._anew, done)
        finally:
            self._let_go(partition, wanted)
        return done.reply()

    def _purge(self, pending: PendingLetters, asked: OffsetSet) -> Flow[PurgeReply]:
        partition = pending.partition
        topic = self._topics.by_id(partition.topic_id)
        wanted = yield from self._take(pending, asked)
        try:
            letters = yield from read_letters(partition, self._services.offload, wanted)
            gone = wanted if is_dead_letter_topic(topic.name, self._groups) else OffsetSet(_copies(letters))
            if gone:
                yield from self._purging.purge(pending, letters, gone, self._queues.around.next_lease())
        finally:
            self._let_go(partition, wanted)
        return PurgeReply(packed_of(gone), packed_of(asked - gone))

    def _give_up(self, partition: Partition, published: OffsetSet) -> Flow[None]:
        """Let messages count as dead-lettered no more whose letters were published, whoever asked for that and when."""
        there = published.copy()
        there.remove_range(0, partition.start_offset)
        with suppress(TidelogError):  # of what cannot be read nobody can say what it is a copy of
            letters = yield from read_letters(partition, self._services.offload, there)
            yield from give_up_for_good(self._origins.dead_lettered(letters.found, partition.log.log_id).values())

    def _take(self, pending: PendingLetters, asked: OffsetSet) -> Flow[OffsetSet]:
        """Return those of the dead letters asked for that are pending and in nobody's hand, and take them."""
        partition = pending.partition
        yield self._queues.opened(partition.delivery)
        in_hand = self._in_hand.setdefault((partition.topic_id, partition.index), OffsetSet())
        wanted = (asked & pending.offsets()) - in_hand
        in_hand |= wanted
        return wanted

    def _let_go(self, partition: Partition, letters: OffsetSet) -> None:
        place = (partition.topic_id, partition.index)
        self._in_hand[place] -= letters
        if not self._in_hand[place]:
            del self._in_hand[place]


def _copies(letters: Letters) -> list[int]:
    """Return those that somebody gave up on: in a topic that holds no dead letters (any more), what else is there is
    not pending, and nobody's to purge."""
    return [letter.offset for letter in letters.found if letter.original is not None]


def _asked(ranges: bytes, limit: int) -> OffsetSet:
    asked = set_of_packed(ranges, limit)
    if not asked:
        raise InvalidRequestError("expected ranges of dead letters, found none")
    return asked
