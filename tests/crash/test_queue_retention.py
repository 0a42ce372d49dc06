"""Retention under queue groups: what it takes while it is leased or waits, and what of deliveries it must not take."""

from __future__ import annotations

import dataclasses
import random

import pytest
from tests.helpers.broker_core import DEFAULTS, SECOND, batch
from tests.helpers.payloads import payload
from tests.helpers.power_loss import PowerLossFiles
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, settle, take

from tidelog.protocol.messages import DescribeGroups, DescribeGroupsReply, GroupPartitionInfo, Settling

pytestmark = pytest.mark.crash

KIB = 1 << 10
DAY_US = 86_400 * SECOND
SMALL_SEGMENTS = dataclasses.replace(DEFAULTS, segment_bytes=24 * KIB)


def publish(core: QueueCore, first: int, count: int, size: int = 20) -> None:
    """Publish messages one by one, so that a segment ends where it is full."""
    for at in range(first, first + count):
        core.produce(core.topic("orders").partition(0), batch(payload("p", at, size)))


def standing(core: QueueCore) -> GroupPartitionInfo:
    """Return where the group stands in the partition."""
    call = core.door().ask(DescribeGroups(["default/g"], details=True))
    core.settle()
    reply = call.message()
    assert isinstance(reply, DescribeGroupsReply)
    return reply.groups[0].topics[0].partitions[0]


def restarted(core: QueueCore, how: str) -> QueueCore:
    """Start again, or go on."""
    if how == "kill":
        return core.after_kill()
    return core.after_power_loss(random.Random(3)) if how == "power" else core


@pytest.mark.parametrize("how", ["running", "kill", "power"])
def test_retention_takes_what_is_leased(how: str) -> None:
    """Late settles of removed messages are answered OK, nothing of them is in flight, waits or comes back, the floor
    passes them, and what comes next is delivered."""
    core = QueueCore(PowerLossFiles(), defaults=SMALL_SEGMENTS)
    core.create("orders", 1, {"retention_bytes": 40 * KIB})
    topic_id = core.topic("orders").id
    publish(core, 0, 12)
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    assert len(take(core, member, 12)) == 12
    settle(core, member, Settling.RELEASE, [10], 20 * SECOND)
    (held,) = member.held.values()
    publish(core, 12, 60, size=2_000)
    core.advance(SECOND)
    core.topics.expire()
    core.settle()
    start = core.topic("orders").partition(0).start_offset
    assert 12 < start < 72, "retention took the first segment"
    core = restarted(core, how)
    book.now_us = core.clock.wall_us
    member.connect(core.door())
    settle(core, member, Settling.ACCEPT, [0, 1, 2, 3, 4])
    settle(core, member, Settling.RELEASE, [5])
    settle(core, member, Settling.REJECT, [6])
    assert book.refused == 0
    core.advance(61 * SECOND)  # 7 and 10 come to their time
    for held in [*member.held.values()]:
        member.settle([(held, Settling.RETURN, sorted(held.left), 0)])
    core.settle()
    found = standing(core)
    assert (found.leased, found.waiting, found.suspect) == (0, 0, 0)
    assert found.floor >= start
    assert {core.states(topic_id, offset)["g"].state for offset in range(12)} == {"expired-by-retention"}
    other = member_of(core, book, 2, given=settings())
    assert sorted(take(core, other, 1_000)) == [*range(start, 72)]
    assert held.lease not in other.held


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_acknowledgements_outlive_the_events_that_said_so(power: bool) -> None:
    """The delivery log is kept for seven days, a topic for thirty: what was acknowledged before is not delivered again,
    and what never was is."""
    core = QueueCore(PowerLossFiles())
    core.create("orders", 1, {"retention": 30 * DAY_US})
    publish(core, 0, 30)
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings(visibility_s=3_600))
    take(core, member, 30)
    settle(core, member, Settling.ACCEPT, [offset for offset in range(30) if offset % 3])
    settle(core, member, Settling.RETURN, [*range(0, 30, 3)])
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    for day in range(1, 12):
        core.advance(DAY_US)
        publish(core, 29 + day, 1)
        taken = take(core, member, 100)
        settle(core, member, Settling.RETURN, [offset for offset in taken if offset < 30])
        settle(core, member, Settling.ACCEPT, [29 + day])
        core.topics.expire()
        core.advance(SECOND)
    removed = log.log.start_offset
    core = core.after_power_loss(random.Random(3)) if power else core.after_kill()
    book.now_us = core.clock.wall_us
    core.advance(2 * 3_600 * SECOND)
    other = member_of(core, book, 2, given=settings(visibility_s=3_600))
    assert sorted(take(core, other, 100)) == [*range(0, 30, 3)]
    assert removed > 0, "no event was removed"
