"""Pages of a group's messages: what they say, and that they cost what is on them."""

from __future__ import annotations

import time

from tests.helpers.broker_core import SECOND, batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.protocol.messages import (
    GroupMessages,
    MessageState,
    MessageStates,
    Settle,
    SettleError,
    SettleItem,
    Settling,
)
from tidelog.protocol.offset_ranges import pack_ranges

MANY = 10_000
LONG = SettleError("ValueError", "x" * 3_000, "")
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


def release_all(core: QueueCore, member: QueueMember) -> None:
    """Release all that the member holds for a minute, with one long error."""
    items = [
        SettleItem(1, 0, held.lease, Settling.RELEASE, delay_us=60 * SECOND, error=LONG)
        for held in member.held.values()
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


def test_a_page_is_full_by_bytes_too() -> None:
    """900 messages that wait, each with an error of 3,000 characters: a page ends behind a mebibyte, and the next goes
    on behind it."""
    core, member = begin(900)
    take(core, member, 900)
    release_all(core, member)
    pages: list[list[int]] = []
    request = GroupMessages("g", ["waiting"])
    while True:
        reply = core.queues.group_messages(request)
        pages.append([info.offset for info in reply.messages])
        assert {info.error for info in reply.messages} <= {LONG}
        if reply.place is None:
            break
        request.place = reply.place
    assert [len(page) for page in pages] == [344, 344, 212]
    assert [offset for page in pages for offset in page] == [*range(900)]


def test_the_states_of_a_message_come_in_pages() -> None:
    """Of 501 groups, in 500 of which its last attempt failed with such an error: 345, and the rest; all at once for who names
    no place, as an older client does."""
    core, member = begin(1)
    book, _events = notebook(core)
    for number in range(500):
        member = member_of(core, book, 1, group=f"g{number:03}", given=settings())
        take(core, member, 1)
        release_all(core, member)
    found: list[str] = []
    sizes: list[int] = []
    place: int | None = 0
    while place is not None:
        reply = core.queues.message_states(MessageStates(1, 0, 0, place))
        found += [info.group for info in reply.states]
        sizes.append(len(reply.states))
        place = reply.place
    assert (sizes, found) == ([345, 156], ["g", *(f"g{number:03}" for number in range(500))])
    whole = core.queues.message_states(MessageStates(1, 0, 0))
    assert ([info.group for info in whole.states], whole.place) == (found, None)
