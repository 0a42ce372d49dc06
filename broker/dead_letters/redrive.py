"""Bring dead letters back: in place, to the one group that gave up on them, or as new, for all groups.

    read the copies (a worker) -> in place: MOVING in the delivery log of the dead-letter topic, synced: announced
                                            -> REDRIVEN in that of the message's partition, synced
                                            -> RESOLVED in that of the dead-letter topic, synced -> answered
                                  as new:   moved to where they came from, the move's own way

REDRIVEN does nothing to a message that is not dead-lettered (any more). A start resolves the dead letters that were
announced and whose message is back (`begun`); of the others nothing was done, and they are pending as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from ...protocol.errors import TidelogError
from ...protocol.messages import ErrorInfo, RedriveRefusal, RedriveReply
from ..deferred import Deferred
from ..delivery.events import Event, Kind
from ..delivery.offset_set import OffsetSet, packed_of
from ..errors import kept
from ..flow import Flow, awaited
from ..partition import Partition
from .origins import InPlace, Plan
from .pending import IN_PLACE, PendingLetters
from .synced import synced


@dataclass(frozen=True, slots=True)
class Sent:
    """Which dead letters were published anew, and durably; `why` the others were not, None where they were not pending
    any more. `going_on` are announced, and will be published once that is over."""

    letters: OffsetSet
    why: TidelogError | None = None
    going_on: OffsetSet = field(default_factory=OffsetSet)


class Anew(Protocol):
    """Publishes dead letters to where they came from, by the rule for moving."""

    def __call__(self, source: Partition, letters: OffsetSet, target: Partition) -> Deferred[Sent]:
        """Move pending ones; resolves with those of which the copy is durable and that are pending no more."""
        ...


@dataclass(slots=True)
class Redriven:
    """What became of dead letters; all offsets are theirs."""

    in_place: OffsetSet = field(default_factory=OffsetSet)
    as_new: OffsetSet = field(default_factory=OffsetSet)
    passed: OffsetSet = field(default_factory=OffsetSet)
    refused: list[tuple[OffsetSet, TidelogError]] = field(default_factory=list[tuple[OffsetSet, TidelogError]])

    def reply(self) -> RedriveReply:
        """Return it as it is answered."""
        refused = [RedriveRefusal(packed_of(offsets), ErrorInfo.of(error)) for offsets, error in self.refused]
        return RedriveReply(packed_of(self.in_place), packed_of(self.as_new), packed_of(self.passed), refused)


def redrive_in_place(plan: Plan, pending: PendingLetters, intent: int, done: Redriven) -> Flow[None]:
    """Announce it, make messages available to their groups again, then resolve their dead letters. What cannot be
    recorded for one group or partition is refused; what keeps it from being recorded of the dead letters is raised."""
    if not plan.in_place:
        return
    yield pending.intend(OffsetSet.union(*(place.letters for place in plan.in_place.values())), intent, IN_PLACE)
    waits: list[tuple[InPlace, Deferred[None]]] = []
    for place in plan.in_place.values():
        try:
            waits.append((place, record(place, Kind.REDRIVEN)))
        except TidelogError as error:
            done.refused.append((place.letters, kept(error)))
    back = OffsetSet()
    for place, wait in waits:
        try:
            yield wait
        except TidelogError as error:
            done.refused.append((place.letters, kept(error)))
        else:
            back |= place.letters
    if back:
        try:
            yield pending.resolve(back)
        except TidelogError:
            if not pending.is_gone:  # else nothing of them is pending any more
                raise
        done.in_place |= back


def give_up_for_good(places: Iterable[InPlace]) -> Flow[None]:
    """Let messages count as dead-lettered no more: their dead letters were purged, or published anew. Where that cannot
    be recorded it is no harm: nothing brings a message back without a pending dead letter."""
    for place in places:
        with suppress(TidelogError):
            yield record(place, Kind.RESOLVED)


def record(place: InPlace, kind: Kind) -> Deferred[None]:
    """Record an event about those messages of a group in one partition that are dead-lettered, be that on record yet or
    not (the others came back before); resolves when all is synced. Where nothing was ever recorded they are available
    as they are."""
    part = place.part
    log, problem = part.partition.delivery.log, part.problem()
    if problem is not None:
        raise problem
    if part.state is None or log is None:
        done: Deferred[None] = Deferred()
        done.resolve(None)
        return done
    offsets = place.given_up()
    if offsets:
        part.record([Event(kind, part.ledger.group.id, part.ledger.generation, packed_of(offsets))])
    return synced(log)


def redrive_as_new(
    source: Partition, find: Callable[[], Partition], letters: OffsetSet, anew: Anew, done: Redriven
) -> Flow[None]:
    """Publish dead letters to where they came from, which `find` returns."""
    try:
        sent = yield from awaited(anew(source, letters, find()))
    except TidelogError as error:
        done.refused.append((letters, kept(error)))
        return
    done.as_new |= sent.letters
    left, why = letters - sent.letters, sent.why
    if why is None:
        done.passed |= left
        return
    going_on = left & sent.going_on
    later = type(why)(f"{why.message}; it is announced, and published by itself once that is over", **why.details)
    done.refused += [(part, error) for part, error in ((left - going_on, why), (going_on, later)) if part]
