"""Two queue groups of a partition through leases, settles, time, damage, retention, crashes and resets, against a plain
reference."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.broker.delivery.comparing import count, counted, expected, seen
from tests.broker.delivery.driver import SECOND, item
from tests.broker.delivery.log_machine import GROUPS, KEEPING
from tests.broker.delivery.move_machine import MoveMachine

from tidelog.broker.delivery.acquiring import choose, choose_suspects
from tidelog.broker.delivery.expiring import expired, leases_due, returned
from tidelog.protocol.errors import LeaseLostError
from tidelog.protocol.messages import SettleError, SettleItem, Settling

WORDS = {what.name.lower(): what for what in Settling}


@dataclass
class Asked:
    """A settle request as it was sent."""

    group: int
    generation: int
    member: int
    number: int
    lease: int
    how: str
    offsets: list[int]
    delay: int | None
    error: str | None


class DeliveryMachine(MoveMachine):
    """Code and reference agree about every message, lease and answer."""

    @initialize()
    def begin_asking(self) -> None:
        self.asked: list[Asked] = []
        self.last_settle: dict[tuple[int, int], int] = {}
        """Of each member of a group."""
        self.may_be_forgotten: dict[tuple[int, int], int] = {}
        """Up to which request: others settled when its last one was long ago. What it settles later brings none back."""

    # -- members -----------------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        group=st.sampled_from(GROUPS),
        member=st.integers(1, 3),
        count=st.sampled_from([1, 5, 12, 40]),
        hows=st.lists(st.sampled_from(["accept", "release", "reject", "return", "suspect"]), min_size=1, max_size=3),
    )
    def work(self, data: st.DataObject, group: int, member: int, count: int, hows: list[str]) -> None:
        """Acquire, and settle some of it in one way or another."""
        self.acquire(group, member, count, 30, counts=False, suspects=data.draw(st.booleans()))
        if self.leases and self.leases[-1][0] == group:
            for how in hows:
                self._settle_some(data, self.leases[-1], how)

    @rule(data=st.data(), member=st.integers(1, 3), count=st.sampled_from([1, 5, 12]))
    def give_up(self, data: st.DataObject, member: int, count: int) -> None:
        """Acquire, refuse some of it, and perhaps go on with their copies."""
        self.acquire(KEEPING, member, count, 30, counts=False, suspects=False)
        if self.leases and self.leases[-1][0] == KEEPING:
            self._settle_some(data, self.leases[-1], "reject")
            self.follow(data)

    @rule(
        group=st.sampled_from(GROUPS),
        member=st.integers(1, 3),
        count=st.sampled_from([1, 2, 5, 12, 40]),
        term=st.sampled_from([5, 30, 60]),
        counts=st.sampled_from([False, False, False, True]),
        suspects=st.booleans(),
    )
    def acquire(self, group: int, member: int, count: int, term: int, counts: bool, suspects: bool) -> None:
        life, state = self.groups[group], self.state(group)
        chosen = (choose_suspects if suspects else choose)(state, self.partition.end, count)
        expected_ = (life.is_to_be.suspects if suspects else life.is_to_be.available)(count)
        assert [*chosen.offsets] == expected_
        if not chosen:
            return
        lease = self.partition.acquire(
            chosen, group=group, generation=life.generation, member=member, duration_us=term * SECOND, counts=counts
        )
        assert lease not in [known for _group, known in self.leases], "a lease id is given once"
        self.clock(life).acquire(lease, member, expected_, term * SECOND, counts=counts)
        self.leases.append((group, lease))
        self.recorded()

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), how=st.sampled_from([*WORDS]))
    def settle(self, data: st.DataObject, how: str) -> None:
        """Settle something of a lease, perhaps not one's own, perhaps one that has ended."""
        self._settle_some(data, data.draw(st.sampled_from(self.leases[-8:])), how)

    def _settle_some(self, data: st.DataObject, whose: tuple[int, int], how: str) -> None:
        group, lease = whose
        life = self.groups[group]
        held, found = life.is_to_be.held(lease), life.is_to_be.leases.get(lease)
        holder = 1 if found is None else found.member
        member = data.draw(st.sampled_from([holder, holder, holder, holder, 0, holder % 3 + 1]))
        parts = [[], held, held[: len(held) // 2 + 1], held[::2], held[-1:], [*held, life.is_to_be.end + 1]]
        offsets = data.draw(st.sampled_from(parts))
        reported = data.draw(st.sampled_from([[], held, held[:1]]))
        delay = data.draw(st.sampled_from([None, None, 0, 5 * SECOND]))
        error = "boom" if how in ("release", "reject") else None
        asked = Asked(group, life.generation, member, len(self.asked) + 1, lease, how, offsets, delay, error)
        self.asked.append(asked)
        self._send(asked, reported)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        """Send a request again, as where its answer was lost."""
        asked = data.draw(st.sampled_from(self.asked[-6:]))
        if asked.generation == self.groups[asked.group].generation:
            self._send(asked, [])

    def _send(self, asked: Asked, reported: list[int]) -> None:
        life, partition = self.groups[asked.group], self.partition
        was, before = pickle.dumps(self.clock(life)), len(partition.stored)
        results = partition.settle(
            _item(asked),
            member=asked.member,
            number=asked.number,
            handed=[(asked.lease, reported)] if reported else [],
            group=asked.group,
            generation=life.generation,
        )
        is_to_be = self.clock(life)
        is_to_be.hand_over(asked.member, asked.lease, reported)
        what = (asked.how, asked.offsets, asked.delay, asked.error)
        is_done = is_to_be.settle(asked.member, asked.lease, *what, asked.number)
        if is_done and asked.how == "renew" and asked.lease not in is_to_be.leases:
            pass  # the process that saw it outlived knows
        elif is_done and isinstance(results[0], LeaseLostError) and pickle.dumps(life.is_to_be) == was:
            who = asked.group, asked.member
            is_away = partition.wall_us - self.last_settle.get(who, 0) > 600 * SECOND
            assert is_away or asked.number <= self.may_be_forgotten.get(who, 0), "remembered for ten minutes"
        else:
            assert [*map(type, results)] == [type(None) if is_done else LeaseLostError]
        if len(partition.stored) > before:
            for who, last_us in self.last_settle.items():
                if partition.wall_us - last_us > 600 * SECOND:
                    self.may_be_forgotten[who] = len(self.asked) - 1
            self.last_settle[asked.group, asked.member] = partition.wall_us
            self.recorded()

    @rule(group=st.sampled_from(GROUPS), member=st.integers(1, 3), is_received=st.booleans())
    def lose_a_member(self, group: int, member: int, is_received: bool) -> None:
        """It is fenced, or never received what it was leased."""
        life = self.groups[group]
        for lease in [number for number, held in life.is_to_be.leases.items() if held.member == member]:
            self._end(group, lease) if is_received else self._give_back(group, lease)

    def _end(self, group: int, lease: int) -> None:
        life, state = self.groups[group], self.state(group)
        self.partition.record(
            *expired(state, group, life.generation, state.leases[lease], self.partition.retrying_of(group))
        )
        self.clock(life).expire(lease)
        self.recorded()

    def _give_back(self, group: int, lease: int) -> None:
        life = self.groups[group]
        self.partition.record(returned(group, life.generation, self.state(group).leases[lease]))
        life.is_to_be.give_back(lease)
        self.recorded()

    # -- time --------------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1, 2, 4, 31, 70]))
    def wait(self, seconds: float) -> None:
        self.partition.advance(round(seconds * SECOND))
        for group, life in self.groups.items():
            mono = self.partition.monotonic_us
            due = [lease.id for lease in leases_due(self.state(group), mono)]
            over = [number for number, held in life.is_to_be.leases.items() if held.ends <= mono]
            assert sorted(due) == sorted(over)
            for lease in due:
                self._end(group, lease)
        self.wake()

    @rule(seconds=st.sampled_from([-3600, -5, 5, 3600]))
    def step_the_wall_clock(self, seconds: int) -> None:
        self.partition.wall_us += seconds * SECOND

    # -- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def they_agree(self) -> None:
        for group, life in self.groups.items():
            state, is_to_be = self.state(group), life.is_to_be
            state.check()
            assert state.begin == is_to_be.begin
            found = [seen(state, at) for at in range(is_to_be.begin, is_to_be.end)]
            assert found == [expected(is_to_be, at) for at in range(is_to_be.begin, is_to_be.end)]
            assert {lease.id: lease.deadline_us for lease in state.leases.values()} == {
                number: held.ends for number, held in is_to_be.leases.items()
            }
            dues = [held.ends for held in is_to_be.leases.values()]
            dues += [one.due for _at, one in is_to_be.every() if one.state == "waiting"]
            assert state.next_due_us() == min(dues, default=None)
            assert counted(state, is_to_be.end) == count(is_to_be)


def _item(asked: Asked) -> SettleItem:
    error = None if asked.error is None else SettleError("ValueError", asked.error)
    delay = -1 if asked.delay is None or asked.how != "release" else asked.delay
    duration = asked.delay or 0 if asked.how == "renew" else 0
    return item(WORDS[asked.how], asked.lease, asked.offsets, delay_us=delay, error=error, duration_us=duration)


def test_leases_agree_with_the_reference(soak: int) -> None:
    """Whatever two groups go through, every message, lease, deadline and answer is as the plain reference has it."""
    run_state_machine_as_test(
        DeliveryMachine, settings=settings(max_examples=60 * soak, stateful_step_count=40, deadline=None)
    )
