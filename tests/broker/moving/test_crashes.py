"""Crashes between every two steps of a move, by kill -9 and by power loss: each record has exactly one copy at last."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, model
from tests.helpers.giving_up import GivingUp, letter_settings
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.protocol.messages import Settling

Steps = Callable[[Core, GivingUp], None]


def begin(files: PowerLossFiles, durability: str = "synced") -> tuple[Core, GivingUp]:
    """A core with a topic of eight messages in three batches, two groups that read it, and nothing left to sync."""
    core = Core(files)
    orders = core.create("orders", 1, {"durability": durability}).partition(0)
    for values in ((b"0", b"1", b"2"), (b"3",), (b"4", b"5", b"6", b"7")):
        core.produce(orders, batch(*values), durability=3)
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    giving.group("h", letter_settings())
    core.advance(3 * SECOND)
    return core, giving


def give_up(core: Core, giving: GivingUp) -> None:
    """Two groups give up on some of the same messages: at the same moment, then one after the other."""
    for_g, for_h = giving.take("g"), giving.take("h")
    giving.ask("g", giving.items(for_g, Settling.REJECT, [0, 2, 5]))
    giving.ask("h", giving.items(for_h, Settling.REJECT, [2]))
    core.settle()
    giving.ask("g", giving.items(for_g, Settling.REJECT, [3, 6]))
    core.begin_round()  # what is asked meanwhile is in the next one
    giving.ask("h", giving.items(for_h, Settling.REJECT, [0, 7]))
    core.finish_round()
    core.settle()
    core.advance(2 * SECOND)


def finish(core: Core) -> Counter[tuple[str, int]]:
    """Let everybody give up on all that is left, until nothing waits; how many copies there are by group and message."""
    core.advance(3 * SECOND)
    giving = GivingUp(core)
    for name in ("g", "h"):
        core.advance(61 * SECOND)  # leases of the process that went down end
        for _ in range(20):
            held = giving.take(name, 1)
            if not held:
                break
            giving.reject_held(name, held)
        core.advance(5 * SECOND)
        state = giving.part(name).state
        assert state is not None
        assert (len(state.moves), state.moves.intents, len(state.dead_lettered)) == (0, {}, 8)
        assert giving.part(name).letters.problem is None
    return Counter((copy.said("dlq.group"), copy.origin[1]) for copy in giving.letters())


ONE_EACH = {(f"default/{name}", offset): 1 for name in ("g", "h") for offset in range(8)}


def operations_of(steps: Steps, durability: str) -> int:
    """How many operations on files the steps take without a crash."""
    files = PowerLossFiles()
    core, giving = begin(files, durability)
    before = files.operations
    steps(core, giving)
    return files.operations - before


def crashed(steps: Steps, at: int, rng: random.Random, durability: str) -> Core | None:
    """A core that crashed in an operation of the steps; None where there was no such operation."""
    files = PowerLossFiles()
    core, giving = begin(files, durability)
    files.crash_at(at, rng)
    try:
        steps(core, giving)
    except Crashed:
        return core
    return None


@pytest.mark.parametrize("durability", ["synced", "written"])
@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_crash_in_any_step_leaves_one_copy_each(how: str, durability: str) -> None:
    """Killed, or without power, in each operation on a file in turn: whatever was on its way, in the end there is one
    copy for each group and message."""
    count = operations_of(give_up, durability)
    assert count > 40
    fired = 0
    for at in range(1, count + 1):
        rng = random.Random(at)
        core = crashed(give_up, at, rng, durability)
        assert core is not None
        fired += 1
        files = model(core).kill() if how == "kill" else model(core).crash(rng)
        assert finish(core.next_process(files)) == ONE_EACH, f"crash in operation {at}"
    assert fired == count


@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_crash_in_recovery_leaves_one_copy_each(how: str) -> None:
    """The start that looks for copies goes down itself, at a step drawn at random, twice."""
    count = operations_of(give_up, "synced")
    for seed in range(60):
        rng = random.Random(seed)
        core = crashed(give_up, rng.randrange(count // 3, count + 1), rng, "synced")
        assert core is not None
        for _ in range(2):
            files = model(core).kill() if how == "kill" else model(core).crash(rng)
            files.crash_at(rng.randrange(1, 80), rng)
            try:
                core = core.next_process(files)
                core.advance(3 * SECOND)
            except Crashed:
                core.files = files
        files = model(core).kill() if how == "kill" else model(core).crash(rng)
        assert finish(core.next_process(files)) == ONE_EACH, f"seed {seed}"


@pytest.mark.parametrize("how", ["kill", "power"])
def test_ten_thousand_in_one_request_have_one_copy_each_after_a_crash(how: str) -> None:
    """In every tenth operation on a file, of some 160 of a move in ten pieces: others by kill and by power loss."""

    def steps(core: Core, giving: GivingUp) -> None:
        giving.reject("g", range(10_000))
        core.settle()

    def ready(files: PowerLossFiles) -> tuple[Core, GivingUp]:
        core = Core(files)
        orders = core.create("orders").partition(0)
        core.produce(orders, batch(*(b"%d" % number for number in range(10_000))))
        giving = GivingUp(core)
        giving.group("g", letter_settings())
        core.advance(3 * SECOND)
        return core, giving

    files = PowerLossFiles()
    core, giving = ready(files)
    before = files.operations
    steps(core, giving)
    count = files.operations - before
    assert giving.origins() == [*range(10_000)]
    rng = random.Random(7)
    for at in range(2 if how == "kill" else 7, count, 10):
        files = PowerLossFiles()
        core, giving = ready(files)
        files.crash_at(at, rng)
        with pytest.raises(Crashed):
            steps(core, giving)
        core = core.next_process(model(core).kill() if how == "kill" else model(core).crash(rng))
        core.advance(70 * SECOND)
        giving = GivingUp(core)
        while held := giving.take("g", 10_000):  # suspects come in parts
            giving.reject_held("g", held)
        core.advance(3 * SECOND)
        assert giving.origins() == [*range(10_000)], f"crash in operation {at} of {count}"
