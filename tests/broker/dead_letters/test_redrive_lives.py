"""Random lives of dead letters: given up, brought back in place and as new, purged, in processes that go down in the middle
of it. In the end each message was acknowledged once, or purged, and none is lost."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.helpers.broker_core import SECOND, Core, model
from tests.helpers.giving_up import MINUTE, GivingUp
from tests.helpers.power_loss import Crashed, PowerLossFiles
from tests.helpers.redriving import Redriving

from tidelog.protocol.batch import decode_batch
from tidelog.protocol.messages import Settling

COUNT = 12
STEPS = 14
OFTEN = 1_000


class Life:
    """One broker over all of its processes, and what became of each value."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.redriving = Redriving.begin(Core(PowerLossFiles()), COUNT)
        self.acked: Counter[bytes] = Counter()
        self.purged: Counter[bytes] = Counter()
        self.crashes = 0

    @property
    def core(self) -> Core:
        """The process of now."""
        return self.redriving.core

    def values(self, topic: str) -> dict[int, bytes]:
        """Return the value at each offset of a topic."""
        found: dict[int, bytes] = {}
        for data in self.core.read_batches(self.core.topic(topic).partition(0)):
            batch = decode_batch(data)
            found.update(zip(batch.offsets.tolist(), (value or b"" for value in batch.values), strict=True))
        return found

    def settle_some(self, *, all_of_them: bool = False) -> None:
        """Lease what there is; acknowledge some, refuse others."""
        giving: GivingUp = self.redriving.giving
        held = giving.take("g")
        values = self.values("orders")
        good = {offset for offset in held if all_of_them or self.rng.random() < 0.4}
        for what, offsets in ((Settling.ACCEPT, good), (Settling.REJECT, held.keys() - good)):
            if offsets:
                self.core.wait(giving.ask("g", giving.items(held, what, sorted(offsets))))
        self.acked.update(values[offset] for offset in good)
        self.core.advance(3 * SECOND)

    def bring_back(self) -> None:
        """Redrive some of what is pending, or purge it."""
        pending = self.redriving.pending()
        if not pending:
            return
        some = [(one, one + 1) for one in sorted(self.rng.sample(pending, self.rng.randint(1, len(pending))))]
        ranges = [*some[:1]]
        for start, end in some[1:]:
            if ranges[-1][1] == start:
                ranges[-1] = (ranges[-1][0], end)
            else:
                ranges.append((start, end))
        if self.rng.random() < 0.1:
            values = self.values("orders.dlq")
            self.purged.update(values[one] for start, end in ranges for one in range(start, end))
            self.redriving.purge(ranges)
        else:
            self.redriving.redrive(ranges, as_new=self.rng.random() < 0.5, max_redrives=OFTEN)

    def step(self) -> None:
        """Do something; perhaps the process goes down in the middle of bringing back."""
        files = model(self.core)
        if self.rng.random() < 0.5:
            self.settle_some()
            return
        if self.rng.random() < 0.5:
            self.bring_back()
            return
        files.crash_at(self.rng.randint(1, 12), self.rng)
        try:
            self.bring_back()
            self.core.advance(2 * SECOND)
            files.crash_at(1, self.rng)
            self.core.advance(MINUTE)
        except Crashed:
            pass
        self.crashes += 1
        after = files.kill() if self.rng.random() < 0.5 else files.crash(self.rng)
        self.redriving = Redriving(self.core.next_process(after))
        self.core.advance(2 * MINUTE)  # leases of the process before end

    def finish(self) -> None:
        """Bring everything back, and acknowledge it."""
        for _ in range(5):
            while self.redriving.pending():
                self.redriving.redrive(max_redrives=OFTEN)
            self.settle_some(all_of_them=True)


@pytest.mark.parametrize("seed", range(25))
def test_each_message_is_acknowledged_once_or_purged(seed: int) -> None:
    """Nothing is lost, and nothing is delivered again that was acknowledged."""
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.finish()
    every = [b"%d" % at for at in range(COUNT)]
    assert [value for value in every if life.acked[value] > 1] == []
    assert [value for value in every if not life.acked[value] + life.purged[value]] == []
    assert life.redriving.pending() == []


def test_the_lives_go_down_and_end_in_every_way() -> None:
    """Over all seeds processes crashed, messages were purged, redriven often, and published anew."""
    crashes = purged = published = 0
    for seed in range(25):
        life = Life(seed)
        for _ in range(STEPS):
            life.step()
        crashes += life.crashes
        purged += sum(life.purged.values())
        published += len(life.values("orders")) - COUNT
    assert (crashes > 40, purged > 5, published > 40) == (True, True, True), (crashes, purged, published)
