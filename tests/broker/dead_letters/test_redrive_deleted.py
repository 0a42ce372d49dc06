"""Redrives that end in the middle, as a topic is deleted or the disk is full: the answer says what came back and what did
not."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import SECOND, Core
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.giving_up import MINUTE
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.broker.deferred import Deferred
from tidelog.broker.moving import mover
from tidelog.broker.partition import Partition
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.messages import RedriveReply

COUNT = 8


def redriven_until(
    rounds: int, topic: str, *, as_new: bool
) -> tuple[Redriving, Deferred[RedriveReply], Partition, int]:
    """Bring dead letters back, and delete a topic once the disk has synced so often; the answer, where they go, and how
    much was durable there when it was answered."""
    redriving = Redriving.begin(Core(), COUNT)
    core, orders = redriving.core, redriving.core.topic("orders").partition(0)
    answer = redriving.ask([(0, COUNT)], as_new=as_new)
    synced: list[int] = []
    answer.on_done(lambda _: synced.append(orders.log.synced_offset))
    for _ in range(rounds):
        core.begin_round()
        core.finish_round()
    deleting = core.topics.delete(f"default/{topic}")
    core.advance(10 * SECOND)
    deleting.result()
    return redriving, answer, orders, synced[0]


def told(answer: Deferred[RedriveReply]) -> tuple[list[int], list[int]]:
    """What came back, and what was refused; each is one of them. An error is that of a topic that is gone."""
    if answer.error is not None:
        assert answer.error.code == "UNKNOWN_TOPIC_ID"
        return [], [*range(COUNT)]
    reply = answer.result()
    assert {refusal.error.error().code for refusal in reply.refused} <= {"UNKNOWN_TOPIC_ID", "UNKNOWN_TOPIC"}
    back = sorted(offsets_in(reply.as_new) + offsets_in(reply.in_place))
    refused = sorted(offset for refusal in reply.refused for offset in offsets_in(refusal.ranges))
    assert (sorted(back + refused), offsets_in(reply.passed)) == ([*range(COUNT)], [])
    return back, refused


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two are copied at a time."""
    monkeypatch.setattr(mover, "MAX_RECORDS", 2)


def test_as_new_what_was_published_is_told_though_their_topic_is_gone() -> None:
    """The dead-letter topic goes after any sync: whoever reads finds exactly the messages that the answer counts."""
    counts: set[int] = set()
    for rounds in range(16):
        redriving, answer, orders, synced = redriven_until(rounds, "orders.dlq", as_new=True)
        back, _ = told(answer)
        assert answer.error is not None or synced >= COUNT + len(back), rounds
        copies = [copy.origin[1] for copy in redriving.giving.letters("orders")[COUNT:]]
        assert copies == back, rounds
        assert orders.log.synced_offset == COUNT + len(back), rounds
        counts.add(len(back))
    assert {0, 4, 6, 8} <= counts


def test_as_new_what_is_pending_no_more_is_told_though_the_messages_are_gone() -> None:
    """The topic that they went to goes after any sync: those that are refused are exactly the ones that are pending."""
    counts: set[int] = set()
    for rounds in range(16):
        redriving, answer, _, _ = redriven_until(rounds, "orders", as_new=True)
        back, refused = told(answer)
        assert not any("announced" in refusal.error.message for refusal in answer.result().refused)
        assert redriving.pending() == refused, rounds
        counts.add(len(back))
    assert {0, 2, 4, 6, 8} <= counts


def test_as_new_what_was_published_before_the_disk_was_full_is_told() -> None:
    """Four of eight were; the others are refused with the reason, and go on by themselves when there is room."""
    files = FaultyFiles(MemoryFiles())
    redriving = Redriving.begin(Core(files), COUNT)
    fault = files.fail("write_at", errno.ENOSPC, path="*/1-0/messages/0*", after=2, times=None)
    reply = redriving.redrive([(0, COUNT)], as_new=True)
    assert offsets_in(reply.as_new) == [0, 1, 2, 3]
    [refusal] = reply.refused
    assert (offsets_in(refusal.ranges), refusal.error.error().code) == ([4, 5, 6, 7], "DISK_FULL")
    assert refusal.error.message.endswith("; it is announced, and published by itself once that is over")
    assert redriving.pending() == []
    files.faults.remove(fault)
    redriving.core.advance(2 * MINUTE)
    assert sorted(copy.origin[1] for copy in redriving.giving.letters("orders")[COUNT:]) == [*range(COUNT)]


def test_in_place_what_is_back_is_told_though_its_dead_letter_is_gone() -> None:
    """The dead-letter topic goes after any sync: the group gets exactly the messages that the answer counts."""
    for rounds in range(6):
        redriving, answer, _, _ = redriven_until(rounds, "orders.dlq", as_new=False)
        assert redriving.available() == [*range(COUNT)], rounds
        assert told(answer) == ([*range(COUNT)], []), rounds
