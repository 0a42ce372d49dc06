"""What one request may ask for and one reply may say, each limit at its edge; and who is not forgotten."""

from __future__ import annotations

import msgspec
import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.queues.members import Members
from tidelog.protocol.errors import InvalidRequestError
from tidelog.protocol.limits import MAX_CONTROL_BYTES
from tidelog.protocol.messages import AcquireReply, Settle, SettleError, SettleItem, Settling
from tidelog.protocol.offset_ranges import pack_ranges

MINUTE = 60 * SECOND


def begin(messages: int, partitions: int = 1) -> tuple[QueueCore, QueueMember]:
    """A core with so many messages in each partition, and a member of a group that reads them."""
    core = QueueCore()
    core.create("orders", partitions)
    for one in core.topic("orders").partitions:
        core.produce(one, batch(*[b"%d" % number for number in range(messages)]))
    book, _events = notebook(core)
    return core, member_of(core, book, 1, given=settings())


def test_a_settle_names_ten_thousand_items_at_most() -> None:
    """One more is refused, and nothing of it is done."""
    core, member = begin(1)
    take(core, member, 1)
    (held,) = member.held.values()
    item = SettleItem(1, 0, held.lease, Settling.RENEW, b"", duration_us=MINUTE)
    core.queues.settle(Settle(member.group_id, member.generation, 1, 1, [item] * 10_000))
    accept = SettleItem(1, 0, held.lease, Settling.ACCEPT, pack_ranges([(0, 1)]))
    with pytest.raises(InvalidRequestError, match="expected at most 10000 items in a settle request, found 10001"):
        core.queues.settle(Settle(member.group_id, member.generation, 1, 2, [accept] * 10_001))
    assert core.states(1, 0)["g"].state == "leased"


def test_a_reply_is_of_sixty_four_leases_at_most() -> None:
    """Of 70 partitions with a message each; the rest comes with the next."""
    core, member = begin(1, partitions=70)
    for one in core.topic("orders").partitions:  # each is opened first
        core.wait(core.queues.opened(one.delivery))
    for count in (64, 6):
        call = member.acquire(1_000)
        core.settle()
        reply = call.message()
        assert isinstance(reply, AcquireReply)
        assert len(reply.grants) == count
        member.harvest()


def test_what_is_told_of_earlier_attempts_fits_a_reply() -> None:
    """1,000 messages each failed with 4,000 characters of its own: no reply says more than half of what a frame's
    control may, and all of them come."""
    core, member = begin(1_000)
    take(core, member, 1_000)
    (held,) = member.held.values()
    for start in range(0, 1_000, 100):
        items = [
            SettleItem(
                1,
                0,
                held.lease,
                Settling.RELEASE,
                pack_ranges([(at, at + 1)]),
                delay_us=0,
                error=SettleError("ValueError", f"{at}", f"{at}" + "x" * 4_000),
            )
            for at in range(start, start + 100)
        ]
        core.queues.settle(Settle(member.group_id, member.generation, 1, 1 + start, items))
    core.settle()
    member.held.clear()
    replies = found = 0
    while found < 1_000:
        call = member.acquire(1_000)
        core.settle()
        reply = call.message()
        assert isinstance(reply, AcquireReply)
        assert reply.grants
        assert len(msgspec.msgpack.encode(reply)) <= MAX_CONTROL_BYTES // 2
        replies += 1
        member.harvest()
        found = sum(len(one.left) for one in member.held.values())
    assert replies > 1


def test_a_member_that_waits_is_not_forgotten() -> None:
    """However long ago it asked; one that waits for nothing and holds nothing is."""
    core, _member = begin(1)
    members = Members(core.queues.around, lambda: 30 * SECOND)
    members.hear(7).waiting = 1
    members.hear(8)
    core.clock.advance(61 * SECOND)
    members.forget_silent()
    assert [one.id for one in members] == [7]


def test_a_silent_member_is_known_for_a_visibility_timeout() -> None:
    """Where that is longer than a minute: who works for as long on what it settled is no new one afterwards."""
    core, _member = begin(1)
    members = Members(core.queues.around, lambda: 300 * SECOND)
    members.hear(7)
    core.clock.advance(299 * SECOND)
    members.forget_silent()
    assert [one.id for one in members] == [7]
    core.clock.advance(2 * SECOND)
    members.forget_silent()
    assert [one.id for one in members] == []


def test_who_settles_and_holds_nothing_is_no_member() -> None:
    """A thousand numbers that settle nothing are not remembered for a minute each; one that is known is heard of."""
    core, member = begin(1)
    take(core, member, 1)
    settle_some(core, member, Settling.ACCEPT, [0])
    for number in range(100, 1_100):
        core.queues.settle(Settle(member.group_id, member.generation, number, 1, []))
    assert core.gauges()['tidelog_queue_members{group="g"}'] == 1
    core.clock.advance(50 * SECOND)
    core.queues.settle(Settle(member.group_id, member.generation, 1, 1, []))
    core.clock.advance(50 * SECOND)
    core.topics.expire()
    assert core.gauges()['tidelog_queue_members{group="g"}'] == 1
