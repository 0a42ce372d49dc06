"""Redrives while logs are fenced, disks are full and topics go: refused with the reason, pending as before, and done once
that is repaired."""

from __future__ import annotations

import errno
from collections import Counter

import pytest
from tests.helpers.broker_core import SECOND, Core
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.giving_up import MINUTE
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.broker.deferred import Deferred
from tidelog.broker.delivery.pending_letters import PENDING_GROUP
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.messages import FetchPosition, RedriveReply

ORDERS = "*/1-0/messages/0*"
ORDERS_DELIVERY = "*/1-0/delivery/0*"
LETTERS_DELIVERY = "*/2-0/delivery/0*"


def begin() -> tuple[FaultyFiles, Redriving]:
    """Eight messages, all of which group g gave up on, on a disk that fails when it is told to."""
    files = FaultyFiles(MemoryFiles())
    return files, Redriving.begin(Core(files))


def codes(reply: RedriveReply) -> set[str]:
    """The codes of what refused dead letters."""
    return {refusal.error.error().code for refusal in reply.refused}


def test_where_its_log_takes_nothing_a_message_is_not_brought_back() -> None:
    """The disk is full: refused, pending; with room it is done."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    fault = files.fail("write_at", errno.ENOSPC, path=ORDERS_DELIVERY, times=None)
    reply = redriving.redrive([(0, 4)])
    assert fault.fired
    assert (codes(reply), offsets_in(reply.in_place)) == ({"DISK_FULL"}, [])
    assert redriving.pending() == [*range(7)]
    files.faults.remove(fault)
    assert offsets_in(redriving.redrive([(0, 4)]).in_place) == [0, 1, 2, 3]
    assert redriving.available() == [0, 1, 2, 3, 7]


def test_where_its_sync_fails_it_is_not_known_whether_a_message_is_back() -> None:
    """Refused, its dead letter pending; once its log is reopened the repeated redrive finishes it, and nothing is twice."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    fault = files.fail("sync", errno.EIO, path=ORDERS_DELIVERY)
    reply = redriving.redrive([(0, 4)])
    assert fault.fired == 1
    assert (codes(reply), offsets_in(reply.in_place)) == ({"LOG_FENCED"}, [])
    assert redriving.pending() == [*range(7)]
    assert codes(redriving.redrive([(0, 4)])) == {"LOG_FENCED"}
    redriving.core.wait(redriving.core.topics.reopen("default/orders"))
    redriving.core.settle()
    assert offsets_in(redriving.redrive([(0, 4)]).in_place) == [0, 1, 2, 3]
    assert redriving.available() == [0, 1, 2, 3, 7]


def test_where_the_dead_letters_own_log_fails_they_stay_pending() -> None:
    """The messages are back, which is not on record of their dead letters: listed as before, resolved by the repeat."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    answer = redriving.ask([(0, 4)])
    redriving.core.begin_round()
    redriving.core.finish_round()  # announced
    fault = files.fail("sync", errno.EIO, path=LETTERS_DELIVERY)
    redriving.core.settle()
    assert fault.fired == 1
    assert answer.error is not None
    assert answer.error.code == "LOG_FENCED"
    assert redriving.available() == [0, 1, 2, 3, 7]
    assert set(redriving.pending()) <= {*range(7)}  # listed though nothing can be recorded
    redriving.core.wait(redriving.core.topics.reopen("default/orders.dlq"))
    redriving.core.settle()
    redriving.redrive([(0, 4)])
    assert redriving.pending() == [4, 5, 6]
    assert redriving.available() == [0, 1, 2, 3, 7]


def test_where_it_cannot_be_announced_nothing_is_brought_back() -> None:
    """The dead letters' own log fails first: the messages stay given up until it is reopened and asked again."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    fault = files.fail("sync", errno.EIO, path=LETTERS_DELIVERY)
    answer = redriving.ask([(0, 4)])
    redriving.core.settle()
    assert fault.fired == 1
    assert answer.error is not None
    assert answer.error.code == "LOG_FENCED"
    assert redriving.available() == [7]
    redriving.core.wait(redriving.core.topics.reopen("default/orders.dlq"))
    redriving.core.settle()
    assert redriving.pending() == [*range(7)]
    assert offsets_in(redriving.redrive([(0, 4)]).in_place) == [0, 1, 2, 3]
    assert redriving.available() == [0, 1, 2, 3, 7]


def test_a_purge_whose_record_fails_is_finished_when_the_log_is_reopened() -> None:
    """Announced, then the dead-letter topic's log takes no more: none is pending, and in the end none is dead-lettered."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    fault = files.fail("sync", errno.EIO, path=LETTERS_DELIVERY, after=1)
    asked = redriving.ask_purge([(0, 4)])
    redriving.core.settle()
    assert fault.fired == 1
    assert asked.error is not None
    assert asked.error.code == "LOG_FENCED"
    assert redriving.pending() == [4, 5, 6]
    redriving.core.wait(redriving.core.topics.reopen("default/orders.dlq"))
    redriving.core.advance(SECOND)
    assert redriving.pending() == redriving.dead_lettered() == [4, 5, 6]
    again = Redriving(redriving.core.after_stop())
    assert again.pending() == again.dead_lettered() == [4, 5, 6]


def test_a_purge_that_finds_no_room_for_its_record_is_finished_by_the_next_start() -> None:
    """Announced, so none of it is listed or brought back meanwhile."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    fault = files.fail("write_at", errno.ENOSPC, path=LETTERS_DELIVERY, after=1, times=None)
    asked = redriving.ask_purge([(0, 4)])
    redriving.core.settle()
    assert asked.error is not None
    assert asked.error.code == "DISK_FULL"
    assert redriving.pending() == [4, 5, 6]
    files.faults.remove(fault)
    assert offsets_in(redriving.redrive([(0, 4)]).passed) == [0, 1, 2, 3]
    again = Redriving(redriving.core.after_stop())
    again.core.advance(SECOND)
    log = again.core.topic("orders.dlq").partition(0).delivery.log
    assert log is not None
    assert log.fold.states[PENDING_GROUP].moves.intents == {}
    assert again.pending() == again.dead_lettered() == [4, 5, 6]


def test_a_purge_whose_announcement_may_be_lost_settles_nothing_for_good() -> None:
    """Its sync failed: until the log is reopened all messages count as dead-lettered."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    fault = files.fail("sync", errno.EIO, path=LETTERS_DELIVERY)
    asked = redriving.ask_purge([(0, 4)])
    redriving.core.advance(10 * MINUTE)
    assert (fault.fired, asked.error is not None) == (1, True)
    assert redriving.dead_lettered() == [*range(7)]
    redriving.core.wait(redriving.core.topics.reopen("default/orders.dlq"))
    redriving.core.advance(SECOND)
    assert redriving.pending() == redriving.dead_lettered()
    redriving.purge([(0, 4)])
    assert redriving.pending() == redriving.dead_lettered() == [4, 5, 6]


def test_a_purge_that_cannot_be_announced_does_nothing() -> None:
    """Refused with the reason; all are pending, and dead-lettered."""
    files, redriving = begin()
    redriving.redrive([(7, 8)])
    fault = files.fail("write_at", errno.ENOSPC, path=LETTERS_DELIVERY, times=None)
    asked = redriving.ask_purge([(0, 4)])
    redriving.core.settle()
    assert asked.error is not None
    assert asked.error.code == "DISK_FULL"
    assert redriving.pending() == redriving.dead_lettered() == [*range(7)]
    files.faults.remove(fault)
    assert offsets_in(redriving.purge([(0, 4)]).purged) == [0, 1, 2, 3]
    assert redriving.pending() == redriving.dead_lettered() == [4, 5, 6]


def published(redriving: Redriving) -> Counter[int]:
    """How often each dead letter was published anew."""
    return Counter(copy.origin[1] for copy in redriving.giving.letters("orders")[8:])


def test_as_new_a_full_disk_is_told_and_done_later() -> None:
    """What was announced goes on by itself when there is room; each has one new message."""
    files, redriving = begin()
    redriving.redrive([(7, 8)], as_new=True)
    fault = files.fail("write_at", errno.ENOSPC, path=ORDERS, times=None)
    reply = redriving.redrive([(0, 4)], as_new=True)
    assert fault.fired
    assert codes(reply) == {"DISK_FULL"}
    files.faults.remove(fault)
    redriving.core.advance(2 * MINUTE)
    assert redriving.dead_lettered() == [4, 5, 6], "of what went on by itself too"
    redriving.redrive([(0, 4)], as_new=True)
    assert redriving.pending() == [4, 5, 6]
    assert published(redriving) == {0: 1, 1: 1, 2: 1, 3: 1, 7: 1}


def test_as_new_a_fenced_topic_is_told_and_done_once_it_is_reopened() -> None:
    """Whether the copies whose sync failed are there then or not, there is one each."""
    files, redriving = begin()
    redriving.redrive([(7, 8)], as_new=True)
    fault = files.fail("sync", errno.EIO, path=ORDERS)
    assert codes(redriving.redrive([(0, 4)], as_new=True)) == {"LOG_FENCED"}
    assert fault.fired == 1
    redriving.core.wait(redriving.core.topics.reopen("default/orders"))
    redriving.core.advance(2 * MINUTE)
    redriving.redrive([(0, 4)], as_new=True)
    assert redriving.pending() == redriving.dead_lettered() == [4, 5, 6]
    assert published(redriving) == {0: 1, 1: 1, 2: 1, 3: 1, 7: 1}


def test_as_new_messages_count_as_dead_lettered_while_their_copies_are_in_a_fenced_topic() -> None:
    """Those may be lost with the power: until it is known whether they are there nothing is settled for good, however
    often it is tried."""
    files, redriving = begin()
    redriving.redrive([(7, 8)], as_new=True)
    fault = files.fail("sync", errno.EIO, path=ORDERS)
    redriving.redrive([(0, 4)], as_new=True)
    assert fault.fired == 1
    redriving.core.advance(10 * MINUTE)
    assert redriving.dead_lettered() == [0, 1, 2, 3, 4, 5, 6]
    redriving.core.wait(redriving.core.topics.reopen("default/orders"))
    redriving.core.advance(2 * MINUTE)
    assert redriving.pending() == redriving.dead_lettered() == [4, 5, 6]
    assert published(redriving) == {0: 1, 1: 1, 2: 1, 3: 1, 7: 1}


def test_as_new_what_was_not_announced_is_not_published_by_itself() -> None:
    """Refused as the topic is fenced already, and pending: it stays so, while what was announced before goes on."""
    files, redriving = begin()
    redriving.redrive([(7, 8)], as_new=True)
    files.fail("sync", errno.EIO, path=ORDERS)
    assert codes(redriving.redrive([(0, 4)], as_new=True)) == {"LOG_FENCED"}
    (refusal,) = redriving.redrive([(4, 6)], as_new=True).refused
    assert offsets_in(refusal.ranges) == [4, 5]
    assert "announced" not in refusal.error.error().message
    assert redriving.pending() == [4, 5, 6]
    redriving.core.wait(redriving.core.topics.reopen("default/orders"))
    redriving.core.advance(2 * MINUTE)
    assert redriving.pending() == redriving.dead_lettered() == [4, 5, 6]
    assert published(redriving) == {0: 1, 1: 1, 2: 1, 3: 1, 7: 1}


def announced() -> Redriving:
    """Four dead letters that were to be published anew, and are on their way: the disk has no room for them."""
    files, redriving = begin()
    redriving.redrive([(7, 8)], as_new=True)
    files.fail("write_at", errno.ENOSPC, path=ORDERS, times=None)
    assert codes(redriving.redrive([(0, 4)], as_new=True)) == {"DISK_FULL"}
    assert redriving.pending() == [4, 5, 6]
    return redriving


def test_as_new_the_topic_goes_in_the_middle() -> None:
    """Those that can go nowhere any more are pending again, and can only be purged."""
    redriving = announced()
    redriving.core.wait(redriving.core.topics.delete("default/orders"))
    assert redriving.pending() == [*range(7)]
    assert codes(redriving.redrive([(0, 4)], as_new=True)) == {"UNKNOWN_TOPIC"}
    assert offsets_in(redriving.purge().purged) == [*range(7)]
    assert redriving.pending() == []


def test_as_new_a_start_finds_that_the_topic_is_gone() -> None:
    """What was announced for it before leads nowhere: pending, and nothing is tried for ever."""
    redriving = announced()
    redriving.core.wait(redriving.core.topics.delete("default/orders"))
    again = Redriving(redriving.core.after_stop())
    again.core.advance(10 * SECOND)
    assert again.pending() == [*range(7)]
    assert offsets_in(again.purge([(0, 2)]).purged) == [0, 1]


def test_as_new_a_start_goes_on_with_what_was_announced() -> None:
    """Nobody has to ask for it again."""
    redriving = announced()
    files = redriving.core.files
    assert isinstance(files, FaultyFiles)
    files.faults.clear()
    again = Redriving(redriving.core.after_stop())
    again.core.advance(10 * SECOND)
    assert again.pending() == again.dead_lettered() == [4, 5, 6]
    assert published(again) == {0: 1, 1: 1, 2: 1, 3: 1, 7: 1}


def test_the_dead_letter_topic_goes_while_letters_are_on_their_way() -> None:
    """Nothing is sent any more, and nothing is left that tries."""
    redriving = announced()
    core = redriving.core
    core.wait(core.topics.delete("default/orders.dlq"))
    core.advance(10 * MINUTE)
    assert core.topics.find("default/orders.dlq") is None


def test_as_new_the_dead_letters_own_log_fails() -> None:
    """Before, and in the middle: refused, nothing waits for ever; after the reopening there is one new message each."""
    files, redriving = begin()
    redriving.redrive([(7, 8)], as_new=True)
    fault = files.fail("sync", errno.EIO, path=LETTERS_DELIVERY)
    assert codes(redriving.redrive([(0, 4)], as_new=True)) == {"LOG_FENCED"}
    assert fault.fired == 1
    answer = redriving.ask([(4, 5)], as_new=True)
    assert answer.error is not None
    assert answer.error.code == "LOG_FENCED"
    redriving.core.wait(redriving.core.topics.reopen("default/orders.dlq"))
    redriving.core.advance(2 * MINUTE)
    redriving.redrive([(0, 5)], as_new=True)
    assert redriving.pending() == redriving.dead_lettered() == [5, 6]
    assert published(redriving) == {0: 1, 1: 1, 2: 1, 3: 1, 4: 1, 7: 1}


def rot(files: FaultyFiles) -> None:
    """Let a bit of the first dead letters' batch rot."""
    inner = files.inner
    (name,) = (name for name in inner.list_folder("partitions/2-0/messages") if name.endswith(".log"))
    file = inner.open(f"partitions/2-0/messages/{name}")
    data = file.read_at(0, file.size())
    at = data.index(b"tidelog.dlq.group") + 3
    file.write_at(at, bytes([data[at] ^ 1]))


def test_as_new_what_is_damaged_on_its_way_is_answered() -> None:
    """They were read and announced before: nothing is published, nothing of them is pending, and nobody waits."""
    files, redriving = begin()
    core = redriving.core
    core.workers.held = True
    answer = redriving.ask([(0, 4)], as_new=True)
    delivery = core.topic("orders.dlq").partition(0).delivery
    while delivery.log is None or not delivery.log.log.synced_offset:
        core.workers.run()
        core.begin_round()
        core.finish_round()
    rot(files)
    core.workers.held = False
    core.workers.run()
    core.settle()
    reply = answer.result()
    assert (offsets_in(reply.as_new), offsets_in(reply.passed), reply.refused) == ([], [0, 1, 2, 3], [])
    assert published(redriving) == {}
    assert [offset for offset in redriving.pending() if offset < 4] == []


@pytest.mark.parametrize("is_known", [False, True])
def test_damaged_dead_letters_are_refused_and_can_be_purged(*, is_known: bool) -> None:
    """Where a bit of a copy rots it names no message any more, found just then or known before: the others come back."""
    files, redriving = begin()
    rot(files)
    if is_known:
        partition = redriving.core.topic("orders.dlq").partition(0)
        checked = partition.verify(FetchPosition(partition.topic_id, 0, 0), max_bytes=1)
        redriving.core.settle()
        assert isinstance(checked, Deferred)
        assert [(found.start, found.end) for found in partition.log.damaged] == [(0, 8)]
    reply = redriving.redrive()
    assert codes(reply) == {"CORRUPT"}
    refused = [offset for refusal in reply.refused for offset in offsets_in(refusal.ranges)]
    assert sorted(refused + offsets_in(reply.in_place)) == [*range(8)]
    assert redriving.pending() == sorted(refused)
    redriving.purge()
    assert redriving.pending() == []
