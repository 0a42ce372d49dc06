"""The rules that have no member in them: the message log grows, loses its ends and is damaged, brokers crash and start,
groups are reset."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.broker.delivery.driver import SECOND, VISIBILITY_US, Partition
from tests.broker.delivery.reference import MAX_ATTEMPTS, Reference, limit_of, wait_of

from tidelog.broker.delivery import freezing
from tidelog.broker.delivery.acquiring import damaged
from tidelog.broker.delivery.backoff import Backoff, BackoffKind, RetryPolicy
from tidelog.broker.delivery.offset_set import OffsetSet
from tidelog.broker.delivery.queue_state import QueueState
from tidelog.broker.storage.fold import Freezing, Section

GROUPS = (1, 2)
KEEPING = 2
"""The group that has dead letters."""

GROUPS_OWN = RetryPolicy(MAX_ATTEMPTS, Backoff(BackoffKind.EXPONENTIAL, wait_of(1), wait_of(3), 2.0, 0.0))
ONCE = RetryPolicy(1, GROUPS_OWN.backoff)


def policies(offsets: OffsetSet) -> list[tuple[OffsetSet, RetryPolicy]]:
    """Every fifth message has its own."""
    own = OffsetSet([at for at in offsets if limit_of(at) == 1])
    return [(part, policy) for part, policy in ((own, ONCE), (offsets - own, GROUPS_OWN)) if part]


def reference(group: int, begin: int, end: int) -> Reference:
    """Return what a group is to be when it begins."""
    return Reference(begin, end, keeps=group == KEEPING)


@dataclass
class Life:
    """A group since it began or was reset."""

    generation: int
    epoch: int
    begin: int
    is_to_be: Reference


@dataclass
class Snapshot:
    """What was frozen after so many batches, and for which messages a wait was over by then."""

    stored: int
    pack: Callable[[], Sequence[Section]]
    over: dict[int, set[tuple[int, int]]]


class LogMachine(RuleBasedStateMachine):
    """A partition and what a crash may leave of it, with a reference for each of its groups."""

    @initialize(end=st.integers(5, 60))
    def begin(self, end: int) -> None:
        self.partition = Partition(policies, end, keeping=[KEEPING])
        self.groups = {group: Life(1, 1, 0, reference(group, 0, end)) for group in GROUPS}
        for group in GROUPS:
            self.partition.state(group)
        self.leases: list[tuple[int, int]] = []
        self.is_durable()

    def is_durable(self) -> None:
        """What a start found is not lost any more."""
        self.floor, self.messages_floor = len(self.partition.stored), self.partition.end
        self.history = {self.floor: pickle.dumps(self.groups)}
        self.snapshots = [Snapshot(0, list, {group: set() for group in GROUPS})] if not self.floor else []

    def state(self, group: int) -> QueueState:
        return self.partition.fold.states[group]

    def clock(self, life: Life) -> Reference:
        """Return the reference of a group, told the time."""
        life.is_to_be.wall, life.is_to_be.mono = self.partition.wall_us, self.partition.monotonic_us
        return life.is_to_be

    def recorded(self) -> None:
        self.history[len(self.partition.stored)] = pickle.dumps(self.groups)

    def wake(self) -> None:
        for group, life in self.groups.items():
            self.state(group).wake(self.partition.monotonic_us)
            self.clock(life).wake()

    # -- the message log ---------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 40))
    def publish(self, count: int) -> None:
        self.partition.publish(count)
        for life in self.groups.values():
            life.is_to_be.end = self.partition.end

    @precondition(lambda self: self.leases)
    @rule(part=st.floats(0, 1))
    def remove_by_retention(self, part: float) -> None:
        self.partition.start += round((self.partition.end - self.partition.start) * part / 2)
        for group, life in self.groups.items():
            self.state(group).clip_below(self.partition.start)
            life.is_to_be.clip(self.partition.start, self.partition.end)

    @precondition(lambda self: self.leases)
    @rule(part=st.floats(0, 1), count=st.integers(1, 3))
    def find_damage(self, part: float, count: int) -> None:
        start = self.partition.start + round((self.partition.end - self.partition.start) * part)
        for group, life in self.groups.items():
            first, last = max(start, life.is_to_be.begin), min(start + count, self.partition.end)
            if first < last:
                self.partition.record(damaged(group, life.generation, [(first, last)]))
                life.is_to_be.damage(first, last)
                self.recorded()

    # -- starts ------------------------------------------------------------------------------------------------------

    @rule(at_once=st.booleans())
    def take_a_snapshot(self, at_once: bool) -> None:
        """Hold on to both groups, at once or when something happens to them."""
        self.pack_the_snapshot()
        over = {
            group: {(at, one.release) for at, one in life.is_to_be.every() if one.release and one.state == "available"}
            for group, life in self.groups.items()
        }
        with patch.object(freezing, "HELD_AT_ONCE", freezing.HELD_AT_ONCE if at_once else 0):
            pack = self.partition.fold.freeze()
        self.snapshots.append(Snapshot(len(self.partition.stored), pack, over))

    @rule()
    def pack_the_snapshot(self) -> None:
        """End the last snapshot, so that the next is made of what did not change since."""
        last = self.snapshots[-1] if self.snapshots else None
        if last is not None and isinstance(last.pack, Freezing):
            while not last.pack.is_held:
                last.pack.hold_more()
            sections = last.pack()
            last.pack = lambda: sections

    @precondition(lambda self: len(self.partition.stored) > self.floor)
    @rule(
        back=st.sampled_from([0, 0, 0, 1, 2, 5]),
        lost=st.sampled_from([0, 0, 0, 1, 10, 60]),
        down=st.sampled_from([0, 1, 3, 100]),
        latest=st.booleans(),
    )
    def crash(self, back: int, lost: int, down: int, latest: bool) -> None:
        """Keep any prefix of both logs that was not known to be durable, and start from any snapshot of it."""
        self.pack_the_snapshot()
        partition = self.partition
        stored = max(self.floor, len(partition.stored) - back)
        end = max(self.messages_floor, partition.start, partition.end - lost)
        usable = [one for one in self.snapshots if one.stored <= stored]
        snapshot = usable[-1 if latest else 0] if usable else Snapshot(0, list, {group: set() for group in GROUPS})
        partition.crash(stored=stored, end=end, snapshot=(snapshot.stored, snapshot.pack()), down_us=down * SECOND)
        recovered: dict[int, Life] = pickle.loads(self.history[stored])
        for group, life in self.groups.items():
            begin = min(life.begin, partition.bound(life.epoch))
            is_same = recovered[group].generation == life.generation
            life.is_to_be = recovered[group].is_to_be if is_same else reference(group, begin, end)
            life.is_to_be.clip(partition.start, end)
            partition.state(group, life.generation, begin).clip_below(partition.start)
            over = snapshot.over[group]
            self.clock(life).restart(VISIBILITY_US, over)
        self.wake()
        self.is_durable()

    @precondition(lambda self: len(self.partition.stored) > self.floor)
    @rule(lost=st.sampled_from([0, 1, 10, 60]))
    def reopen(self, lost: int) -> None:
        """The message log alone is opened anew, in a later epoch, without what was not durable."""
        partition = self.partition
        partition.end = max(self.messages_floor, partition.start, partition.end - lost)
        partition.epoch += 1
        partition.fold.enter_epoch(partition.epoch)
        self.messages_floor = partition.end
        self.recorded()
        for stored, then in self.history.items():
            groups: dict[int, Life] = pickle.loads(then)
            for life in [*groups.values(), *self.groups.values()]:
                life.is_to_be.clip(partition.start, partition.end)
            self.history[stored] = pickle.dumps(groups)

    @rule(group=st.sampled_from(GROUPS), part=st.floats(0, 1))
    def reset(self, group: int, part: float) -> None:
        partition, life = self.partition, self.groups[group]
        begin = partition.start + round((partition.end - partition.start) * part)
        self.groups[group] = Life(life.generation + 1, partition.epoch, begin, reference(group, begin, partition.end))
        partition.state(group, life.generation + 1, begin)
        self.leases = [(which, lease) for which, lease in self.leases if which != group]
