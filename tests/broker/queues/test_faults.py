"""Faults under groups at work: a fenced delivery log, a fenced log of messages, a full disk, damage, cold reads."""

from __future__ import annotations

import errno
from unittest.mock import patch

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.power_loss import PowerLossFiles
from tests.helpers.queue_core import QueueCore, codes, filled, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import Held, QueueMember

from tidelog.broker.deferred import Deferred
from tidelog.broker.queues import ledger
from tidelog.broker.storage.files.descriptor import DescriptorFile
from tidelog.protocol.messages import AcquireReply, GroupPartitionInfo, GroupSettings, Settling

MINUTE = 60 * SECOND
DELIVERY = "*/delivery/0*"
MESSAGES = "*/messages/0*"


def begin(count: int = 10, size: int = 1) -> tuple[QueueCore, FaultyFiles, QueueMember, QueueMember]:
    """A core with a topic of some messages in one batch, and two members of a group that reads it."""
    core, files = filled(count, size)
    book, _events = notebook(core)
    first, second = (member_of(core, book, number, given=settings()) for number in (1, 2))
    return core, files, first, second


def only(member: QueueMember) -> Held:
    """The one lease that a member has."""
    (held,) = member.held.values()
    return held


def standing(core: QueueCore) -> GroupPartitionInfo:
    """Where the group stands."""
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    return found.topics[0].partitions[0]


def test_a_fenced_delivery_log_keeps_messages_readable() -> None:
    """The settle whose sync failed is not acknowledged, nothing is leased, reads go on; reopened, all goes on from what
    is on the disk."""
    core, files, first, second = begin()
    take(core, first, 4)
    core.advance(2 * SECOND)
    fault = files.fail("sync", errno.EIO, path=DELIVERY)
    assert codes(core, first, only(first), Settling.ACCEPT, [0, 1]) == ["LOG_FENCED"]
    assert fault.fired == 1
    call = second.acquire(5, max_wait_us=MINUTE)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert (reply.grants, [one.error.error().code for one in reply.errors]) == ([], ["LOG_FENCED"])
    assert len(core.read(core.topic("orders").partition(0))) == 10
    found = standing(core).problem
    assert found is not None
    assert found.error().code == "LOG_FENCED"
    assert core.wait(core.topics.reopen("default/orders")) == [0]
    assert standing(core).problem is None
    assert sorted(take(core, second, 20)) == [4, 5, 6, 7, 8, 9]


def test_a_group_goes_on_with_a_reopened_delivery_log() -> None:
    """No message is leased twice, what was leased before counts once, and no more is in flight than the group says."""
    core, files, first, second = begin()
    core.wait(core.groups.alter("default/g", GroupSettings(max_in_flight=6)))
    take(core, first, 4)
    core.advance(2 * SECOND)
    fault = files.fail("sync", errno.EIO, path=DELIVERY)
    assert codes(core, first, only(first), Settling.ACCEPT, [0, 1]) == ["LOG_FENCED"]
    assert fault.fired == 1
    core.wait(core.topics.reopen("default/orders"))
    assert [*take(core, second, 3)] == [4, 5, 6]
    assert [*take(core, second, 3)] == [4, 5, 6, 7], "two of the first member's are in flight"
    assert codes(core, first, only(first), Settling.ACCEPT, [2, 3]) == [None]
    assert [*take(core, second, 3)] == [4, 5, 6, 7, 8, 9]
    assert (standing(core).leased, standing(core).floor) == (6, 4)


def test_who_holds_what_is_known_once_a_delivery_log_can_be_read() -> None:
    """It could not be opened at the start: after `topics reopen` a member that comes back without its leases gives them
    back at once."""
    core, files, first, second = begin()
    take(core, first, 4)
    core.advance(2 * SECOND)
    core.topics.close()
    fault = files.fail("open", errno.EIO, path=DELIVERY, times=None)
    core = core.next_process(files)
    assert fault.fired > 0
    first.book.now_us = core.clock.wall_us
    second.connect(core.door())
    call = second.acquire(5, max_wait_us=MINUTE)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert (reply.grants, [one.error.error().code for one in reply.errors]) == ([], ["STORAGE_ERROR"])
    files.heal()
    assert core.wait(core.topics.reopen("default/orders")) == [0]
    first.held.clear()
    first.connect(core.door())
    assert [*take(core, first, 20)] == [*range(10)]


def test_a_reopened_log_of_messages_moves_the_delivery_log_to_its_epoch() -> None:
    """What is acknowledged then is acknowledged after the next start too."""
    core, files, first, _ = begin()
    partition = core.topic("orders").partition(0)
    files.fail("sync", errno.EIO, path=MESSAGES)
    core.send(partition, batch(b"lost"))
    core.settle()
    assert partition.is_fenced
    core.wait(core.topics.reopen("default/orders"))
    core.produce(partition, batch(b"new"))
    held = take(core, first, 20)
    settle_some(core, first, Settling.ACCEPT, [*held])
    core.topics.close()
    core = core.next_process(core.files)
    assert standing(core).floor == len(held)


def test_a_full_disk_refuses_and_changes_nothing() -> None:
    """A settle is refused with the reason and may be repeated; a lease is not given."""
    core, files, first, second = begin()
    take(core, first, 4)
    fault = files.fail("write_at", errno.ENOSPC, path=DELIVERY)
    assert codes(core, first, only(first), Settling.ACCEPT, [0]) == ["DISK_FULL"]
    assert fault.fired == 1
    files.fail("write_at", errno.ENOSPC, path=DELIVERY)
    call = second.acquire(5, max_wait_us=MINUTE)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert (reply.grants, [one.error.error().code for one in reply.errors]) == ([], ["DISK_FULL"])
    assert (standing(core).leased, standing(core).floor) == (4, 0)


def test_an_expiry_that_cannot_be_recorded_is_tried_again() -> None:
    """The message stays leased until that can be said, and is delivered then."""
    core, files, first, second = begin(1)
    take(core, first, 1)
    fault = files.fail("write_at", errno.ENOSPC, path=DELIVERY)
    core.advance(30 * SECOND)
    assert fault.fired == 1
    assert standing(core).leased == 1
    core.advance(2 * SECOND)
    assert [*take(core, second, 1)] == [0]


def test_a_delivery_log_that_cannot_be_opened_says_so() -> None:
    """And is opened by `topics reopen` when the disk is repaired."""
    core, files, first, _ = begin()
    fault = files.fail("create", errno.EACCES, path="*/delivery/*")
    call = first.acquire(5, max_wait_us=MINUTE)
    core.settle()
    assert fault.fired == 1
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert [one.error.error().code for one in reply.errors] == ["STORAGE_ERROR"]
    core.wait(core.topics.reopen("default/orders"))
    assert len(take(core, first, 20)) == 10


def test_damaged_messages_are_settled_and_passed_over() -> None:
    """Leased or not, they are in nobody's way; the others are delivered, the floor passes, and it is counted."""
    core, _, first, second = begin(4)
    partition = core.topic("orders").partition(0)
    core.produce(partition, batch(b"x", b"y"))
    core.produce(partition, batch(b"z"))
    take(core, first, 2)
    partition.log._damage.add(4, 6)  # pyright: ignore[reportPrivateUsage]
    partition.record_damage()
    assert sorted(take(core, second, 20)) == [2, 3, 6]
    states = [core.states(partition.topic_id, offset)["g"].state for offset in range(7)]
    assert states == ["leased"] * 4 + ["damaged"] * 2 + ["leased"]
    assert core.gauges()['tidelog_queue_removed_by_damage_messages_total{group="g"}'] == 2


def test_what_is_cold_is_read_in_before_it_is_leased() -> None:
    """A worker does it; nothing is leased meanwhile, and who asked for no wait waits for that all the same."""
    core, _, first, _ = begin()
    take(core, first, 1)
    core.workers.held = True
    is_cold = True

    def is_resident(_file: DescriptorFile, _position: int, _length: int) -> bool:
        return not is_cold

    with patch.object(DescriptorFile, "is_resident", is_resident):
        call = first.acquire(20)
        core.settle()
        assert call.is_pending
        assert core.gauges()['tidelog_queue_leased_messages{group="g"}'] == 1
        is_cold = False
        assert core.workers.run() == 1
    assert not call.is_pending
    first.harvest()
    assert len(first.held) == 2


@pytest.mark.parametrize("count", [1, 3])
def test_a_redelivered_message_does_not_ship_its_batch(count: int) -> None:
    """Of a thousand in one batch, few leased come in a batch of their own, each at its offset."""
    core, _, first, second = begin(1_000, size=40)
    take(core, first, 1_000)
    some = [10 * number + 7 for number in range(count)]
    settle_some(core, first, Settling.RELEASE, some, delay_us=0)
    call = second.acquire(10)
    core.settle()
    assert call.reply is not None
    assert 0 < len(call.reply.bulk) < 1_000
    second.harvest()
    found = {offset: value for held in second.held.values() for offset, value in held.left.items()}
    assert [*found] == some
    assert all(str(offset) * 20 in value for offset, value in found.items())


def test_a_message_has_its_own_limit_of_attempts() -> None:
    """One says that it is tried once, the other follows the group: also when the lease that ends is from before a
    restart."""
    core = QueueCore(PowerLossFiles())
    core.create("orders", 1)
    core.produce(core.topic("orders").partition(0), batch(b"0", b"1", max_attempts=[1, 0]))
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings(backoff_s=5))
    take(core, member, 1)
    take(core, member, 1)
    for held in member.held.values():
        member.hand_over(held, [*held.left])
    member.acquire(1)
    core.settle()
    again = core.after_kill()
    assert isinstance(again, QueueCore)
    again.advance(31 * SECOND)
    states = [again.states(again.topic("orders").id, offset)["g"] for offset in (0, 1)]
    assert [(state.state, state.attempts) for state in states] == [("dead-lettered", 1), ("waiting", 1)]


def test_leases_that_end_together_end_however_much_that_is() -> None:
    """After a start all leases are due at once. What is to be recorded of them is more than a segment of the log."""
    core, _, first, second = begin(20_000)
    for number in range(20):
        take(core, first, 1_000)
        held = next(reversed(first.held.values()))
        assert len(held.left) == 1_000, number
        settle_some(core, first, Settling.ACCEPT, [*range(1_000 * number, 1_000 * number + 1_000, 2)])
    core.advance(2 * MINUTE)
    assert "leases not ended" not in core.events
    assert core.gauges()['tidelog_queue_leased_messages{group="g"}'] == 0
    assert core.gauges()['tidelog_queue_backlog_messages{group="g"}'] == 10_000
    assert len(take(core, second, 10)) == 10


def test_what_a_member_lost_is_returned_however_much_that_is() -> None:
    """It reconnects and names no lease: all of them are given back at once, though no one batch would hold that."""
    core, _, first, _ = begin(20_000)
    for number in range(20):
        take(core, first, 1_000)
        settle_some(core, first, Settling.ACCEPT, [*range(1_000 * number, 1_000 * number + 1_000, 2)])
    first.held.clear()
    first.connect(core.door())
    take(core, first, 1)
    assert "leases not returned" not in core.events
    assert core.gauges()['tidelog_queue_leased_messages{group="g"}'] == 1


def test_damage_is_passed_over_however_much_that_is() -> None:
    """Every other message of what is damaged was settled before: many ranges, more than one batch holds."""
    core, _, first, second = begin(20_000)
    for number in range(20):
        take(core, first, 1_000)
        settle_some(core, first, Settling.ACCEPT, [*range(1_000 * number, 1_000 * number + 1_000, 2)])
    partition = core.topic("orders").partition(0)
    with patch.object(ledger, "DAMAGED_RANGES", 500):
        partition.log._damage.add(0, 20_000)  # pyright: ignore[reportPrivateUsage]
        partition.record_damage()
    assert "damage not passed over" not in core.events
    assert core.gauges()['tidelog_queue_removed_by_damage_messages_total{group="g"}'] == 10_000
    assert take(core, second, 10) == {}


def test_damage_makes_room() -> None:
    """Who waits because as much is in flight as may be is served when that turns out to be damaged."""
    core, _, first, second = begin(4)
    core.wait(core.groups.alter("default/g", GroupSettings(max_in_flight=4)))
    partition = core.topic("orders").partition(0)
    core.produce(partition, batch(b"z"))
    take(core, first, 4)
    call = second.acquire(1, max_wait_us=MINUTE // 6)
    core.settle()
    assert call.is_pending
    partition.log._damage.add(0, 4)  # pyright: ignore[reportPrivateUsage]
    partition.record_damage()
    core.settle()
    assert not call.is_pending
    second.harvest()
    assert [[*held.left] for held in second.held.values()] == [[4]]


def test_suspects_that_nobody_can_lease_are_in_nobodys_way() -> None:
    """A partition whose delivery log is fenced has suspects: who holds messages of another goes on getting more."""
    core, files, first, second = begin(20)
    core.wait(core.topics.alter("default/orders", partitions=2))
    take(core, first, 20)
    core.advance(MINUTE)
    take(core, second, 20)
    files.fail("sync", errno.EIO, path="*1-0/delivery/0*")
    (held,) = second.held.values()
    second.settle([(held, Settling.ACCEPT, sorted(held.left)[:1], -1)])
    core.settle()
    assert core.topic("orders").partition(0).delivery.is_fenced
    core.produce(core.topic("orders").partition(1), batch(*[b"b"] * 20))
    third = member_of(core, second.book, 3, given=settings())
    assert [len(take(core, third, 5)) for _ in range(4)] == [5, 10, 15, 20]


def test_a_deleted_group_is_counted_no_more() -> None:
    """Nothing of it is kept: groups may come and go for years."""
    core, _, first, _ = begin()
    take(core, first, 1)
    core.wait(core.groups.delete("default/g"))
    assert core.queues._counters == {}  # pyright: ignore[reportPrivateUsage]
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    assert log.fold.states == {}, "and snapshots say nothing of it"
    assert [name for name in core.gauges() if 'group="g"' in name] == []
