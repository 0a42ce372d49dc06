"""A history: what drivers did to a broker and what they were told, and the rules that it must keep.

A driver writes each event to its own record before it acts (`Invoke`) and as soon as it knows (`Ok`,
`Fail`, `Unknown`), so that the record outlives the driver, the broker and the machine. Whoever injects a
fault adds `Fault`; whoever reads the log back adds `Bounds` and `Read`. Records of several processes merge
by the machine's monotonic clock.

`violations(history)` runs every rule of `RULES` and returns what it found. A rule is a function from a
history to violations; a rule about queues is one more event type and one more function.

What this does not do: talk to a broker, or decide how many violations are too many (none is).
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec

from .payloads import Origin, origin_of

Durability = Literal["received", "written", "synced"]

SURVIVES: dict[str, frozenset[str]] = {
    "received": frozenset(),
    "written": frozenset({"kill"}),
    "synced": frozenset({"kill", "power"}),
}


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="event"):
    """Something that happened, at a time of CLOCK_MONOTONIC."""

    at_ns: int = 0


class Invoke(Event, frozen=True, kw_only=True, tag="invoke"):
    """A driver is about to send `count` messages, numbered from `first`, as one batch."""

    operation: str
    producer: str
    first: int
    count: int = 1
    epoch: int = 0
    key: str | None = None
    priority: int = 4
    durability: Durability = "synced"


class Ok(Event, frozen=True, kw_only=True, tag="ok"):
    """The broker acknowledged the operation; a repeat of the same batch adds a second one."""

    operation: str
    partition: str
    offsets: list[int]


class Fail(Event, frozen=True, kw_only=True, tag="fail"):
    """The broker refused the operation and said that nothing of it is stored."""

    operation: str
    reason: str = ""


class Unknown(Event, frozen=True, kw_only=True, tag="unknown"):
    """The driver gave up without an answer: the messages may be stored, or not."""

    operation: str
    reason: str = ""


class Fault(Event, frozen=True, kw_only=True, tag="fault"):
    """Everything that the named failure may take was taken, at this time at the latest."""

    kind: Literal["kill", "power"]


class Bounds(Event, frozen=True, kw_only=True, tag="bounds"):
    """The broker says that a partition holds [start, end)."""

    partition: str
    start: int
    end: int


class Read(Event, frozen=True, kw_only=True, tag="read"):
    """A reader was given `value` at `offset`; `final` marks the reading of the whole log after all faults."""

    partition: str
    offset: int
    value: bytes | None
    key: str | None = None
    priority: int = 4
    final: bool = False


AnyEvent = Invoke | Ok | Fail | Unknown | Fault | Bounds | Read
_DECODER = msgspec.json.Decoder(AnyEvent)


class Recorder:
    """An append-only record of events, on disk before `add` returns."""

    def __init__(self, path: Path, *, sync: bool = True) -> None:
        self._fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o644)
        self._sync = sync

    def add(self, event: Event) -> None:
        """Stamp the event with the machine's clock and make it durable."""
        stamped = msgspec.structs.replace(event, at_ns=time.monotonic_ns())
        os.write(self._fd, msgspec.json.encode(stamped) + b"\n")
        if self._sync:
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Close the record; what was added is durable already."""
        os.close(self._fd)


def read_records(paths: Iterable[Path]) -> list[AnyEvent]:
    """Merge the records of several processes by time; a last line that was cut by a kill is left out."""
    events: list[AnyEvent] = []
    for path in paths:
        complete, _, _cut = path.read_bytes().rpartition(b"\n")
        events += [_DECODER.decode(line) for line in complete.split(b"\n") if line]
    return sorted(events, key=lambda event: event.at_ns)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken promise: the rule, and what was expected and found."""

    rule: str
    detail: str


AnEvent = TypeVar("AnEvent", bound=Event)


@dataclass
class Ordered(Generic[AnEvent]):
    """Events in the order in which they happened."""

    events: list[AnEvent] = field(default_factory=list[AnEvent])

    def place(self, event: Event) -> int:
        """Return the event's place in the order."""
        return self._places[id(event)]

    @cached_property
    def _places(self) -> dict[int, int]:
        return {id(event): place for place, event in enumerate(self.events)}


@dataclass
class History(Ordered[AnyEvent]):
    """Events in the order in which they happened, with the views that rules need."""

    @cached_property
    def invokes(self) -> dict[str, Invoke]:
        """Operation -> its (only) invocation."""
        return {event.operation: event for event in self.events if isinstance(event, Invoke)}

    @cached_property
    def operation_of(self) -> dict[Origin, Invoke]:
        """Message -> the invocation that sent it."""
        return {
            Origin(invoke.producer, invoke.first + index): invoke
            for invoke in self.invokes.values()
            for index in range(invoke.count)
        }

    @cached_property
    def faults(self) -> list[tuple[int, Fault]]:
        """The faults with their places in the order."""
        return [(place, event) for place, event in enumerate(self.events) if isinstance(event, Fault)]

    @cached_property
    def final(self) -> dict[str, list[Read]]:
        """Partition -> the final reading, in the order in which it was read."""
        reads: dict[str, list[Read]] = defaultdict(list)
        for event in self.events:
            if isinstance(event, Read) and event.final:
                reads[event.partition].append(event)
        return reads

    def oks(self) -> Iterator[tuple[Invoke, Ok]]:
        """Every acknowledgement with its invocation."""
        for event in self.events:
            if isinstance(event, Ok) and event.operation in self.invokes:
                yield self.invokes[event.operation], event

    def may_be_lost(self, durability: str, since: AnyEvent) -> bool:
        """Tell whether a fault after `since` may have taken what is durable in this sense only."""
        place = self.place(since)
        return any(at > place and fault.kind not in SURVIVES[durability] for at, fault in self.faults)


Rule = Callable[[History], Iterator[Violation]]


def nothing_lost(history: History) -> Iterator[Violation]:
    """What was acknowledged or shown is at its offset after every fault that its durability survives."""
    stored = {(name, read.offset): origin_of(read.value) for name, reads in history.final.items() for read in reads}
    starts = {event.partition: event.start for event in history.events if isinstance(event, Bounds)}
    for partition, offset, wanted, how in _promised(history):
        found = stored.get((partition, offset))
        if found != wanted and offset >= starts.get(partition, 0):  # below the start, retention removed it
            yield Violation("nothing_lost", f"{partition}@{offset}: {how} {wanted}, found {found}")


def _promised(history: History) -> Iterator[tuple[str, int, Origin, str]]:
    """Every place where a message must be at the end, and who said so."""
    for invoke, ok in history.oks():
        if not history.may_be_lost(invoke.durability, since=invoke):
            for index, offset in enumerate(ok.offsets):
                yield ok.partition, offset, Origin(invoke.producer, invoke.first + index), "acknowledged"
    for event in history.events:
        if isinstance(event, Read) and not event.final:
            origin = origin_of(event.value)
            invoke = history.operation_of.get(origin) if origin else None
            if origin and invoke and not history.may_be_lost(invoke.durability, since=event):
                yield event.partition, event.offset, origin, "shown"


def nothing_invented(history: History) -> Iterator[Violation]:
    """Every value read was sent by somebody, with this key and priority, and was not refused."""
    refused = {event.operation for event in history.events if isinstance(event, Fail)}
    for read in history.events:
        if not isinstance(read, Read):
            continue
        where = f"{read.partition}@{read.offset}"
        origin = origin_of(read.value)
        invoke = history.operation_of.get(origin) if origin else None
        if invoke is None:
            yield Violation("nothing_invented", f"{where}: a value that nobody sent: {read.value!r:.80}")
        elif invoke.operation in refused:
            yield Violation("nothing_invented", f"{where}: {origin} was refused and is stored all the same")
        elif (read.key, read.priority) != (invoke.key, invoke.priority):
            sent, got = (invoke.key, invoke.priority), (read.key, read.priority)
            yield Violation("nothing_invented", f"{where}: {origin} was sent with {sent}, read with {got}")


def nothing_twice(history: History) -> Iterator[Violation]:
    """A message is stored at one place only, however often its batch was repeated."""
    seen: dict[Origin, str] = {}
    for partition, reads in history.final.items():
        for read in reads:
            origin, where = origin_of(read.value), f"{partition}@{read.offset}"
            if origin is not None and seen.setdefault(origin, where) != where:
                yield Violation("nothing_twice", f"{origin} is at {seen[origin]} and at {where}")


def offsets_dense(history: History) -> Iterator[Violation]:
    """The final reading gives every offset of [start, end) once and in order."""
    for bounds in {e.partition: e for e in history.events if isinstance(e, Bounds)}.values():
        found = [read.offset for read in history.final.get(bounds.partition, [])]
        if found != list(range(bounds.start, bounds.end)):
            gap = next((f"{a} then {b}" for a, b in pairwise(found) if b != a + 1), f"{found[:1]}..{found[-1:]}")
            said = f"{bounds.partition} holds [{bounds.start}, {bounds.end})"
            yield Violation("offsets_dense", f"{said}, {len(found)} were read: {gap}")


def values_fixed(history: History) -> Iterator[Violation]:
    """A value that was seen at an offset, or acknowledged there, is the only one that is ever seen there.

    What a fault took may be followed by another value at that offset, so the promise is for pairs of
    sightings without such a fault between them.
    """
    latest: dict[tuple[str, int], tuple[AnyEvent, Origin | bytes | None]] = {}
    for event, partition, offset, value in _sightings(history):
        before = latest.get((partition, offset))
        if before is not None and before[1] != value:
            invoke = history.operation_of.get(before[1]) if isinstance(before[1], Origin) else None
            if not history.may_be_lost(invoke.durability if invoke else "synced", since=before[0]):
                said = f"{partition}@{offset} was {before[1]!r:.60}, then {value!r:.60}"
                yield Violation("values_fixed", said)
        if before is None or before[1] != value or history.place(event) > history.place(before[0]):
            latest[partition, offset] = (event, value)


def _sightings(history: History) -> Iterator[tuple[AnyEvent, str, int, Origin | bytes | None]]:
    """Every (event, partition, offset, value) that somebody was told.

    An acknowledgement counts from its invocation on: the broker may have decided it at any time since.
    """
    for event in history.events:
        if isinstance(event, Read):
            yield event, event.partition, event.offset, origin_of(event.value) or event.value
        elif isinstance(event, Ok) and event.operation in history.invokes:
            invoke = history.invokes[event.operation]
            for index, offset in enumerate(event.offsets):
                yield invoke, event.partition, offset, Origin(invoke.producer, invoke.first + index)


def order_kept(history: History) -> Iterator[Violation]:
    """Per producer, key and priority, send order is offset order."""
    for partition, reads in history.final.items():
        last: dict[tuple[str, str | None, int], tuple[int, int]] = {}
        for read in sorted(reads, key=lambda read: read.offset):
            origin = origin_of(read.value)
            if origin is None:
                continue
            lane = (origin.producer, read.key, read.priority)
            before = last.get(lane)
            if before is not None and before[0] > origin.sequence:
                said = f"its {before[0]} is at {before[1]}, its {origin.sequence} at {read.offset}"
                yield Violation("order_kept", f"{partition}, {origin.producer}: {said}")
            last[lane] = (origin.sequence, read.offset)


def repeats_agree(history: History) -> Iterator[Violation]:
    """Every acknowledgement of one batch names the same places, one for each message, in order."""
    told: dict[str, Ok] = {}
    for invoke, ok in history.oks():
        before = told.get(ok.operation, ok)
        lost = history.may_be_lost(invoke.durability, since=invoke)
        if (before.partition, before.offsets) != (ok.partition, ok.offsets) and not lost:
            was, now = (f"{event.partition}@{event.offsets}" for event in (before, ok))
            yield Violation("repeats_agree", f"{ok.operation} was acknowledged at {was}, then at {now}")
        if len(ok.offsets) != invoke.count or any(b <= a for a, b in pairwise(ok.offsets)):
            said = f"{invoke.count} messages, acknowledged at {ok.offsets}"
            yield Violation("repeats_agree", f"{ok.operation}: {said}")
        told[ok.operation] = ok


def old_epochs_refused(history: History) -> Iterator[Violation]:
    """Once a producer's later epoch was acknowledged, nothing sent afterwards under an earlier one is."""
    raised: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for invoke, ok in history.oks():
        raised[invoke.producer].append((history.place(ok), invoke.epoch))
    for invoke, _ok in history.oks():
        sent = history.place(invoke)
        newer = [epoch for place, epoch in raised[invoke.producer] if place < sent and epoch > invoke.epoch]
        if newer:
            said = f"epoch {invoke.epoch} of {invoke.producer} was accepted after epoch {max(newer)}"
            yield Violation("old_epochs_refused", f"{invoke.operation}: {said}")


RULES: tuple[Rule, ...] = (
    nothing_lost,
    nothing_invented,
    nothing_twice,
    offsets_dense,
    values_fixed,
    order_kept,
    repeats_agree,
    old_epochs_refused,
)


def violations(history: History, rules: Iterable[Rule] = RULES) -> list[Violation]:
    """Return every violation of every rule; an empty list means that the history is a good one."""
    return [violation for rule in rules for violation in rule(history)]
