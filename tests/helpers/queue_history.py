"""A history of queue groups: what workers were handed and asked for, what they were told, and what was done to them.

Every process keeps its own record (`history.Recorder`): a worker writes down each message when its code is handed it
(`Handed`), what it asks for before it does (`Asked`), and the answer (`Told`); whoever kills, stops or resets writes
that down too. Records merge by the machine's monotonic clock. A message is known by its payload, not by its offset: a
power loss may give an offset to another one. Lease ids ascend over all starts of a broker, so they tell which of two
leases was given first, whatever the clocks of the processes say.

`queue_rules` has the rules that a history must keep.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

import msgspec

from .history import SURVIVES, Bounds, Durability, Event, Fault, Ordered
from .payloads import origin_of

What = Literal["ack", "nack", "reject", "return", "suspect", "extend"]
How = Literal["ok", "lost", "failed", "unknown"]
EXPIRED, BEFORE_START = "expired-by-retention", "before-start"
USUAL_PRIORITY = 4


class Grouped(Event, frozen=True, kw_only=True, tag="grouped"):
    """A queue group and its settings; `backoff_us`: the least wait after the n-th attempt, the last one for the rest."""

    group: str
    max_attempts: int = 4
    backoff_us: list[int] = msgspec.field(default_factory=lambda: [0])


class Published(Event, frozen=True, kw_only=True, tag="published"):
    """Messages were acknowledged at these offsets; `max_attempts` when they carry their own, `priorities` when they are
    not all of the usual one."""

    messages: list[str]
    partition: str
    offsets: list[int]
    durability: Durability = "synced"
    max_attempts: int | None = None
    priorities: list[int] | None = None


class Handed(Event, frozen=True, kw_only=True, tag="handed"):
    """A worker's code was given a message, as its `attempt`-th; the lease ran since `since_ns` and does until `until_ns`
    (0: nobody said)."""

    group: str
    worker: str
    message: str
    partition: str
    offset: int
    lease: int
    attempt: int
    priority: int = USUAL_PRIORITY
    since_ns: int = 0
    until_ns: int = 0


class Asked(Event, frozen=True, kw_only=True, tag="asked"):
    """A worker is about to settle messages of a lease (or to extend it until `until_ns`); `ask` names the request.

    `delay_us` is what a nack asked for, None where the backoff decides; `by_token`: anybody may.
    """

    ask: str
    group: str
    worker: str
    what: What
    lease: int
    messages: list[str]
    delay_us: int | None = None
    until_ns: int = 0
    by_token: bool = False


class Told(Event, frozen=True, kw_only=True, tag="told"):
    """What came of it: done, refused because the lease is lost, refused otherwise, or nobody knows."""

    ask: str
    how: How


class WorkerEvent(Event, frozen=True, kw_only=True, tag="worker"):
    """A worker started, was killed by the test (`killed`), died of a message (`died`), stood still, or ended by itself."""

    worker: str
    did: Literal["started", "killed", "died", "paused", "resumed", "ended"]


class Moved(Event, frozen=True, kw_only=True, tag="moved"):
    """A group is about to be reset (`is_done` False), or was."""

    group: str
    is_done: bool


class Stepped(Event, frozen=True, kw_only=True, tag="stepped"):
    """The broker's wall clock was set forward, or back."""

    by_us: int


class Killers(Event, frozen=True, kw_only=True, tag="killers"):
    """These messages kill every worker that is handed one."""

    messages: list[str]


class Final(Event, frozen=True, kw_only=True, tag="final"):
    """What the broker says of a message in a group when all is over."""

    group: str
    message: str
    partition: str
    offset: int
    state: str
    attempts: int = 0


QueueEvent = (
    Grouped | Published | Handed | Asked | Told | WorkerEvent | Moved | Stepped | Killers | Final | Fault | Bounds
)
_DECODER = msgspec.json.Decoder(QueueEvent)


def message_of(value: bytes | None) -> str:
    """Return the name of a message by its payload; one that nobody made has a name that nobody published."""
    origin = origin_of(value)
    return f"{value!r:.60}" if origin is None else f"{origin.producer}/{origin.sequence}"


def read_queue_records(paths: Iterable[Path]) -> list[QueueEvent]:
    """Merge the records of several processes by time; a last line that was cut by a kill is left out."""
    events: list[QueueEvent] = []
    for path in paths:
        complete, _, _cut = path.read_bytes().rpartition(b"\n")
        events += [_DECODER.decode(line) for line in complete.split(b"\n") if line]
    return sorted(events, key=lambda event: event.at_ns)


@dataclass
class Timeline:
    """All that happened to one message in one group."""

    handed: list[Handed] = field(default_factory=list[Handed])
    """In the order of the leases; within one as they happened."""
    asked: list[Asked] = field(default_factory=list[Asked])
    final: Final | None = None

    def of_lease(self, lease: int) -> list[Asked]:
        """Return what was asked for this message under a lease."""
        return [asked for asked in self.asked if asked.lease == lease]


@dataclass
class QueueHistory(Ordered[QueueEvent]):
    """Events in the order in which they happened, with the views that rules need."""

    @cached_property
    def groups(self) -> dict[str, Grouped]:
        """Name -> settings."""
        return {event.group: event for event in self.events if isinstance(event, Grouped)}

    @cached_property
    def published(self) -> dict[str, Published]:
        """Message -> how it was published."""
        return {name: event for event in self.events if isinstance(event, Published) for name in event.messages}

    @cached_property
    def offsets(self) -> dict[str, int]:
        """Message -> its offset."""
        return {
            name: offset
            for event in self.events
            if isinstance(event, Published)
            for name, offset in zip(event.messages, event.offsets, strict=True)
        }

    @cached_property
    def priorities(self) -> dict[str, int]:
        """Message -> its priority."""
        return {
            name: priority
            for event in self.events
            if isinstance(event, Published)
            for name, priority in zip(
                event.messages, event.priorities or [USUAL_PRIORITY] * len(event.messages), strict=True
            )
        }

    @cached_property
    def faults(self) -> list[Fault]:
        """What was done to the broker."""
        return [event for event in self.events if isinstance(event, Fault)]

    @cached_property
    def fates(self) -> list[WorkerEvent]:
        """What was done to workers."""
        return [event for event in self.events if isinstance(event, WorkerEvent)]

    @cached_property
    def moves(self) -> dict[str, list[Moved]]:
        """Group -> its resets."""
        found: dict[str, list[Moved]] = defaultdict(list)
        for event in self.events:
            if isinstance(event, Moved):
                found[event.group].append(event)
        return dict(found)

    @cached_property
    def killers(self) -> set[str]:
        """The messages that kill."""
        return {name for event in self.events if isinstance(event, Killers) for name in event.messages}

    @cached_property
    def starts(self) -> dict[str, int]:
        """Partition -> where its log begins at the end."""
        return {event.partition: event.start for event in self.events if isinstance(event, Bounds)}

    @cached_property
    def answers(self) -> dict[str, Told]:
        """Request -> what was told last of it."""
        return {event.ask: event for event in self.events if isinstance(event, Told)}

    def how(self, asked: Asked) -> How:
        """Return what came of a request; never answered is unknown."""
        told = self.answers.get(asked.ask)
        return "unknown" if told is None else told.how

    @cached_property
    def timelines(self) -> dict[tuple[str, str], Timeline]:
        """(group, message) -> what happened to it."""
        found: dict[tuple[str, str], Timeline] = defaultdict(Timeline)
        for event in self.events:
            if isinstance(event, Handed):
                found[event.group, event.message].handed.append(event)
            elif isinstance(event, Asked):
                for name in event.messages:
                    found[event.group, name].asked.append(event)
            elif isinstance(event, Final):
                found[event.group, event.message].final = event
        for timeline in found.values():
            timeline.handed.sort(key=lambda handed: handed.lease)
        return dict(found)

    def limit(self, group: str, message: str) -> int:
        """Return how often a message may be handed over."""
        published = self.published.get(message)
        own = None if published is None else published.max_attempts
        settings = self.groups.get(group) or Grouped(group=group)
        return settings.max_attempts if own is None else own

    def is_removed(self, message: str) -> bool:
        """Tell whether retention removed a message."""
        published = self.published.get(message)
        return published is not None and self.offsets[message] < self.starts.get(published.partition, 0)

    def may_be_lost(self, message: str, since: Event) -> bool:
        """Tell whether a fault after `since` may have taken what was said of a message, or the message itself."""
        published = self.published.get(message)
        durability = "received" if published is None else published.durability
        place = self.place(since)
        return any(self.place(fault) > place and fault.kind not in SURVIVES[durability] for fault in self.faults)

    def was_reset(self, group: str, since: Event, until: Event) -> bool:
        """Tell whether a reset of the group may have happened between two events."""
        moves = self.moves.get(group, [])
        begun = [move for move in moves if not move.is_done and self.place(move) < self.place(until)]
        for move in begun:
            ends = [self.place(done) for done in moves if done.is_done and self.place(done) > self.place(move)]
            if not ends or min(ends) > self.place(since):
                return True
        return False

    def was_set_forward(self, since: Event, until: Event) -> bool:
        """Tell whether the broker started after its clock was set forward, both between two events: a wait goes on by
        the smaller of what its time and its delay say then."""
        first, last = self.place(since), self.place(until)
        steps = [self.place(event) for event in self.events if isinstance(event, Stepped) and event.by_us > 0]
        starts = [self.place(fault) for fault in self.faults]
        return any(first < step < start < last for step in steps for start in starts)

    def did(self, kinds: Iterable[str], since: Event, until: Event | None = None, worker: str | None = None) -> int:
        """Count what happened to workers (or one of them) between two events."""
        first = self.place(since)
        last = len(self.events) if until is None else self.place(until)
        wanted = set(kinds)
        return sum(
            event.did in wanted and first < self.place(event) < last and worker in (None, event.worker)
            for event in self.fates
        )
