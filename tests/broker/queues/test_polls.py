"""What polls cost: partitions are looked at when they say that something changed, not for each poll."""

from __future__ import annotations

import errno
from unittest.mock import patch

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.queues.group_partition import GroupPartition
from tidelog.broker.storage.files import Files, MemoryFiles
from tidelog.protocol.messages import AcquireReply, GroupSettings, Settling

MINUTE = 60 * SECOND
PARTITIONS = 100
FEW = 20
"""Looks at partitions that one poll may take; there are several at the one that it is served by."""


class Looks:
    """Counts how often partitions are asked for what they have, or what keeps them from giving it."""

    def __init__(self) -> None:
        self.count = 0

    def taken(self) -> int:
        """Return how many there were since the last time."""
        count, self.count = self.count, 0
        return count


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    """Count them."""
    found = Looks()
    for name in ("has_available", "has_suspects", "problem"):
        known = vars(GroupPartition)[name]

        def ask(part: GroupPartition, known: object = known) -> object:
            found.count += 1
            assert callable(known)
            return known(part)

        monkeypatch.setattr(GroupPartition, name, ask)
    known_property = vars(GroupPartition)["is_preparing"]

    def is_preparing(part: GroupPartition) -> object:
        found.count += 1
        return known_property.fget(part)

    monkeypatch.setattr(GroupPartition, "is_preparing", property(is_preparing))
    return found


def begin(
    *, partitions: int = PARTITIONS, given: GroupSettings | None = None, files: Files | None = None
) -> tuple[QueueCore, QueueMember]:
    """A core with a topic of many partitions, and a member of a group that reads it."""
    core = QueueCore(files or MemoryFiles())
    core.create("orders", partitions)
    book, _events = notebook(core)
    return core, member_of(core, book, 1, given=given or settings())


def publish(core: QueueCore, partition: int, count: int = 1) -> None:
    """Store so many messages in one batch."""
    core.produce(core.topic("orders").partition(partition), batch(*[b"%d" % number for number in range(count)]))


def backlog(core: QueueCore, member: QueueMember) -> None:
    """Have a message in every partition, whose delivery log is open."""
    for partition in range(PARTITIONS):
        publish(core, partition, 2)
    while len(take(core, member, 1)) and len(member.held) < PARTITIONS:
        pass
    for held in [*member.held.values()]:
        member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
    core.settle()
    member.harvest()
    assert not member.held


def test_a_poll_that_finds_nothing_looks_at_no_partition(looks: Looks) -> None:
    """Without waiting, and when its wait is over; of a message that came one partition is looked at."""
    core, member = begin()
    assert take(core, member, 1) == {}
    looks.taken()
    assert take(core, member, 1) == {}
    assert looks.taken() == 0
    call = member.acquire(1, max_wait_us=SECOND)
    core.advance(2 * SECOND)
    assert not call.is_pending
    assert looks.taken() == 0
    publish(core, 70)
    assert take(core, member, 1) == {0: 0}
    assert 0 < looks.taken() <= FEW


def test_a_poll_of_a_backlog_looks_at_the_partitions_that_serve_it(looks: Looks) -> None:
    """A hundred have something; one message is asked for."""
    core, member = begin()
    backlog(core, member)
    looks.taken()
    assert len(take(core, member, 1)) == 1
    assert 0 < looks.taken() <= FEW


def test_a_poll_of_a_full_group_looks_at_no_partition(looks: Looks) -> None:
    """As much as may be in flight is: there is nothing to find anywhere."""
    given = GroupSettings(visibility_timeout_us=30 * SECOND, max_in_flight=1_000)
    core, member = begin(given=given)
    backlog(core, member)
    group = core.groups.named("default/g")
    core.wait(core.groups.alter("default/g", GroupSettings(max_in_flight=1)))
    assert core.groups.named("default/g").settings.max_in_flight == 1 != group.settings.max_in_flight
    assert len(take(core, member, 1)) == 1
    looks.taken()
    member.acquire(1)
    core.settle()
    assert looks.taken() <= 1


def test_delivery_logs_that_cannot_be_opened_keep_no_others_from_it() -> None:
    """Of eight partitions five have a folder that cannot be made; the messages of the three others are leased. What is
    reopened is served."""
    files = FaultyFiles(MemoryFiles())
    core, member = begin(partitions=8, files=files)
    faults = [files.fail("make_folder", errno.EIO, path=f"*/1-{one}/delivery", times=None) for one in range(5)]
    for partition in range(8):
        publish(core, partition)
    found = {held for _ in range(4) for held in _partitions(core, member)}
    assert found == {5, 6, 7}
    assert all(fault.fired for fault in faults)
    files.heal()
    assert sorted(core.wait(core.topics.reopen("default/orders"))) == [0, 1, 2, 3, 4]
    found = {held for _ in range(8) for held in _partitions(core, member)}
    assert found == {*range(8)}


def _partitions(core: QueueCore, member: QueueMember) -> set[int]:
    take(core, member, 10)
    return {held.partition for held in member.held.values()}


def test_who_asks_where_nothing_can_be_given_is_told_at_once() -> None:
    """Also when that was so before: an acquire that would wait is answered with what is wrong."""
    files = FaultyFiles(MemoryFiles())
    core, member = begin(partitions=1, files=files)
    publish(core, 0, 3)
    take(core, member, 1)
    files.fail("sync", errno.EIO, path="*/delivery/0*")
    settle_some_refused(core, member)
    for _ in range(2):
        call = member.acquire(1, max_wait_us=MINUTE)
        core.settle()
        reply = call.message()
        assert isinstance(reply, AcquireReply)
        assert [one.error.error().code for one in reply.errors] == ["LOG_FENCED"]


def settle_some_refused(core: QueueCore, member: QueueMember) -> None:
    """Ask for a settle whose sync fails."""
    (held,) = member.held.values()
    member.settle([(held, Settling.ACCEPT, [0], -1)])
    core.settle()


def test_what_is_cold_in_several_places_is_read_in_at_once() -> None:
    """Where the kernel does not say what is in memory a worker is asked once for each acquire, not 32 times; messages
    that came meanwhile are left to the next."""
    core, member = begin(partitions=1)
    for _ in range(5):
        publish(core, 0, 100)
    take(core, member, 500)
    for first in (100, 300):
        settle_some(core, member, Settling.ACCEPT, range(first, first + 100))
    for first in (0, 200, 400):
        settle_some(core, member, Settling.RELEASE, range(first, first + 100), delay_us=0)
    rounds = acquire_where_nothing_is_known(core, member)
    assert rounds == 1
    assert sorted(offset for held in member.held.values() for offset in held.left) == [
        *range(100),
        *range(200, 300),
        *range(400, 500),
    ]


def acquire_where_nothing_is_known(core: QueueCore, member: QueueMember) -> int:
    """Acquire from files that do not say what is in memory; returns how often a worker was asked."""
    from tidelog.broker.storage.files.descriptor import DescriptorFile

    believed: set[tuple[int, int]] = set()

    def warm(_file: DescriptorFile, position: int, length: int) -> None:
        believed.add((position, length))

    def is_resident(_file: DescriptorFile, position: int, length: int) -> bool:
        return (position, length) in believed

    rounds = 0
    core.workers.held = True
    with patch.object(DescriptorFile, "is_resident", is_resident), patch.object(DescriptorFile, "warm", warm):
        call = member.acquire(1_000)
        core.settle()
        while call.is_pending:
            publish(core, 0, 100)
            assert core.workers.run()
            core.settle()
            rounds += 1
    core.workers.held = False
    member.harvest()
    return rounds
