"""Which dead letters a call is about: those of a topic, or of one message, that pass a filter."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from ...protocol.topic_name import MessageId, short_name
from ..core.directory import TopicEntry
from ..core.letter_filter import LetterFilter
from ..dead_letter import DeadLetter
from .letter_reading import LetterTopic, NewDeadline, Spans, find_letter_topics, pending_spans, read_letters
from .session import Session

PlaceList = list["LetterPlace"]


@dataclass(frozen=True, slots=True)
class LetterPlace:
    """A partition of a dead-letter topic, and which of its pending dead letters are meant: the one at an offset, or
    those of one message or topic, or all."""

    entry: TopicEntry
    partition: int
    offset: int | None = None
    original_id: str | None = None
    origin: str | None = None

    @property
    def must_read(self) -> bool:
        """Whether only their headers say which are meant."""
        return self.original_id is not None or self.origin is not None

    def holds(self, letter: DeadLetter) -> bool:
        """Whether one is meant."""
        if self.original_id is not None:
            return letter.original_id == self.original_id
        return self.origin is None or letter.topic == short_name(self.origin)

    def cut(self, spans: Spans) -> Spans:
        """Leave out what no offset of it is in."""
        if self.offset is None:
            return spans
        return [(self.offset, self.offset + 1) for start, end in spans if start <= self.offset < end]


async def chosen_letters(
    session: Session, what: str, wanted: LetterFilter, limit: int | None, deadline: NewDeadline
) -> AsyncIterator[DeadLetter]:
    """Yield pending dead letters of a topic or message that pass a filter, at most `limit`."""
    left = limit
    for place in await _places(session, what, deadline):
        spans = place.cut(await pending_spans(session, place.entry, place.partition, deadline))
        async for letter in read_letters(session, place.entry, place.partition, spans, deadline):
            if not (place.holds(letter) and wanted.matches(letter)):
                continue
            yield letter
            if left is not None:
                left -= 1
                if not left:
                    return


async def chosen_spans(
    session: Session, what: str, wanted: LetterFilter, limit: int | None, at_once: int, deadline: NewDeadline
) -> AsyncIterator[tuple[LetterPlace, Spans]]:
    """Yield the same as ranges of at most `at_once` offsets. They are read only where that is needed to choose."""
    left = 1 << 62 if limit is None else limit
    for place in await _places(session, what, deadline):
        spans = place.cut(await pending_spans(session, place.entry, place.partition, deadline))
        if wanted.is_all and not place.must_read:
            for piece in _pieces(spans, at_once, left):
                yield place, piece
            left -= min(left, sum(end - start for start, end in spans))
            continue
        found: list[int] = []
        async for letter in read_letters(session, place.entry, place.partition, spans, deadline):
            if left and place.holds(letter) and wanted.matches(letter):
                found.append(letter.message.offset)
                left -= 1
            if len(found) == at_once or (found and not left):
                yield place, _spans_of(found)
                found = []
            if not left:
                return
        if found:
            yield place, _spans_of(found)


async def _places(session: Session, what: str, deadline: NewDeadline) -> PlaceList:
    """Return where the dead letters of a topic, or of a message, are. Raises UnknownTopicError."""
    if "@" not in what:
        topics = await find_letter_topics(session, what, deadline())
        return [_place(one, partition) for one in topics for partition in range(one.entry.partitions)]
    wanted = MessageId.parse(what, session.directory.namespace)
    topics = await find_letter_topics(session, wanted.topic, deadline())
    found: PlaceList = []
    for one in topics:
        if one.entry.name != wanted.topic:
            partitions = copied_to(wanted.partition, one.entry.partitions)
            found += [LetterPlace(one.entry, partition, original_id=str(wanted)) for partition in partitions]
        elif one.entry.count == wanted.count and wanted.partition < one.entry.partitions:
            found.append(LetterPlace(one.entry, wanted.partition, wanted.offset))
    return found


def copied_to(partition: int, count: int) -> list[int]:
    """Return where copies of messages of a partition are, in a dead-letter topic that has so many partitions now: in
    that of its number modulo the count there was at the time, which may have been any up to this one."""
    return [*dict.fromkeys(partition % then for then in range(count, 0, -1))]


def _place(topic: LetterTopic, partition: int) -> LetterPlace:
    return LetterPlace(topic.entry, partition, origin=topic.origin)


def _pieces(spans: Spans, at_once: int, most: int) -> list[Spans]:
    """Return ranges cut into pieces of so many offsets, `most` in all."""
    pieces: list[Spans] = []
    room = 0
    for first, end in spans:
        start, last = first, min(end, first + most)
        most -= max(0, last - first)
        while start < last:
            if not room:
                pieces.append([])
                room = at_once
            stop = min(last, start + room)
            pieces[-1].append((start, stop))
            room -= stop - start
            start = stop
    return pieces


def _spans_of(offsets: list[int]) -> Spans:
    """Return ascending offsets as ranges."""
    spans: Spans = []
    for offset in offsets:
        if spans and spans[-1][1] == offset:
            spans[-1] = (spans[-1][0], offset + 1)
        else:
            spans.append((offset, offset + 1))
    return spans
