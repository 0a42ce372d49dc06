"""The reply to an acquire: what of it is cut on the loop, and what became of its leases while a worker was at it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.frame_door import Call
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.deferred import Deferred
from tidelog.broker.delivery.acquiring import Choice
from tidelog.broker.delivery.offset_set import Span
from tidelog.broker.queues import granting
from tidelog.broker.queues.leased_batches import LeasedBatch
from tidelog.broker.queues.sparse_batch import cut
from tidelog.protocol.batch import Codec, decode_batch
from tidelog.protocol.errors import CorruptError, InternalError
from tidelog.protocol.messages import AcquireReply, GroupPartitionInfo, Settling
from tidelog.protocol.messages.groups import GroupStart

PER_BATCH = 10


def begin(batches: int, size: int = 1, codec: Codec = Codec.NONE) -> tuple[QueueCore, QueueMember, QueueMember]:
    """A core with so many batches of ten messages each, of which a group has the sixth alone left, each released once;
    and two members of it."""
    core = QueueCore()
    core.create("orders", 1)
    for number in range(batches):
        values = [b"%d-%d" % (number, row) + b"." * size for row in range(PER_BATCH)]
        core.produce(core.topic("orders").partition(0), batch(*values, codec=codec))
    book, _events = notebook(core)
    first, second = (member_of(core, book, number, given=settings()) for number in (1, 2))
    everything = range(batches * PER_BATCH)
    for _ in range(0, batches, 100):
        take(core, first, len(everything))
        held = sorted(offset for one in first.held.values() for offset in one.left)
        settle_some(core, first, Settling.ACCEPT, [offset for offset in held if offset % PER_BATCH != 5])
        settle_some(core, first, Settling.RELEASE, [offset for offset in held if offset % PER_BATCH == 5], delay_us=0)
    return core, first, second


def reply_of(core: QueueCore, call: Call) -> AcquireReply:
    """What an acquire was answered."""
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    return reply


def offsets(member: QueueMember) -> list[int]:
    """What a member holds."""
    return sorted(offset for held in member.held.values() for offset in held.left)


def standing(core: QueueCore) -> GroupPartitionInfo:
    """Where the group stands."""
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    return found.topics[0].partitions[0]


def test_few_small_parts_are_cut_on_the_loop_and_more_in_a_worker() -> None:
    """Eight batches are, nine are not, however small each is; all that was leased comes. (A lease of several batches
    does not begin another one.)"""
    core, _first, second = begin(20)
    core.workers.held = True
    assert [*take(core, second, 9)] == [5, 15, 25, 35, 45, 55, 65, 75]
    call = second.acquire(10)
    core.settle()
    assert call.is_pending
    assert len(core.workers.waiting) == 1
    core.workers.run()
    assert len(reply_of(core, call).grants) == 1
    second.harvest()
    assert offsets(second)[8:] == [85, 95, 105, 115, 125, 135, 145, 155, 165]


def test_the_bytes_of_all_parts_together_decide_where_they_are_cut() -> None:
    """Three batches of 100 KB each are more than 256 KiB, two are not."""
    core, _first, second = begin(6, size=10_000)
    core.workers.held = True
    assert [*take(core, second, 3)] == [5, 15]
    second.acquire(4)
    core.settle()
    assert len(core.workers.waiting) == 1
    core.workers.run()
    second.harvest()
    assert offsets(second) == [5, 15, 25, 35, 45]


def test_a_compressed_batch_is_cut_in_a_worker() -> None:
    """Also when it is the only one: nobody knows how much is in it."""
    core, _first, second = begin(1, codec=Codec.ZSTD)
    core.workers.held = True
    second.acquire(1)
    core.settle()
    assert len(core.workers.waiting) == 1
    core.workers.run()
    second.harvest()
    assert offsets(second) == [5]


def test_what_is_leased_is_listed_once_for_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred parts are cut by one list of ranges."""
    core, _first, second = begin(101)
    known = Choice.ranges
    count = 0

    def ranges(choice: Choice) -> Sequence[Span]:
        nonlocal count
        count += 1
        assert known.fget is not None
        return known.fget(choice)

    monkeypatch.setattr(Choice, "ranges", property(ranges))
    assert len(take(core, second, 101)) == 100
    assert count <= 2, "one to record it, one to cut by"


# -- while a worker is at it ---------------------------------------------------------------------------------------


@pytest.fixture
def cutting() -> tuple[QueueCore, QueueMember, QueueMember, Call]:
    """A core, a member that was leased one message whose batch a worker is about to cut, and its acquire."""
    core, first, second = begin(1, codec=Codec.ZSTD)
    core.workers.held = True
    call = second.acquire(10)
    core.settle()
    assert core.workers.waiting
    return core, first, second, call


def test_a_member_is_told_how_long_its_lease_still_runs(
    cutting: tuple[QueueCore, QueueMember, QueueMember, Call],
) -> None:
    """Of 30 seconds a worker took 20: it has 10, after which the lease ends, and not before."""
    core, _first, second, call = cutting
    core.advance(20 * SECOND)
    core.workers.run()
    assert [grant.duration_us for grant in reply_of(core, call).grants] == [10 * SECOND]
    core.advance(10 * SECOND - 1)
    assert standing(core).leased == 1
    core.advance(1)
    assert standing(core).leased == 0
    second.harvest()


def test_a_lease_that_ended_meanwhile_is_not_delivered(
    cutting: tuple[QueueCore, QueueMember, QueueMember, Call],
) -> None:
    """The message is somebody else's by then; the acquire is answered empty."""
    core, first, second, call = cutting
    core.advance(31 * SECOND)
    core.workers.held = False
    assert take(core, first, 1) == {5: 1}
    core.workers.run()
    assert reply_of(core, call).grants == []
    second.harvest()
    assert offsets(second) == []
    assert offsets(first) == [5]


def test_a_lease_that_is_over_and_not_recorded_so_is_given_back(
    cutting: tuple[QueueCore, QueueMember, QueueMember, Call],
) -> None:
    """Its time is up before the loop came to say so: uncounted, and no suspect, since nobody was given it."""
    core, first, _second, call = cutting
    core.clock.advance(30 * SECOND)
    core.workers.run()
    assert reply_of(core, call).grants == []
    assert (standing(core).leased, standing(core).suspect, standing(core).available) == (0, 0, 1)
    core.workers.held = False
    assert take(core, first, 1) == {5: 1}


def test_a_lease_that_was_reset_meanwhile_is_not_delivered(
    cutting: tuple[QueueCore, QueueMember, QueueMember, Call],
) -> None:
    """The group begins anew: what was given out before is nobody's."""
    core, _first, second, call = cutting
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    core.workers.run()
    assert reply_of(core, call).grants == []
    second.harvest()
    assert offsets(second) == []
    assert standing(core).leased == 0


def test_a_bug_while_batches_are_cut_is_that_acquires_own(
    cutting: tuple[QueueCore, QueueMember, QueueMember, Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a worker, which it would end, and the broker with it: INTERNAL, and the message is given back uncounted."""
    core, first, _second, call = cutting

    def boom(*_args: object) -> bytearray:
        raise ValueError("bug")

    monkeypatch.setattr(granting, "cut", boom)
    core.workers.run()
    monkeypatch.undo()
    with pytest.raises(InternalError):
        call.message()
    assert core.events[-1] == "acquire failed"
    core.workers.held = False
    assert take(core, first, 1) == {5: 1}


def begin_two() -> tuple[QueueCore, QueueMember, Call]:
    """A core with a group of which a member asks for the sixth message alone of each of two partitions, both cut in a
    worker, which waits."""
    core = QueueCore()
    core.create("orders", 2)
    for index in range(2):
        values = [b"%d-%d" % (index, row) for row in range(PER_BATCH)]
        core.produce(core.topic("orders").partition(index), batch(*values, codec=Codec.ZSTD))
    book, _events = notebook(core)
    first, second = (member_of(core, book, number, given=settings()) for number in (1, 2))
    take(core, first, 1)
    take(core, first, 20)
    settle_some(core, first, Settling.RELEASE, [5], delay_us=0)
    core.workers.held = True
    call = second.acquire(10)
    core.settle()
    assert core.workers.waiting
    return core, second, call


def test_of_several_leases_those_that_still_run_are_delivered() -> None:
    """Of two partitions one is reset while their batches are cut: the other's messages come, with their own bytes."""
    core, second, call = begin_two()
    part = core.queues.part(core.groups.named("default/g"), 1, 0)
    part.give_back([lease for lease, one in part.state.leases.items() if one.member == 2] if part.state else [])
    core.workers.run()
    assert [grant.partition for grant in reply_of(core, call).grants] == [1]
    second.harvest()
    assert [[*held.left] for held in second.held.values()] == [[5]]


def damage(monkeypatch: pytest.MonkeyPatch, partitions: set[int]) -> None:
    """Have batches of some partitions be found damaged when they are cut."""

    def cutting(batch: LeasedBatch, ranges: Sequence[Span], limit: int) -> bytearray:
        found = cut(batch, ranges, limit)
        if any(b"%d-5" % index in decode_batch(found).values for index in partitions):
            raise CorruptError("damaged")
        return found

    monkeypatch.setattr(granting, "cut", cutting)


def test_of_several_leases_those_that_can_be_cut_are_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is damaged is verified before that is answered, and given back uncounted."""
    core, second, call = begin_two()
    damage(monkeypatch, {0})
    core.workers.run()
    core.settle()
    assert call.reply is None  # before the check
    core.workers.held = False
    core.workers.run()
    assert [grant.partition for grant in reply_of(core, call).grants] == [1]
    second.harvest()
    assert [[*held.left] for held in second.held.values()] == [[5]]
    monkeypatch.undo()
    assert take(core, second, 10) == {5: 1}


def test_where_nothing_can_be_cut_the_acquire_fails_once_it_was_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was found; who asks again is not given the same."""
    core, _second, call = begin_two()
    damage(monkeypatch, {0, 1})
    core.workers.run()
    core.settle()
    assert call.reply is None
    core.workers.held = False
    core.workers.run()
    core.settle()
    with pytest.raises(CorruptError):
        call.message()
