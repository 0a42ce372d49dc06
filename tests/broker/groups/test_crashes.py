"""Every flow of groups over a disk that loses power: all of it holds, or none, and what was answered holds."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.helpers.broker_core import Core, batch, model
from tests.helpers.disk_model import Loss
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.deferred import Deferred
from tidelog.broker.groups import Group, Joined
from tidelog.broker.meta import Begins
from tidelog.protocol.messages import GroupSettings, GroupStart

SEEDS = range(8)

Operation = Callable[[Core], Deferred[Joined] | Deferred[Group] | Deferred[Begins] | Deferred[int]]

Picture = tuple[object, ...]
"""What a test sees of all groups."""


def before(files: PowerLossFiles | None = None) -> Core:
    """A broker with two topics, and a group that reads one of them."""
    core = Core(files or PowerLossFiles())
    core.create("orders", 2)
    core.create("refunds", 3)
    core.produce(core.topic("orders").partition(1), batch(b"a", b"b"))
    core.produce(core.topic("refunds").partition(2), batch(b"c"))
    core.wait(core.groups.create("default/g", ["default/orders"], start=GroupStart("latest")))
    return core


def picture(core: Core) -> Picture:
    """All groups with their settings, generations and begins, and what ids are still free."""
    groups = core.groups.all()
    recorded = [core.topics.meta.state.groups.by_id[group.id] for group in groups]
    assert [group.record for group in groups] == recorded, "what is published is what is recorded"
    seen = [(one.name, one.generation, one.given, _offsets(one.record.begins)) for one in groups]
    return core.topics.meta.state.groups.next_id, *seen


def _offsets(begins: Begins) -> dict[int, dict[int, int]]:
    return {topic: {index: begin.offset for index, begin in found.items()} for topic, found in begins.items()}


OPERATIONS: dict[str, Operation] = {
    "create": lambda core: core.groups.create("default/h", ["default/orders", "default/refunds"]),
    "join": lambda core: core.groups.join("default/g", [core.topic("refunds").id]),
    "alter": lambda core: core.groups.alter("default/g", GroupSettings(max_attempts=9)),
    "reset": lambda core: core.groups.reset("default/g", GroupStart("earliest")),
    "delete": lambda core: core.groups.delete("default/g"),
}


def done(core: Core, name: str) -> None:
    """Do an operation, and wait until it is answered."""
    answer = OPERATIONS[name](core)
    core.settle()
    answer.result()


def expected(name: str) -> tuple[Picture, Picture]:
    """What is seen before an operation and after it."""
    core = before()
    old = picture(core)
    done(core, name)
    return old, picture(core)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_crash_before_the_sync_leaves_all_of_it_or_none(name: str) -> None:
    """Nobody was told, so either is right; half of it never is, and what is found holds from then on."""
    old, new = expected(name)
    assert old != new
    seen: set[bool] = set()
    for seed in SEEDS:
        core = before()
        answer = OPERATIONS[name](core)
        assert answer.is_pending
        core = core.after_power_loss(random.Random(seed))
        found = picture(core)
        assert found in (old, new)
        seen.add(found == new)
        assert picture(core.after_power_loss(random.Random(seed))) == found
    assert False in seen, "no power loss took the fact"


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_what_was_answered_holds(name: str, power: bool) -> None:
    """After the answer no crash takes it back, nor a snapshot and a crash."""
    _, new = expected(name)
    core = before()
    done(core, name)
    for _ in range(2):
        if power:
            files = model(core).crash(random.Random(1), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES)
            core = core.next_process(files)
        else:
            core = core.after_kill()
        assert picture(core) == new
        core = core.after_stop()
        assert picture(core) == new


def test_a_failed_sync_answers_nobody_and_serves_nothing_of_it() -> None:
    """The fact may be on the disk or not: until the next start the group is as it was."""
    files = PowerLossFiles()
    core = before(files)
    old = core.groups.all()
    files.fail_syncs(lambda path: path.startswith("meta/"))
    answer = core.groups.reset("default/g", GroupStart("earliest"))
    core.settle()
    assert files.failed_syncs == 1
    assert answer.error is not None
    assert core.groups.all() == old


def test_begins_hold_only_for_what_the_log_kept() -> None:
    """A group begun at the end of a `written` topic whose end the power takes begins where the log ends then."""
    core = Core(PowerLossFiles())
    topic = core.create("orders", 1, {"durability": "written"})
    core.produce(topic.partition(0), batch(b"a"))
    core.settle()
    core.produce(topic.partition(0), batch(b"b", b"c"), durability=2)
    group = core.wait(core.groups.create("default/g", ["default/orders"], start=GroupStart("latest"))).group
    assert group.begin(topic.id, 0).offset == 3
    files = model(core).crash(random.Random(3), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES)
    core = core.next_process(files)
    partition = core.topic("orders").partition(0)
    lost_from = partition.visible_offset
    assert lost_from < 3, "the power took nothing"
    core.produce(partition, batch(b"d", b"e", b"f", b"g"))
    begin = core.groups.named("default/g").begin(topic.id, 0)
    assert partition.log.clamp(begin.epoch, begin.offset) == lost_from
