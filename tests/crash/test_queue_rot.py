"""Bits that rot in a delivery log while groups work: what it said is known to the last message, or its groups say that it
is not, and nothing is leased until they are reset. Messages are read all the same.
"""

from __future__ import annotations

import random

import msgspec
import pytest
from tests.crash.test_damage import flip, used_files
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.payloads import payload
from tests.helpers.power_loss import PowerLossFiles
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, settle, take

from tidelog.broker.deferred import Deferred
from tidelog.protocol.messages import AcquireReply, MessageStates, MessageStatesReply, Settling
from tidelog.protocol.messages.groups import GroupStart

pytestmark = pytest.mark.crash

FOLDER = "partitions/1-0/delivery"
GROUPS = ("billing", "audit")
MESSAGES = 120
VALUES = [payload("p", number) for number in range(MESSAGES)]
HOUR_S = 3_600
FLIPS = 10
"""Of one log, each on a disk of its own."""

LIVES = 8
WHATS = (Settling.ACCEPT, Settling.RELEASE, Settling.REJECT, *[Settling.RETURN] * 5)

States = dict[tuple[str, int], tuple[str, int]]
"""(group, offset) -> state and attempts."""


class Work:
    """Two groups at work on one partition, and what became of its messages."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.core = QueueCore(PowerLossFiles())
        self.core.produce(self.core.create("orders", 1).partition(0), batch(*VALUES))
        self.book, _events = notebook(self.core)
        self.given = msgspec.structs.replace(settings(visibility_s=HOUR_S, backoff_s=HOUR_S), dead_letter=False)
        self.members = [
            member_of(self.core, self.book, number, group=group, given=self.given)
            for number, group in enumerate(GROUPS, 1)
        ]

    def go_on(self, rounds: int) -> None:
        """Lease and settle by lot; in the end all of it is synced."""
        for _ in range(rounds):
            member = self.rng.choice(self.members)
            take(self.core, member, self.rng.choice((1, 3, 8)))
            for held in self.rng.sample([*member.held.values()], min(2, len(member.held))):
                some = self.rng.sample([*held.left], self.rng.randint(1, len(held.left)))
                settle(self.core, member, self.rng.choice(WHATS), sorted(some))
            self.core.advance(SECOND // 10)
        self.core.advance(3 * SECOND)

    def killed(self) -> PowerLossFiles:
        """Die by kill -9; returns the disk."""
        files = self.core.files
        assert isinstance(files, PowerLossFiles)
        return files.kill()


def states_of(core: QueueCore) -> States:
    """What every group makes of every message."""
    door, topic_id = core.door(), core.topic("orders").id
    found: States = {}
    for offset in range(MESSAGES):
        reply = door.ask(MessageStates(topic_id, 0, offset)).message()
        assert isinstance(reply, MessageStatesReply)
        found.update({(one.group, offset): (one.state, one.attempts) for one in reply.states})
    return found


def problem_of(core: QueueCore, group: str) -> str | None:
    """Why a group gives no leases."""
    found = core.queues.details(core.groups.named(f"default/{group}"))
    assert not isinstance(found, Deferred)
    problem = found.topics[0].partitions[0].problem
    return None if problem is None else problem.error().code


def is_degraded(core: QueueCore, truth: States) -> bool:
    """Hold a broker that started on a damaged disk to what was known before: all of it, or a group that says that it is
    not, leases nothing, and begins anew when it is reset."""
    assert core.read(core.topic("orders").partition(0)) == VALUES
    problems = {problem_of(core, group) for group in GROUPS}
    assert problems in ({None}, {"GROUP_DEGRADED"}), "what rots is of both groups"
    if problems == {None}:
        assert states_of(core) == truth
        return False
    assert "deliveries lost" in core.events
    book, _events = notebook(core)
    for number, group in enumerate(GROUPS, 11):
        call = member_of(core, book, number, group=group).acquire(MESSAGES)
        core.settle()
        reply = call.message()
        assert isinstance(reply, AcquireReply)
        assert (reply.grants, [one.error.error().code for one in reply.errors]) == ([], ["GROUP_DEGRADED"])
    core.wait(core.groups.reset(f"default/{GROUPS[0]}", GroupStart("earliest")))
    assert [problem_of(core, group) for group in GROUPS] == [None, "GROUP_DEGRADED"]
    assert take(core, member_of(core, book, 21, group=GROUPS[0]), MESSAGES) == dict.fromkeys(range(MESSAGES), 0)
    return True


def test_one_bit_while_the_broker_is_down(soak: int) -> None:
    """Wherever it is: in an event, a header, a snapshot, the synced mark."""
    degraded = intact = 0
    for seed in range(2 * soak):
        work = Work(seed)
        work.go_on(50)
        truth, disk = states_of(work.core), work.killed().disk
        assert {state for state, _attempts in truth.values()} >= {"acknowledged", "rejected", "waiting", "leased"}
        for _ in range(FLIPS):
            files = PowerLossFiles(disk.copy())
            flip(files, work.rng.choice(used_files(files, FOLDER)), work.rng)
            was_degraded = is_degraded(work.core.next_process(files), truth)
            degraded += was_degraded
            intact += not was_degraded
    assert degraded > 0
    assert intact > 0


def test_one_bit_under_groups_at_work(soak: int) -> None:
    """They go on as if nothing had happened, for they do not read it; the next start finds it."""
    degraded = intact = 0
    for seed in range(LIVES * soak):
        work = Work(100 + seed)
        rounds = work.rng.choice((4, 20))  # the second is enough for snapshots, which know what rots behind them
        work.go_on(rounds)
        files = work.core.files
        assert isinstance(files, PowerLossFiles)
        before = states_of(work.core)
        flip(files, work.rng.choice([path for path in used_files(files, FOLDER) if path.endswith(".log")]), work.rng)
        assert states_of(work.core) == before
        work.go_on(rounds)
        assert [problem_of(work.core, group) for group in GROUPS] == [None, None]
        truth = states_of(work.core)
        was_degraded = is_degraded(work.core.next_process(work.killed()), truth)
        degraded += was_degraded
        intact += not was_degraded
    assert degraded > 0
    assert intact > 0
