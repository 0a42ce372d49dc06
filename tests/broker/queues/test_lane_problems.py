"""Partitions whose delivery log takes no writes, beside others with messages of several priorities: nobody is kept from
what the others have, and everybody is told."""

from __future__ import annotations

import errno
from collections import Counter

import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.lane_core import backlog, begin, given, publish
from tests.helpers.queue_core import QueueCore, codes, take
from tests.helpers.queue_member import QueueMember

from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.messages import AcquireReply, Settling


def with_problems(policy: str) -> tuple[QueueCore, QueueMember]:
    """A core with three partitions, of which the second and the third have messages, and logs that were fenced."""
    files = FaultyFiles(MemoryFiles())
    core, (member,) = begin(files=files, partitions=3, lanes_policy=policy)
    for partition in range(3):
        publish(core, [9, 4], partition)
    assert len(given(core, member, 6)) == 6
    core.advance(2 * SECOND)
    for partition in (1, 2):
        publish(core, [9, 4, 0], partition)
        take(core, member, 1)
        files.fail("sync", errno.EIO, path=f"*-{partition}/delivery/0*")
        (held,) = member.held.values()
        assert codes(core, member, held, Settling.ACCEPT, [*held.left]) == ["LOG_FENCED"]
    return core, member


def answered(core: QueueCore, member: QueueMember, count: int) -> tuple[dict[int, int], list[int]]:
    """How many messages of which priority a member is given, which it acknowledges, and what partitions have a problem as
    it is told."""
    call = member.acquire(count)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    member.harvest()
    found = Counter(int(value.strip("b'")) for value in member.came)
    for held in [*member.held.values()]:
        member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
    core.settle()
    member.harvest()
    return dict(found), [problem.partition for problem in reply.errors]


@pytest.mark.parametrize("policy", ["strict", "weighted"])
def test_all_problems_are_told_once_beside_what_others_give(policy: str) -> None:
    """With the first reply that has room left, of both partitions; then only where there is nothing to be had."""
    core, member = with_problems(policy)
    for told in ([1, 2], [], []):
        backlog(core, 9, 3)
        backlog(core, 0, 5)
        assert answered(core, member, 100) == ({9: 3, 0: 5}, told)
    assert answered(core, member, 100) == ({}, [1, 2])


@pytest.mark.parametrize("policy", ["strict", "weighted"])
def test_a_delivery_log_that_cannot_be_made_keeps_nothing_from_a_reply(policy: str) -> None:
    """It is found while three of lane 9 of another partition were given out already: the reply goes on with lane 0, and
    so does the next; that there is a problem is told beside the last messages."""
    files = FaultyFiles(MemoryFiles())
    core, (member,) = begin(files=files, partitions=2, lanes_policy=policy)
    publish(core, [9, 0], 0)
    assert [given(core, member, 2) for _ in range(2)] == [[9, 0], []]
    backlog(core, 9, 3, 0)
    backlog(core, 0, 50, 0)
    backlog(core, 9, 5, 1)
    fault = files.fail("create", errno.EIO, path="*-1/delivery/*", times=None)
    found = [answered(core, member, 20) for _ in range(3)]
    assert found == [({9: 3, 0: 17}, []), ({0: 20}, []), ({0: 13}, [1])]
    assert fault.fired == 1
