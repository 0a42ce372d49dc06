"""Pages of a group's messages: what they say, and that they cost what is on them."""

from __future__ import annotations

import time

from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.protocol.messages import GroupMessages, MessageState, Settle, SettleError, SettleItem, Settling
from tidelog.protocol.offset_ranges import pack_ranges

MANY = 10_000
PAGE_S = 0.15
"""Of processor time, many times what a page takes: it was half a second when each message walked all that waits."""


def begin(count: int) -> tuple[QueueCore, QueueMember]:
    """A core with so many messages, and a member of a group that reads them."""
    core = QueueCore()
    core.create("orders", 1)
    for start in range(0, count, 1_000):
        values = [b"%d" % number for number in range(start, min(start + 1_000, count))]
        core.produce(core.topic("orders").partition(0), batch(*values))
    book, _events = notebook(core)
    return core, member_of(core, book, 1, given=settings(visibility_s=3_600))


def release_one_by_one(core: QueueCore, member: QueueMember) -> None:
    """Release each message that the member holds by itself: its own error, and a delay of its own."""
    items = [
        SettleItem(
            1,
            0,
            held.lease,
            Settling.RELEASE,
            pack_ranges([(offset, offset + 1)]),
            delay_us=3_600 * SECOND + offset,
            error=SettleError("ValueError", f"about {offset}", ""),
        )
        for held in member.held.values()
        for offset in held.left
    ]
    core.queues.settle(Settle(member.group_id, member.generation, 1, items[0].lease, items))
    core.settle()
    member.held.clear()


def page_of(core: QueueCore, *states: str) -> list[MessageState]:
    """The first page of messages in some states, made in little time."""
    began = time.process_time()
    reply = core.queues.group_messages(GroupMessages("g", [*states]))
    assert time.process_time() - began < PAGE_S
    return reply.messages


def test_a_page_of_what_waits_walks_all_that_waits_once() -> None:
    """10,000 messages wait, each for a time of its own and with an error of its own."""
    core, member = begin(MANY)
    for _ in range(MANY // 1_000):
        take(core, member, 1_000)
        release_one_by_one(core, member)
    page = page_of(core, "waiting")
    assert [info.offset for info in page] == [*range(1_000)]
    began_us = page[0].due_us
    assert [info.due_us - began_us for info in page] == [*range(1_000)]
    assert {info.attempts for info in page} == {1}
    assert [info.error.text for info in page if info.error] == [f"about {offset}" for offset in range(1_000)]
    single = core.states(1, 7_777)["g"]
    assert (single.state, single.error) == ("waiting", SettleError("ValueError", "about 7777", ""))


def test_a_page_of_what_is_leased_walks_all_leases_once() -> None:
    """2,000 messages, each leased by itself; every second one was handed over."""
    core, member = begin(2_000)
    for _ in range(2_000):
        take(core, member, 1)
    for held in member.held.values():
        member.hand_over(held, [offset for offset in held.left if offset % 2])
    member.acquire(1)
    core.settle()
    page = page_of(core, "leased")
    assert [(info.offset, info.member, info.attempts) for info in page] == [(at, 1, at % 2) for at in range(1_000)]


def test_a_page_has_each_message_in_its_own_state() -> None:
    """One of each that a message of a group can be in, beside one another."""
    core, member = begin(8)
    take(core, member, 7)
    settle_some(core, member, Settling.ACCEPT, [0])
    settle_some(core, member, Settling.RELEASE, [1], delay_us=60 * SECOND)
    settle_some(core, member, Settling.RELEASE, [2], delay_us=0)
    settle_some(core, member, Settling.REJECT, [3])
    settle_some(core, member, Settling.RETURN, [4])
    settle_some(core, member, Settling.SUSPECT, [5])
    core.advance(SECOND)
    words = ["acknowledged", "waiting", "available", "dead-lettered", "suspect", "leased"]
    assert [(info.offset, info.state, info.attempts) for info in page_of(core, *words)] == [
        (0, "acknowledged", 0),
        (1, "waiting", 1),
        (2, "available", 1),
        (3, "dead-lettered", 1),
        (4, "available", 0),
        (5, "suspect", 0),
        (6, "leased", 0),
        (7, "available", 0),
    ]
