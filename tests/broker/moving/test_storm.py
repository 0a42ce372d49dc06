"""Random lives of what two groups give up: rejected, redriven, killed, without power, with logs that are fenced and
reopened; after each fault there is one more copy for each message that became a dead letter, and none else."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

from tests.helpers.broker_core import SECOND, Core, batch, model
from tests.helpers.giving_up import GivingUp, letter_settings
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.delivery.events import Event, Kind
from tidelog.broker.delivery.offset_set import OffsetSet, packed_of
from tidelog.protocol.messages import Settling

GROUPS = ("g", "h")
MESSAGES = 30
FAULTS = ("none", "kill", "power", "crash in a step", "target fenced", "records fenced", "target deleted")


class Life:
    """One life of a broker, over all its processes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.core = Core(PowerLossFiles())
        orders = self.core.create("orders").partition(0)
        for at in range(0, MESSAGES, 5):
            self.core.produce(orders, batch(*(b"%d" % number for number in range(at, at + 5))))
        self.core.create("orders.dlq")
        for name in GROUPS:
            self.giving.group(name, letter_settings(max_attempts=1_000))
        self.core.advance(3 * SECOND)
        self.happened: Counter[str] = Counter()

    @property
    def giving(self) -> GivingUp:
        """The groups as they are now."""
        return GivingUp(self.core)

    def dead(self) -> set[tuple[str, int]]:
        """What is dead-lettered."""
        found: set[tuple[str, int]] = set()
        for name in GROUPS:
            state = self.giving.part(name).state
            found |= {(name, offset) for offset in (() if state is None else state.dead_lettered)}
        return found

    def copies(self) -> Counter[tuple[str, int]]:
        """How many copies there are."""
        letters = self.giving.letters()
        return Counter((copy.said("dlq.group").removeprefix("default/"), copy.origin[1]) for copy in letters)

    def give_up(self) -> None:
        """Let both groups reject some of what there is, and the syncs of that come as far as they come."""
        giving = self.giving
        for name in GROUPS:
            held = giving.take(name)
            some = [offset for offset in sorted(held) if self.rng.random() < 0.4]
            if some:
                giving.ask(name, giving.items(held, Settling.REJECT, some))
            if self.rng.random() < 0.5 and self.core.begin_round():
                self.core.finish_round()
        for _ in range(self.rng.randrange(5)):
            if self.core.begin_round():
                self.core.finish_round()

    def redrive(self) -> None:
        """Bring some of the dead letters back."""
        for name in GROUPS:
            back = OffsetSet(offset for group, offset in self.dead() if group == name and self.rng.random() < 0.5)
            if back:
                ledger = self.giving.part(name).ledger
                ledger.append([Event(Kind.REDRIVEN, ledger.group.id, ledger.generation, packed_of(back))])
        self.core.advance(3 * SECOND)

    def suffer(self, fault: str) -> None:
        """Let something happen, and be mended."""
        self.happened[fault] += 1
        core, files = self.core, model(self.core)
        match fault:
            case "kill":
                self.core = core.next_process(files.kill())
            case "power":
                self.core = core.next_process(files.crash(self.rng))
            case "crash in a step":
                files.crash_at(self.rng.randrange(1, 30), self.rng)
                with suppress(Crashed):  # it may be over before
                    core.advance(3 * SECOND)
                self.core = core.next_process(files.kill() if self.rng.random() < 0.5 else files.crash(self.rng))
            case "target fenced" | "records fenced":
                name = "default/orders.dlq" if fault == "target fenced" else "default/orders"
                topic = core.topics.find(name)
                if topic is None:
                    return  # it was deleted, and nothing was given up since
                path = f"{topic.id}-0/{'messages' if fault == 'target fenced' else 'delivery'}/0"
                files.fail_syncs(lambda synced: path in synced)
                core.advance(self.rng.randrange(1, 5) * SECOND)
                files.fail_syncs(None)
                self.happened["failed syncs"] += files.failed_syncs
                core.wait(core.topics.reopen(name))
            case "target deleted" if core.topics.find("default/orders.dlq") is not None:
                deleted = core.topics.delete("default/orders.dlq")
                if core.begin_round():
                    core.finish_round()
                core.wait(deleted)
            case _:
                pass


def live(seed: int) -> Counter[str]:
    """Give up, suffer and redrive six times in a row; what happened."""
    life = Life(seed)
    for _ in range(6):
        dead, copies = life.dead(), life.copies()
        fault = life.rng.choice(FAULTS)
        life.give_up()
        life.suffer(fault)
        life.core.advance(70 * SECOND)
        for name in GROUPS:
            part = life.giving.part(name)
            assert part.state is not None
            part.state.check()
            assert (len(part.state.moves), part.letters.problem) == (0, None), (seed, fault)
        new = life.copies() if fault == "target deleted" else life.copies() - copies
        assert max(new.values(), default=1) == 1, (seed, fault)
        if fault == "target deleted":
            assert set(new) <= life.dead(), seed
        else:
            assert set(new) == life.dead() - dead, (seed, fault)
        life.redrive()
    return life.happened


def test_in_any_life_there_is_one_copy_for_each_time_that_a_message_was_given_up() -> None:
    """Forty lives, in which every fault happens, the syncs that are to fail do, and hundreds of copies are made."""
    happened: Counter[str] = Counter()
    for seed in range(40):
        happened += live(seed)
    assert {*FAULTS, "failed syncs"} <= happened.keys()
    assert happened["failed syncs"] > 10
