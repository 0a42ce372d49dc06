"""Where a group begins: from its start rule to an offset of each partition, at one moment.

    earliest      what is retained now, and all that follows
    latest        what becomes visible from now on
    offset        this offset of the one partition that is meant
    time          the first record appended at or after it; where there is none yet, the end of now and the time
                  itself (`Begin.not_before_us`), so that records appended before it are passed over when they come

Topics and partitions made after the group begin at 0 under every rule: all of them is news to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...protocol.errors import InvalidGroupError, OffsetOutOfRangeError, TidelogError
from ...protocol.messages import GroupStart, OffsetAnswer, OffsetKind, OffsetQuery
from ...protocol.topic_name import short_name
from ..deferred import Deferred
from ..flow import Flow
from ..meta import Begin, MetaState
from ..partition import Partition
from ..topic import Topic

EARLIEST = GroupStart("earliest")
"""A new queue group's: a job published before the first worker must run."""

WORDS = ("earliest", "latest", "offset", "time")

Place = tuple[Topic, int]
"""A topic and the index of one of its partitions."""


def check_start(start: GroupStart, places: Sequence[Place]) -> None:
    """Raise InvalidGroupError for a rule that cannot be followed in these partitions."""
    if start.word not in WORDS:
        raise InvalidGroupError(f"start: expected {', '.join(WORDS)}, found {start.word!r}")
    if start.word == "offset" and len(places) > 1:
        raise InvalidGroupError(
            f"start: expected an offset where one partition is meant, found {len(places)} partitions; offsets of"
            " different partitions have nothing in common: name one, or give a time"
        )


def find_begins(
    start: GroupStart, places: Sequence[Place], state: MetaState, generation: int
) -> Flow[dict[int, dict[int, Begin]]]:
    """Find where a group begins in each partition. Raises what keeps one from being asked, OffsetOutOfRangeError."""
    asked = [(topic, index, _ask(start, topic, index)) for topic, index in places]
    begins: dict[int, dict[int, Begin]] = {}
    for topic, index, found in asked:
        if isinstance(found, Deferred):
            yield found.then(lambda _: None)
        answer = found.result() if isinstance(found, Deferred) else found
        begin = _begin(start, answer, state.epoch, generation, topic, index)
        begins.setdefault(topic.id, {})[index] = begin
    return begins


def _ask(start: GroupStart, topic: Topic, index: int) -> OffsetAnswer | Deferred[OffsetAnswer]:
    if start.word == "earliest" and index in topic.offline:
        return OffsetAnswer(0, 0, 0, 0)  # whatever is there when it is back
    partition = topic.partition(index)
    match start.word:
        case "time":
            query = OffsetQuery(topic.id, index, OffsetKind.APPEND_TIME, start.value)
        case "latest":
            query = OffsetQuery(topic.id, index, OffsetKind.LATEST)
        case _:
            query = OffsetQuery(topic.id, index, OffsetKind.EARLIEST)
    return partition.offsets(query)


def _begin(start: GroupStart, answer: OffsetAnswer, epoch: int, generation: int, topic: Topic, index: int) -> Begin:
    if answer.error is not None:
        raise answer.error.error()
    if start.word == "offset":
        if not answer.start_offset <= start.value <= answer.end_offset:
            raise OffsetOutOfRangeError(
                f"expected an offset of {short_name(topic.name)}/{index} from {answer.start_offset} to"
                f" {answer.end_offset}, found {start.value}",
                start=answer.start_offset,
                end=answer.end_offset,
            )
        return Begin(start.value, epoch, generation=generation)
    is_to_come = start.word == "time" and answer.offset >= answer.end_offset
    return Begin(answer.offset, epoch, start.value if is_to_come else 0, generation)


def older_places(topics: Iterable[Topic], state: MetaState, version: int) -> list[Place]:
    """Return the partitions of topics that were there at a metadata version; those made later begin at 0."""
    return [
        (topic, index)
        for topic in topics
        for index in range(min(state.topics[topic.id].partitions_at(version), topic.partition_count))
    ]


def time_reached(begin: Begin, partition: Partition) -> Begin | Deferred[Begin | None] | None:
    """Return where a start at a time turned out to be, or None while no visible record has reached the time.

    Raises, or fails with, what keeps the partition from being searched.
    """
    query = OffsetQuery(partition.topic_id, partition.index, OffsetKind.APPEND_TIME, begin.not_before_us)
    found = partition.offsets(query)
    if isinstance(found, Deferred):
        return found.then(lambda answer: _reached(begin, answer))
    return _reached(begin, found)


def _reached(begin: Begin, answer: OffsetAnswer) -> Begin | None:
    if answer.error is not None:
        error: TidelogError = answer.error.error()
        raise error
    if answer.offset >= answer.end_offset:
        return None
    return Begin(answer.offset, answer.epoch, generation=begin.generation)
