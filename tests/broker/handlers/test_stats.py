"""Counters that are more than a reply holds, and that take more than a turn of the loop to read."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.lane_core import begin, publish
from tests.helpers.queue_core import QueueCore

from tidelog.broker import page_room, turns
from tidelog.protocol.messages import GroupStart, Stats, StatsPlace, StatsReply

BACKLOG = "tidelog_queue_backlog_messages"


def with_groups(count: int, partitions: int = 1) -> QueueCore:
    """A core with so many groups, that read one topic with a message in each partition."""
    core = QueueCore()
    topic = core.create("orders", partitions)
    for index in range(partitions):
        core.produce(topic.partition(index), batch(b"x"))
    for number in range(count):
        make(core, f"g{number}")
    return core


def make(core: QueueCore, name: str) -> None:
    """Make a group."""
    core.wait(core.groups.create(f"default/{name}", ["default/orders"], start=GroupStart("earliest")))


def ask(core: QueueCore, place: StatsPlace | None) -> StatsReply:
    """Return one reply, read back from its bytes."""
    reply = core.door().ask(Stats(place)).message()
    assert isinstance(reply, StatsReply)
    return reply


def backlogs(reply: StatsReply) -> dict[str, int | float]:
    """The backlogs in a reply by group."""
    labels = {name.removeprefix(BACKLOG): value for name, value in reply.values.items() if name.startswith(BACKLOG)}
    return {label[8:-2]: value for label, value in labels.items()}


def test_counters_of_many_groups_are_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """By group, in order of names; one that is deleted meanwhile is left out, one that is made is told if its name is
    behind the place. Who names no place gets all."""
    monkeypatch.setattr(page_room, "PAGE_BYTES", 700)
    core = with_groups(5, partitions=2)
    first = ask(core, StatsPlace())
    assert (backlogs(first), first.place) == ({"g0": 2, "g1": 2}, StatsPlace("default/g2"))
    core.wait(core.groups.delete("default/g2"))
    for name in ("g1a", "g3a"):
        make(core, name)
    second = ask(core, first.place)
    assert (backlogs(second), second.place) == ({"g3": 2, "g3a": 2}, StatsPlace("default/g4"))
    last = ask(core, second.place)
    assert (backlogs(last), last.place) == ({"g4": 2}, None)
    assert backlogs(ask(core, None)) == dict.fromkeys(["g0", "g1", "g1a", "g3", "g3a", "g4"], 2)


def test_lanes_of_one_group_are_told_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Topic by topic."""
    monkeypatch.setattr(page_room, "PAGE_BYTES", 1)
    core, _members = begin()
    publish(core, [9, 4])
    ask(core, None)
    core.advance(7 * SECOND)
    first = ask(core, StatsPlace())
    assert first.place == StatsPlace("default/g", "default/orders")
    second = ask(core, first.place)
    lanes = {f'tidelog_queue_lane_available_messages{{group="g",topic="orders",priority="{one}"}}': 1 for one in (9, 4)}
    assert lanes.items() <= second.values.items()
    assert (len(second.values), second.place) == (4, None)


def test_a_turn_of_counting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 groups of 10 partitions, 5 lookups at once: other work goes on between, what comes meanwhile is counted where
    the count has not been, and a group that is deleted is not told."""
    monkeypatch.setattr(turns, "PER_TURN", 5)
    core = with_groups(3, partitions=10)
    core.workers.held = True
    call = core.door().ask(Stats())
    count = 1
    while call.is_pending:
        if count == 2:  # the first group is counted by half
            core.workers.held = False
            waiting, core.workers.waiting = core.workers.waiting, []
            core.produce(core.topic("orders").partition(0), batch(b"y"))
            core.wait(core.groups.delete("default/g2"))
            core.workers.waiting += waiting
            core.workers.held = True
        core.workers.run()
        count += 1
    reply = call.message()
    assert isinstance(reply, StatsReply)
    assert backlogs(reply) == {"g0": 10, "g1": 11}
    assert count >= 5
