"""Nobody waits for ever: partitions whose delivery logs are closed, suspects beside members that are never idle, and
acquires beside one that meets a bug."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.deferred import Deferred
from tidelog.broker.queues.granting import Granting
from tidelog.broker.queues.group_partition import GroupPartition
from tidelog.protocol.errors import InternalError
from tidelog.protocol.messages import AcquireReply, Settling

MINUTE = 60 * SECOND


def begin(count: int, partitions: int = 1, members: int = 2) -> tuple[QueueCore, list[QueueMember]]:
    """A core with so many messages in each partition of a topic, and members of a group that reads it."""
    core = QueueCore()
    core.create("orders", partitions)
    for index in range(partitions):
        core.produce(core.topic("orders").partition(index), batch(*[b"%d" % number for number in range(count)]))
    book, _events = notebook(core)
    return core, [member_of(core, book, number + 1, given=settings()) for number in range(members)]


def served(core: QueueCore, member: QueueMember, count: int) -> list[int]:
    """Let a member take messages and acknowledge them; the partitions that they are of."""
    take(core, member, count)
    found = [held.partition for held in member.held.values()]
    for held in [*member.held.values()]:
        member.settle([(held, Settling.ACCEPT, sorted(held.left), -1)])
    core.settle()
    member.harvest()
    return found


def opened(core: QueueCore) -> list[int]:
    """The partitions whose delivery logs are open."""
    return [one.index for one in core.topic("orders").partitions if one.delivery.log is not None]


# -- partitions ----------------------------------------------------------------------------------------------------


def test_partitions_that_are_closed_take_their_turns_beside_those_that_have_something() -> None:
    """Six partitions have a backlog, and four that are open first have more: the others are opened with the first lease,
    and come behind those that wait for their turn."""
    core, (member, _) = begin(200, partitions=6)
    turns = [index for _ in range(13) for index in served(core, member, 10)]
    assert turns == [0, 1, 2, 3, 0, 4, 5, 1, 2, 3, 0, 4, 5]


def test_few_delivery_logs_are_made_at_a_time_while_others_are_served() -> None:
    """Of fifteen partitions four are opened for an acquire, four more with what it gets, none beside four that a worker
    is at."""
    core, (member, _) = begin(50, partitions=15)
    assert served(core, member, 5) == [0]
    assert opened(core) == [0, 1, 2, 3, 4, 5, 6, 7]
    core.workers.held = True
    assert served(core, member, 5) == [1]
    assert len(core.workers.waiting) == 4
    assert served(core, member, 5) == [2]
    assert len(core.workers.waiting) == 4, "no more at a time"
    core.workers.held = False
    core.workers.run()
    assert opened(core) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    turns = [index for _ in range(15) for index in served(core, member, 5)]
    assert turns == [3, 0, 4, 5, 6, 7, 1, 2, 11, 10, 9, 8, 3, 12, 13]


def test_a_large_acquire_has_closed_partitions_opened_too() -> None:
    """Also where the open ones give a reply all that it has room for."""
    core, (member, _) = begin(300, partitions=10)
    assert served(core, member, 10) == [0]
    assert opened(core) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert served(core, member, 300) == [1]
    assert opened(core) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]


def test_closed_partitions_of_a_topic_with_several_priorities_take_their_turns_too() -> None:
    """Six partitions have a backlog of each of two priorities: the higher one of all six is served before the lower."""
    core, (member, _) = begin(20, partitions=6)
    for index in range(6):
        values = [b"%d" % number for number in range(20)]
        core.produce(core.topic("orders").partition(index), batch(*values, priority=9))
    turns = [index for _ in range(24) for index in served(core, member, 10)]
    assert sorted(turns[:12]) == sorted([0, 1, 2, 3, 4, 5] * 2)
    assert sorted(turns[12:]) == sorted([0, 1, 2, 3, 4, 5] * 2)


# -- suspects ------------------------------------------------------------------------------------------------------


def with_suspects(core: QueueCore, lost: QueueMember, *holders: QueueMember) -> None:
    """Let one member go down with ten messages, while others have taken ten each."""
    take(core, lost, 10)
    core.advance(20 * SECOND)
    for member in holders:
        take(core, member, 10)
    core.advance(11 * SECOND)
    lost.held.clear()


def one_for_one(core: QueueCore, member: QueueMember) -> None:
    """Acknowledge one message and ask for another, as a client does that fetches ahead."""
    held = next(iter(member.held.values()))
    settle_some(core, member, Settling.ACCEPT, [min(held.left)])
    take(core, member, 1)


def test_suspects_do_not_wait_for_a_member_that_is_at_one_message_for_long() -> None:
    """One is drained and goes on renewing; the other, which always asks again before it is through, is drained a second
    later: the suspects go to it as soon as it holds nothing."""
    core, (first, second, third) = begin(100, members=3)
    with_suspects(core, third, first, second)
    take(core, first, 1)  # it is drained, and keeps what it has
    seconds = 0
    while not any(held.is_alone for held in second.held.values()):
        assert seconds < 20
        if second.held:
            one_for_one(core, second)
        else:
            take(core, second, 1)
        (held,) = first.held.values()
        first.settle([(held, Settling.RENEW, [], 30 * SECOND)])
        core.advance(SECOND // 4)
        seconds += 1
    assert sorted(second.held.popitem()[1].left) == [0]
    assert len(next(iter(first.held.values())).left) == 10, "the other still has all of it"


def test_one_member_more_is_drained_each_second() -> None:
    """Three hold something and ask: in the first second one gets nothing, in the next two, then all."""
    core, (lost, *members) = begin(200, members=4)
    with_suspects(core, lost, *members)
    got: list[int] = []
    for _ in range(3):
        before = [sum(len(held.left) for held in member.held.values()) for member in members]
        for member in members:
            take(core, member, 1)
        after = [sum(len(held.left) for held in member.held.values()) for member in members]
        got.append(sum(b - a for a, b in zip(before, after, strict=True)))
        core.advance(SECOND)
    assert got == [2, 1, 0]


def test_all_that_were_drained_go_on_when_the_suspects_are_taken() -> None:
    """A third that holds nothing takes them: the two get ordinary messages at once."""
    core, (lost, first, second, idle) = begin(200, members=4)
    take(core, lost, 1)
    core.advance(20 * SECOND)
    take(core, first, 10)
    take(core, second, 10)
    core.advance(11 * SECOND)
    lost.held.clear()
    take(core, first, 1)
    core.advance(SECOND)
    take(core, second, 1)
    assert [len(first.held), len(second.held)] == [1, 1]
    assert take(core, idle, 5) == {0: 0}
    take(core, first, 1)
    take(core, second, 1)
    assert [len(first.held), len(second.held)] == [2, 2]


def test_nobody_is_drained_for_suspects_of_topics_that_it_does_not_ask_for() -> None:
    """A member was drained while it asked for both topics: of the one without suspects it gets messages again."""
    core, (member, lost) = begin(10)
    core.create("letters")
    core.produce(core.topic("letters").partition(0), batch(*[b"%d" % number for number in range(20)]))
    letters = core.topic("letters").id
    core.wait(core.groups.join("default/g", [1, letters], start=None, settings=None))
    member.topic_id = lost.topic_id = letters
    take(core, lost, 10)
    core.advance(20 * SECOND)
    take(core, member, 10)
    core.advance(11 * SECOND)
    take(core, member, 5)
    assert len(member.held) == 1, "it is drained"
    member.topic_id = 1
    take(core, member, 5)
    assert [(held.topic_id, len(held.left)) for held in member.held.values()] == [(letters, 10), (1, 5)]


# -- bugs ----------------------------------------------------------------------------------------------------------


def waiting(core: QueueCore) -> int:
    """How many members wait for messages, as a group is described."""
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    return sum(member.waiting for member in found.members)


def boom(*_args: object, **_more: object) -> None:
    """Be a bug."""
    raise RuntimeError("bug")


@pytest.mark.parametrize("place", [(GroupPartition, "lease"), (Granting, "begin")])
def test_an_acquire_that_meets_a_bug_is_answered_and_leaves_nothing_behind(place: tuple[type, str]) -> None:
    """INTERNAL, with the traceback in the log; nobody waits, and what was leased already is given back uncounted."""
    core, (first, second) = begin(3)
    take(core, first, 1)
    settle_some(core, first, Settling.ACCEPT, [0])
    with patch.object(*place, boom):
        call = first.acquire(1, max_wait_us=MINUTE)
        core.settle()
    with pytest.raises(InternalError):
        call.message()
    assert core.events[-1] == "acquire failed"
    first.harvest()
    assert waiting(core) == 0
    assert take(core, second, 10) == {1: 0, 2: 0}


def test_a_bug_of_one_acquire_is_nothing_to_who_made_room_for_it() -> None:
    """What one waits for meets a bug when another settles: the settle is answered, the acquire too, and others wait on."""
    core, (first, second) = begin(1)
    take(core, first, 1)
    poll = second.acquire(1, max_wait_us=MINUTE)
    core.settle()
    assert poll.is_pending
    with patch.object(GroupPartition, "lease", boom):
        settle_some(core, first, Settling.RETURN, [0])
    with pytest.raises(InternalError):
        poll.message()
    second.harvest()
    assert take(core, second, 1) == {0: 0}


def test_a_bug_beside_leases_leaves_no_waiter_behind() -> None:
    """One in what an acquire does after nothing was found: nobody waits for an answer that nobody hears."""
    core, (first, _second) = begin(1)
    take(core, first, 1)
    with patch("tidelog.broker.queues.available.Available.troubled", boom), pytest.raises(RuntimeError):
        first.acquire(1, max_wait_us=MINUTE)
    assert waiting(core) == 0
    call = first.acquire(1)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert reply.grants == []
