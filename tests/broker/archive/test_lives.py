"""Random lives of a broker that archives: whatever happens in whatever order, what was acknowledged is read back."""

from __future__ import annotations

import random

import pytest
from tests.helpers.archiving import SECOND, ArchivingCore
from tests.helpers.broker_core import model
from tests.helpers.object_stores import Died
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.partition import Partition
from tidelog.protocol.messages import OffsetKind

STEPS = 40


class Life:
    """One broker and what it was told to keep."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.core = ArchivingCore(PowerLossFiles(), cache_bytes=self.rng.choice([0, 130_000, 1 << 20]))
        self.core.create("orders")
        self.values: list[bytes] = []
        self.deaths = 0

    @property
    def partition(self) -> Partition:
        """Its only partition."""
        return self.core.topic("orders").partition(0)

    def step(self) -> None:
        """Do one thing by chance; the process may die in it, and another goes on."""
        acts = [self.fill, self.fill, self.expire, self.away, self.back, self.wait, self.plan_death, self.restart]
        try:
            self.rng.choice(acts)()
        except Died:
            self.deaths += 1
            self.restart()

    def fill(self) -> None:
        """Produce some messages."""
        self.values += self.core.fill(self.partition, self.rng.randrange(1, 9), first=len(self.values))

    def expire(self) -> None:
        """Have retention remove what it may."""
        self.core.expire()

    def away(self) -> None:
        """Let the store go away."""
        self.core.store.go_away()

    def back(self) -> None:
        """Let it come back."""
        self.core.store.come_back()

    def wait(self) -> None:
        """Let time pass."""
        self.core.advance(self.rng.randrange(1, 20) * SECOND)

    def plan_death(self) -> None:
        """Have the process die at one of its next steps at the store."""
        self.core.store.dies_at = 2 * len(self.core.store.steps) + self.rng.randrange(20)

    def restart(self) -> None:
        """Kill it, or lose power."""
        disk = model(self.core)
        self.core = self.core.next_archiving(disk.kill() if self.rng.random() < 0.5 else disk.crash(self.rng))

    def check(self) -> None:
        """Read everything back, and from some offsets and times."""
        self.core.store.dies_at = None
        self.core.store.come_back()
        self.core.advance(70 * SECOND)
        self.core.expire()
        assert self.core.read_archived(self.partition) == self.values
        assert self.core.offset_of(self.partition, OffsetKind.EARLIEST).offset == 0
        for offset in self.rng.sample(range(len(self.values) + 1), 3):
            assert self.core.read_archived(self.partition, offset, self.rng.choice([1, 30_000])) == self.values[offset:]
            found = self.core.offset_of(self.partition, OffsetKind.TIMESTAMP, offset * 1_000).offset
            assert found == offset
        entries = self.core.archive.entries(self.core.topic("orders")).result()
        assert [one.base_offset for one in entries[1:]] == [one.end_offset for one in entries[:-1]]
        assert self.partition.start_offset == (entries[-1].end_offset if entries else 0)


@pytest.mark.parametrize("first", [0, 10, 20])
def test_random_lives(first: int) -> None:
    """Kills, power losses, a store that comes and goes, and retention in any order lose, repeat and reorder nothing."""
    deaths = 0
    for seed in range(first, first + 10):
        life = Life(seed)
        life.fill()
        for _ in range(STEPS):
            life.step()
        life.check()
        deaths += life.deaths
    assert deaths >= 3
