"""Who is given what: waits in order, rotation over partitions, limits, suspects apart, and replies nobody took."""

from __future__ import annotations

from collections.abc import Sequence

from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import Held, QueueMember

from tidelog.broker.deferred import Reply
from tidelog.protocol.batch import Codec
from tidelog.protocol.messages import Acquire, AcquireReply, JoinGroup, JoinGroupReply, Settling
from tidelog.protocol.messages.groups import GroupSettings
from tidelog.protocol.offset_ranges import iter_ranges

MINUTE = 60 * SECOND


def begin(
    members: int = 2, *, partitions: int = 1, given: GroupSettings | None = None
) -> tuple[QueueCore, list[QueueMember]]:
    """A core with a topic, and members of a group that reads it."""
    core = QueueCore()
    core.create("orders", partitions)
    book, _events = notebook(core)
    given = given or settings()
    return core, [member_of(core, book, number + 1, given=given) for number in range(members)]


def publish(core: QueueCore, count: int, partition: int = 0) -> None:
    """Store so many messages in one batch."""
    core.produce(core.topic("orders").partition(partition), batch(*[b"%d" % number for number in range(count)]))


def offsets(member: QueueMember) -> list[int]:
    """What a member holds."""
    return sorted(offset for held in member.held.values() for offset in held.left)


def only(member: QueueMember) -> Held:
    """The one lease of a member."""
    (held,) = member.held.values()
    return held


def test_who_waits_longest_is_served_first() -> None:
    """Each gets what it asked for, in the order in which they asked; the last has to wait on."""
    core, members = begin(3)
    calls = [member.acquire(2, max_wait_us=MINUTE) for member in members]
    core.settle()
    assert all(call.is_pending for call in calls)
    publish(core, 4)
    for member in members:
        member.harvest()
    assert [offsets(member) for member in members] == [[0, 1], [2, 3], []]
    assert calls[2].is_pending


def test_a_lease_ends_with_a_whole_batch_where_that_costs_less_than_half() -> None:
    """The part of the next batch would be sent again with the rest of it: also where room for bytes had batches looked
    up in two steps. Of a first batch as much is leased as was asked for."""
    core, (member, other) = begin()
    for _ in range(4):
        publish(core, 100)
    one = len(batch(*[b"%d" % number for number in range(100)]))
    member.acquire(212, max_bytes=2 * one + one // 2)
    core.settle()
    member.harvest()
    assert offsets(member) == [*range(200)]
    take(core, other, 30)
    take(core, other, 150)
    assert offsets(other) == [*range(200, 380)]


def test_partitions_take_turns() -> None:
    """A backlog in one does not keep the others waiting."""
    core, (member, _) = begin(partitions=3)
    for partition, count in enumerate((6, 2, 2)):
        publish(core, count, partition)
    seen: list[int] = []
    for _ in range(5):
        take(core, member, 2)
        seen.append([*member.held.values()][-1].partition)
    assert seen == [0, 1, 2, 0, 0]


def test_a_lease_may_be_of_several_partitions() -> None:
    """One reply has a grant for each whose delivery log is there already."""
    core, (member, _) = begin(partitions=3)
    for partition in range(3):
        publish(core, 1, partition)
        take(core, member, 1)
        settle_some(core, member, Settling.ACCEPT, [0])
    for partition in range(3):
        publish(core, 2, partition)
    take(core, member, 5)
    assert sorted(held.partition for held in member.held.values()) == [0, 1, 2]
    assert sorted(len(held.left) for held in member.held.values()) == [1, 2, 2]


def test_a_group_of_many_partitions_makes_few_delivery_logs_at_once() -> None:
    """Its first acquire has a few made, and is answered from the first that is there."""
    core, (member, _) = begin(partitions=20)
    for partition in range(20):
        publish(core, 1, partition)
    core.workers.held = True
    call = member.acquire(1)
    assert len(core.workers.waiting) == 4
    core.workers.run()
    core.workers.held = False
    core.settle()
    assert not call.is_pending
    member.harvest()
    assert offsets(member) == [0]


def test_no_more_is_in_flight_than_the_group_says() -> None:
    """What is settled makes room, and whoever waits is served then."""
    given = GroupSettings(visibility_timeout_us=30 * SECOND, max_in_flight=3)
    core, (first, second) = begin(given=given)
    publish(core, 10)
    assert sorted(take(core, first, 10)) == [0, 1, 2]
    waiting = second.acquire(10, max_wait_us=MINUTE)
    core.settle()
    assert waiting.is_pending
    settle_some(core, first, Settling.ACCEPT, [0, 1])
    second.harvest()
    assert offsets(second) == [3, 4]


def test_a_lease_that_ends_wakes_who_waits() -> None:
    """At its time, without any other request."""
    core, (first, second) = begin()
    publish(core, 1)
    assert take(core, first, 1) == {0: 0}
    second.acquire(1, max_wait_us=MINUTE)
    core.advance(29 * SECOND)
    second.harvest()
    assert not second.held
    core.advance(2 * SECOND)
    second.harvest()
    assert offsets(second) == [0]
    assert only(second).is_alone


def test_a_wait_that_is_over_wakes_who_waits() -> None:
    """The shorter first, whatever was given back first (cases.md 9)."""
    core, (first, second) = begin()
    publish(core, 2)
    take(core, first, 2)
    settle_some(core, first, Settling.RELEASE, [0], delay_us=60 * SECOND)
    settle_some(core, first, Settling.RELEASE, [1], delay_us=SECOND)
    second.acquire(10, max_wait_us=MINUTE)
    core.advance(SECOND - 1)
    second.harvest()
    assert not second.held
    core.advance(1)
    second.harvest()
    assert offsets(second) == [1]
    settle_some(core, second, Settling.ACCEPT, [1])
    second.acquire(10, max_wait_us=MINUTE)
    core.advance(59 * SECOND)
    second.harvest()
    assert offsets(second) == [0]


def test_a_message_published_just_after_a_wait_goes_to_the_next_poll() -> None:
    """A poll that timed out or whose connection ended takes nothing, and counts nothing (cases.md 27)."""
    core, (first, second) = begin()
    timed_out = first.acquire(1, max_wait_us=SECOND // 10)
    abandoned = second.acquire(1, max_wait_us=MINUTE)
    core.advance(SECOND)
    assert isinstance(timed_out.message(), AcquireReply)
    second.connection.close()
    publish(core, 1)
    assert abandoned.is_pending
    assert take(core, first, 1) == {0: 0}


def test_a_reply_that_cannot_be_delivered_gives_back_its_leases() -> None:
    """At once and uncounted: the next poll has the message on its first attempt."""
    core, (first, second) = begin()
    publish(core, 3)
    assert take(core, first, 2) == {0: 0, 1: 0}
    group = core.groups.named("default/g")
    request = Acquire(group.id, group.generation, 9, [core.topic("orders").id], 1)
    reply = core.queues.acquire(request)
    assert isinstance(reply, Reply)
    assert reply.undelivered is not None
    assert take(core, second, 5) == {}
    reply.undelivered()
    assert take(core, second, 5) == {2: 0}


def test_a_reply_that_was_made_for_nobody_gives_back_its_leases() -> None:
    """Its poll's connection ends while a worker cuts out what was leased: the next poll has it on its first attempt."""
    core, (first, second) = begin()
    core.produce(core.topic("orders").partition(0), batch(*[b"%d" % at for at in range(100)], codec=Codec.ZSTD))
    assert take(core, second, 1) == {0: 0}
    core.workers.held = True
    call = first.acquire(1)
    core.settle()
    assert (call.is_pending, core.states(core.topic("orders").id, 1)["g"].state) == (True, "leased")
    first.connection.close()
    core.workers.held = False
    core.workers.run()
    core.settle()
    assert core.states(core.topic("orders").id, 1)["g"].state == "available"
    assert take(core, second, 1) == {0: 0, 1: 0}


def test_a_member_names_what_it_holds_after_a_reconnect() -> None:
    """Its other leases come back uncounted."""
    core, (first, second) = begin()
    publish(core, 4)
    take(core, first, 2)
    lost = first.acquire(2)
    core.settle()
    assert not lost.is_pending  # its reply is never read
    first._polls.clear()  # pyright: ignore[reportPrivateUsage]
    first.connection.close()
    first.connect(core.door())
    again = first.acquire(1)
    core.settle()
    again.message()
    first.harvest()
    assert offsets(first) == [0, 1, 2]
    assert take(core, second, 5) == {3: 0}


def expire(core: QueueCore, member: QueueMember) -> None:
    """Let the leases of a member end, which handed nothing over."""
    core.advance(31 * SECOND)
    member.held.clear()


def test_suspects_are_leased_apart_and_fewer_each_time() -> None:
    """A hundred whose worker went down come back ten together, then one alone, and nothing beside them."""
    core, (first, second) = begin()
    publish(core, 100)
    take(core, first, 100)
    expire(core, first)
    sizes: list[int] = []
    for _ in range(2):
        take(core, second, 100)
        assert only(second).is_alone
        sizes.append(len(only(second).left))
        assert take(core, second, 100).keys() == {*offsets(second)}, "nothing beside suspects"
        expire(core, second)
    assert sizes == [10, 1]


def test_a_member_is_drained_for_suspects() -> None:
    """With suspects about and nobody idle, one that holds something gets nothing new until it holds nothing; the other
    goes on."""
    core, (first, second) = begin()
    publish(core, 30)
    take(core, first, 10)
    core.advance(20 * SECOND)
    take(core, second, 10)
    core.advance(11 * SECOND)
    first.held.clear()
    take(core, second, 5)
    assert offsets(second) == [*range(10, 20)], "it is drained"
    settle_some(core, second, Settling.ACCEPT, range(10, 20))
    take(core, second, 5)
    assert offsets(second) == [0]
    assert only(second).is_alone


def test_another_member_is_drained_when_the_one_before_asks_no_more() -> None:
    """Suspects do not wait for a member that holds nothing and has gone: they go to one of those that ask."""
    core, (first, second, third) = begin(3)
    publish(core, 40)
    take(core, third, 10)
    core.advance(20 * SECOND)
    take(core, first, 10)
    take(core, second, 10)
    core.advance(11 * SECOND)
    third.held.clear()
    take(core, first, 5)
    take(core, second, 5)
    assert (offsets(first), offsets(second)) == ([*range(10, 20)], [*range(20, 35)]), "the first is drained"
    settle_some(core, first, Settling.ACCEPT, range(10, 20))
    take(core, second, 5)
    assert offsets(second) == [*range(20, 35)], "the second is"
    settle_some(core, second, Settling.ACCEPT, range(20, 35))
    assert take(core, second, 5) == {0: 0}
    assert only(second).is_alone


def test_a_member_is_drained_no_longer_than_there_are_suspects() -> None:
    """Another one took them: it gets ordinary messages again, beside what it holds."""
    core, (first, second, third) = begin(3)
    publish(core, 40)
    take(core, third, 1)
    core.advance(20 * SECOND)
    take(core, first, 10)
    core.advance(11 * SECOND)
    take(core, first, 5)
    assert offsets(first) == [*range(1, 11)], "it is drained"
    assert take(core, second, 5) == {0: 0}
    take(core, first, 5)
    assert offsets(first) == [*range(1, 16)]


def test_acknowledging_a_suspect_clears_it() -> None:
    """And the rest goes on by ones."""
    core, (first, second) = begin()
    publish(core, 3)
    take(core, first, 3)
    expire(core, first)
    done: list[int] = []
    for _ in range(3):
        take(core, second, 10)
        done += offsets(second)
        settle_some(core, second, Settling.ACCEPT, offsets(second))
    assert done == [0, 1, 2]
    assert take(core, second, 10) == {}


def spans(reply: AcquireReply) -> Sequence[tuple[int, int]]:
    """The ranges of all grants."""
    return [span for grant in reply.grants for span in iter_ranges(grant.ranges)]


def test_a_first_join_finds_what_was_published_before() -> None:
    """A new queue group begins with what is there."""
    core = QueueCore()
    core.create("orders", 1)
    publish(core, 3)
    door = core.door()
    call = door.ask(JoinGroup("default/g", [core.topic("orders").id], 1))
    core.settle()
    joined = call.message()
    assert isinstance(joined, JoinGroupReply)
    found = door.ask(Acquire(joined.group.id, joined.group.generation, 1, [core.topic("orders").id]))
    core.settle()
    reply = found.message()
    assert isinstance(reply, AcquireReply)
    assert spans(reply) == [(0, 3)]


def test_a_partition_without_messages_gets_no_delivery_log() -> None:
    """It is made on first use."""
    core, (member, _) = begin(partitions=3)
    publish(core, 1, 1)
    take(core, member, 10)
    topic = core.topic("orders")
    made = [core.files.exists(f"partitions/{topic.id}-{index}/delivery") for index in range(3)]
    assert made == [False, True, False]
