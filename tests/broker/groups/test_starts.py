"""Where queue groups begin, seen by who takes their messages."""

from __future__ import annotations

import random

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.power_loss import PowerLossFiles
from tests.helpers.queue_core import QueueCore, member_of, notebook
from tests.helpers.queue_member import QueueMember

from tidelog.protocol.messages.groups import GroupStart

HOUR = 3_600 * SECOND


def publish(core: QueueCore, *values: bytes, partition: int = 0) -> None:
    """Publish messages in the topic `orders`."""
    core.produce(core.topic("orders").partition(partition), batch(*values))


def begin(partitions: int = 1) -> QueueCore:
    """Return a core over a disk model with a topic."""
    core = QueueCore(PowerLossFiles())
    core.create("orders", partitions)
    return core


def made_at(core: QueueCore, start: GroupStart) -> None:
    """Make the group `g`."""
    core.wait(core.groups.create("default/g", ["default/orders"], start=start))


def opened(core: QueueCore) -> QueueMember:
    """Return a member of the group, whatever start it says."""
    book, _events = notebook(core)
    return member_of(core, book, 1, start="earliest")


def taken(core: QueueCore, member: QueueMember) -> list[tuple[int, int]]:
    """Return the partition and offset of all that a member holds after it asked, and waited a second for something."""
    call = member.acquire(100, max_wait_us=SECOND)
    core.settle()
    core.advance(2 * SECOND)
    call.message()
    member.harvest()
    return sorted((held.partition, offset) for held in member.held.values() for offset in held.left)


def crashed(core: QueueCore, how: str) -> QueueCore:
    """Return the next process after this one ended in some way."""
    match how:
        case "kill":
            after = core.after_kill()
        case "power":
            after = core.after_power_loss(random.Random(1))
        case _:
            after = core.after_stop()
    assert isinstance(after, QueueCore)
    return after


@pytest.mark.parametrize("crash", ["kill", "power", "stop"])
def test_a_start_is_fixed_when_the_group_is_made(crash: str) -> None:
    """Case 33: five messages, a group at latest, a crash, three messages: exactly the three, whatever start is said
    when it is opened again."""
    core = begin()
    publish(core, *[b"old"] * 5)
    made_at(core, GroupStart("latest"))
    opened(core)
    core = crashed(core, crash)
    publish(core, *[b"new"] * 3)
    assert taken(core, opened(core)) == [(0, 5), (0, 6), (0, 7)]


@pytest.mark.parametrize("crash", [False, True])
def test_a_start_at_a_time_to_come(crash: bool) -> None:
    """Case 33: what is published before the time is passed over when the time has come, by when it was appended, and
    all that follows is delivered; a crash in between changes nothing."""
    core = begin()
    publish(core, b"before")
    made_at(core, GroupStart("time", core.clock.wall_us() + HOUR))
    publish(core, b"too", b"early")
    assert taken(core, opened(core)) == []
    if crash:
        core = crashed(core, "power")
        core.advance(600 * SECOND)
        publish(core, b"still", b"early")
        core = crashed(core, "kill")
    member = opened(core)
    core.advance(2 * HOUR)
    publish(core, b"in", b"time")
    first = core.topic("orders").partition(0).visible_offset - 2
    assert taken(core, member) == [(0, first), (0, first + 1)]
    begun = core.groups.named("default/g").begin(core.topic("orders").id, 0)
    assert (begun.offset, begun.not_before_us) == (first, 0)
    core = crashed(core, "kill")
    publish(core, b"later")
    assert taken(core, opened(core)) == [(0, first + 2)]


def test_a_member_that_waits_gets_what_reaches_the_time() -> None:
    """A long poll that began before the time is answered with the first message that is appended at it."""
    core = begin()
    made_at(core, GroupStart("time", core.clock.wall_us() + 20 * SECOND))
    member = opened(core)
    call = member.acquire(10, max_wait_us=60 * SECOND)
    publish(core, b"early")
    core.advance(30 * SECOND)
    assert call.is_pending
    publish(core, b"in time")
    core.settle()
    assert not call.is_pending
    member.harvest()
    assert [offset for held in member.held.values() for offset in held.left] == [1]


def test_what_is_made_later_is_read_from_its_first_message() -> None:
    """Case 36: a running group at latest gets every message of the partitions that are added, also of those published
    before any member asks again."""
    core = begin()
    publish(core, b"old")
    made_at(core, GroupStart("latest"))
    member = opened(core)
    assert taken(core, member) == []
    core.wait(core.topics.alter("default/orders", partitions=3))
    for partition in (1, 2):
        publish(core, b"first", b"second", partition=partition)
    assert taken(core, member) == [(1, 0), (1, 1), (2, 0), (2, 1)]
