"""Where a stream stands against what the broker says: which partitions are new, held, gone, or not what they were.

Absence proves nothing: only an answer by name that there is no such topic does. A partition that is missing from an
answer keeps its offset. What is lost is said in words, and is an error unless that is allowed. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..client.errors import UnknownTopicError
from .errors import DataLossError
from .offsets import Available, Offsets
from .places import Place, Range
from .stream_offset import StreamOffset


@dataclass(frozen=True, slots=True)
class Seen:
    """What the broker answered."""

    available: dict[Place, Available]
    made: dict[str, int]
    """When each topic was made that it has, in microseconds."""
    gone: dict[str, UnknownTopicError] = field(default_factory=dict[str, UnknownTopicError])
    """Topics that it was asked for by name and does not have."""
    unserved: frozenset[Place] = frozenset()
    """Partitions that it has and cannot serve."""
    epochs: Offsets = field(default_factory=Offsets)
    """In which epoch each log is."""
    cut: Offsets = field(default_factory=Offsets)
    """Where logs lost what was read of them, though they may have grown again since."""
    is_whole: bool = True
    """Whether all partitions of a topic are read: then one that turns up later is new."""
    ids: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """How often each topic that it has was made, and its id: told of those too whose partitions it cannot serve."""

    def ends(self, before: Mapping[Place, int]) -> Offsets:
        """Return how far each partition goes, and never less than where it is; those without an answer stay."""
        return {
            place: max(offset, self.available[place].end if place in self.available else 0)
            for place, offset in before.items()
        }


@dataclass(frozen=True, slots=True)
class Settled:
    """From where each partition is read on."""

    next: Offsets
    made: dict[str, int]
    begins: Offsets
    losses: list[str]
    held: list[Place]
    """Partitions of which there is no answer now; they stay where they are."""
    dropped: list[str]
    """Topics that the options do not select any more."""
    epochs: Offsets

    def changes(self, before: StreamOffset) -> bool:
        """Whether something is to be logged though no record is read."""
        return before.is_new or bool(self.begins) or self.next.keys() != before.next.keys() or self.made != before.made

    def to(self, ends: Offsets) -> StreamOffset:
        """Return the offset of a batch that ends there."""
        return StreamOffset(ends, self.made, self.begins, self.epochs)


def settle(start: StreamOffset, seen: Seen, origins: Mapping[Place, int], *, fails: bool = True) -> Settled:
    """Return where a stream that ended at `start` goes on; `origins` is where a new one begins.

    Raises UnknownTopicError for a topic that was asked for and never was there; where losses do not fail it, it may be
    one that was left behind, and may be made again.
    """
    for topic, error in seen.gone.items():
        if (fails or start.is_new) and topic not in {place.topic for place in start.next}:
            raise error
    found = Settled({}, {}, {}, [], [], [], {})
    for topic in sorted({place.topic for place in start.next}):
        if topic in seen.gone:
            found.losses.append(f"{topic}: the topic was deleted, and what was not read of it is gone")
        elif topic not in seen.made:
            found.dropped.append(topic)
        elif start.made.get(topic, seen.made[topic]) != seen.made[topic]:
            found.losses.append(f"{topic}: the topic was deleted and made again, and what was not read of it is gone")
        else:
            _go_on(found, start, seen, topic)
    known = set(found.made)
    for place, held in sorted(seen.available.items()):
        if place not in found.next:
            _begin(found, place, origins[place] if start.is_new else held.start)
            if place.topic in known and seen.is_whole and held.start:
                found.losses.append(f"{place}: offsets 0 to {held.start} of a new partition were removed by retention")
            found.made[place.topic] = seen.made[place.topic]
    epochs = start.epochs | seen.epochs
    found.epochs.update({place: epochs[place] for place in found.next if place in epochs})
    return found


def _go_on(found: Settled, start: StreamOffset, seen: Seen, topic: str) -> None:
    """Take the partitions of a topic that is what it was."""
    found.made[topic] = seen.made[topic]
    for place, offset in sorted(start.next.items()):
        if place.topic != topic:
            continue
        held = seen.available.get(place)
        found.next[place] = offset
        if held is None:
            found.held.append(place)
        elif offset > (survived := min(held.end, seen.cut.get(place, held.end))):
            found.losses.append(f"{place}: read up to offset {offset}, and its log lost what was behind {survived}")
            _begin(found, place, max(survived, held.start))
        elif offset < held.start:
            found.losses.append(f"{place}: offsets {offset} to {held.start} were removed by retention")
            _begin(found, place, held.start)


def _begin(found: Settled, place: Place, offset: int) -> None:
    found.next[place] = found.begins[place] = offset


def ranges_of(before: StreamOffset, end: StreamOffset, seen: Seen) -> tuple[list[Range], list[str]]:
    """Return what a batch reads, and in words what of that is lost."""
    ranges: list[Range] = []
    losses: list[str] = []
    for place, last in sorted(end.next.items()):
        first, topic = end.start_of(place, before), place.topic
        if first >= last:
            continue  # a log that lost its end was settled when the batch was made
        held = seen.available.get(place)
        epoch = end.epochs.get(place, 0)  # what was appended in a later one was not there when the batch was made
        if topic in seen.gone:
            losses.append(f"{place}: offsets {first} to {last}: the topic was deleted")
        elif end.made.get(topic, seen.made.get(topic)) != seen.made.get(topic):
            losses.append(f"{place}: offsets {first} to {last}: the topic was deleted and made again")
        elif held is None:
            count, topic_id = seen.ids.get(topic, (0, 0))
            ranges.append(Range(place, first, last, count, topic_id, epoch=epoch))  # its task waits for it
        else:
            survived = min(held.end, seen.cut.get(place, held.end))
            low, high = min(max(first, held.start), last), min(last, survived)
            if low > first:
                losses.append(f"{place}: offsets {first} to {low} were removed by retention")
            if high < last:
                losses.append(
                    f"{place}: offsets {max(first, high)} to {last} are lost: its log ends at {survived} since"
                )
            if low < high:
                ranges.append(Range(place, low, high, held.count, held.topic_id, epoch=epoch))
    return ranges, losses


def check_losses(losses: list[str]) -> None:
    """Raise DataLossError if anything is lost."""
    if losses:
        raise DataLossError(f"{'; '.join(losses)}; failOnDataLoss=false reads what is there", losses=len(losses))
