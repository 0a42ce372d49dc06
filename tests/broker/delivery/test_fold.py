"""Deliveries over starts: snapshots, epochs, generations, clocks."""

from __future__ import annotations

import msgspec
import pytest
from tests.broker.delivery.driver import SECOND, VISIBILITY_US, Partition, item

from tidelog.broker.delivery.acquiring import choose, choose_suspects, damaged
from tidelog.broker.delivery.events import Event, Kind
from tidelog.broker.delivery.expiring import expired
from tidelog.broker.delivery.fold import STATE_SECTION, DeliveryFold
from tidelog.broker.delivery.freezing import STATE_VERSION
from tidelog.broker.storage.fold import Section
from tidelog.protocol.batch import BatchHeader, encode_batch
from tidelog.protocol.errors import CorruptError, LeaseLostError, UnsupportedError
from tidelog.protocol.messages import SettleError, Settling
from tidelog.protocol.offset_ranges import pack_ranges

BOOM = SettleError("ValueError", "boom")


def test_leases_survive_a_start_for_what_is_left_of_them():
    """At least a visibility timeout from when the broker serves, and they may be settled."""
    partition = Partition()
    state = partition.state()
    long = partition.acquire(choose(state, 100, 1), duration_us=600 * SECOND)
    short = partition.acquire(choose(state, 100, 1), duration_us=40 * SECOND)
    partition.crash(down_us=39 * SECOND)
    leases = partition.state().leases
    assert leases[long].deadline_us == partition.monotonic_us + 561 * SECOND
    assert leases[short].deadline_us == partition.monotonic_us + VISIBILITY_US
    assert partition.settle(item(Settling.ACCEPT, short, [1])) == [None]


def test_a_start_counts_nothing():
    """Five starts with everything leased and half of it reported: attempts are as before, nobody is suspect."""
    partition = Partition()
    lease = partition.acquire(choose(partition.state(), 10, 10))
    partition.settle(handed=[(lease, range(5))])
    for _ in range(5):
        partition.crash(down_us=SECOND)
    state = partition.state()
    assert [state.attempts(at) for at in range(10)] == [1] * 5 + [0] * 5
    assert (state.counts(10).leased, state.counts(10).suspect) == (10, 0)


@pytest.mark.parametrize(
    ("step_s", "left_s"), [(0, 6), (-3600, 10), (3600, 0), (-2, 8)], ids=["none", "back", "forward", "a little back"]
)
def test_a_wait_is_the_smaller_of_what_time_and_delay_say(step_s: int, left_s: int):
    """A released message is never available before its wait by both, and never waits longer than its delay."""
    partition = Partition()
    lease = partition.acquire(choose(partition.state(), 1, 1))
    partition.settle(item(Settling.RELEASE, lease, [0], delay_us=10 * SECOND))
    partition.wall_us += step_s * SECOND
    partition.crash(down_us=4 * SECOND)
    assert partition.state().next_due_us() == partition.monotonic_us + left_s * SECOND


def test_a_message_released_twice_waits_for_the_second_time():
    """Also where the first wait had been over and that is recorded nowhere."""
    partition = Partition()
    state = partition.state()
    partition.settle(item(Settling.RELEASE, partition.acquire(choose(state, 1, 1)), delay_us=SECOND))
    partition.advance(SECOND)
    state.wake(partition.monotonic_us)
    partition.settle(item(Settling.RELEASE, partition.acquire(choose(state, 1, 1)), delay_us=60 * SECOND))
    partition.crash()
    state = partition.state()
    state.check()
    assert not state.wake(partition.monotonic_us + 59 * SECOND)
    assert state.wake(partition.monotonic_us + 60 * SECOND)


def test_a_repeat_is_known_after_any_number_of_starts():
    """The same outcome is OK, another is LEASE_LOST, by member and by token, with and without snapshots."""
    partition = Partition()
    lease = partition.acquire(choose(partition.state(), 10, 10))
    mine, by_token = item(Settling.ACCEPT, lease, [0, 1]), item(Settling.REJECT, lease, [2])
    partition.settle(mine, number=3)
    partition.settle(by_token, member=0, number=0)
    for snapshot in (None, partition.snapshot(), None):
        partition.crash(snapshot=snapshot)
        assert partition.decide(mine, number=3).results == [None]
        assert partition.decide(by_token, member=0, number=0).results == [None]
        refused = partition.decide(item(Settling.RETURN, lease, [0]), number=3).results
        assert [type(result) for result in refused] == [LeaseLostError]
    assert partition.decide(mine, number=3).events == []


def test_acknowledgements_of_lost_messages_do_not_settle_those_that_follow():
    """Acks for offsets that power loss took back, new messages at those offsets, two more starts: all are delivered."""
    partition = Partition(end=0)
    partition.publish(100)
    partition.settle(item(Settling.ACCEPT, partition.acquire(choose(partition.state(), 100, 100))))
    partition.crash(end=60)
    assert (partition.state().frontier, partition.fold.clipped) == (60, 40)
    partition.publish(40)
    assert choose(partition.state(), 100, 1_000).ranges == [(60, 100)]
    for _ in range(2):
        partition.crash()
        assert choose(partition.state(), 100, 1_000).ranges == [(60, 100)]


def test_a_snapshot_is_bounded_by_the_epoch_it_was_taken_in():
    """As events are: what it says of lost offsets is not said of those that follow, and all else holds."""
    partition = Partition(end=0)
    partition.publish(100)
    partition.settle(item(Settling.ACCEPT, partition.acquire(choose(partition.state(), 100, 100))))
    snapshot = partition.snapshot()
    partition.crash(end=60, snapshot=snapshot)
    assert partition.state().floor == 60
    partition.publish(40)
    partition.crash(snapshot=snapshot)
    assert choose(partition.state(), 100, 1_000).ranges == [(60, 100)]


def test_a_snapshot_of_an_intact_log_keeps_all_it_says():
    """What was settled stays so: the epochs before the snapshot's own do not bound it."""
    partition = Partition(end=0)
    partition.publish(50)
    partition.crash()
    partition.publish(50)
    partition.settle(item(Settling.ACCEPT, partition.acquire(choose(partition.state(), 100, 100))))
    partition.crash(snapshot=partition.snapshot())
    assert partition.state().floor == 100


def test_a_group_that_begins_at_the_end_gets_what_replaces_lost_messages():
    """Begun at offset 100, of which power loss left 60: the new ones from 60 on are its own, also from a snapshot."""
    for use_snapshot in (False, True):
        partition = Partition(end=0)
        partition.publish(100)
        partition.state(group=2, begin=100)
        partition.crash(end=60, snapshot=partition.snapshot() if use_snapshot else None)
        partition.publish(40)
        assert choose(partition.state(group=2, begin=60), 100, 1_000).ranges == [(60, 100)]


def test_an_offset_that_is_given_again_waits_for_its_own_time():
    """The message log lost a message that waits, under a running group: the one that has its offset now is not due by
    the wait of that one."""
    partition = Partition(end=10)
    lost = partition.acquire(choose(partition.state(), 10, 10))
    partition.settle(item(Settling.RELEASE, lost, [7], delay_us=5 * SECOND))
    partition.epoch, partition.end = 2, 5
    partition.publish(5)
    partition.fold.enter_epoch(2)
    new = partition.acquire(choose(partition.state(), 10, 10))
    partition.settle(item(Settling.RELEASE, new, [7], delay_us=20 * SECOND))
    partition.advance(6 * SECOND)
    assert (partition.state().wake(partition.monotonic_us), [*partition.state().waiting.offsets]) == (False, [7])
    partition.advance(14 * SECOND)
    assert (partition.state().wake(partition.monotonic_us), [*partition.state().ready]) == (True, [7])


def test_a_group_that_begins_in_a_new_epoch_is_not_clipped_by_the_old_ones_end():
    """Events of the new epoch follow those of the old; the group began behind what the old one lost."""
    partition = Partition(end=0)
    partition.publish(100)
    partition.acquire(choose(partition.state(), 100, 10))
    partition.crash(end=60)
    partition.publish(40)
    state = partition.state(group=2, begin=90)
    partition.acquire(choose(partition.state(), 100, 10))
    assert choose(state, 100, 1_000).ranges == [(90, 100)]


def test_events_of_an_earlier_generation_say_nothing():
    """After a reset the old life's leases and settles are void, live and after a start."""
    partition = Partition(end=10)
    lease = partition.acquire(choose(partition.state(), 10, 10))
    settled = partition.decide(item(Settling.ACCEPT, lease)).events
    assert partition.state(generation=2, begin=4).counts(10).available == 6
    late = Event(Kind.ACQUIRED, 1, 1, pack_ranges([(4, 10)]), lease=99, member=1, duration_us=SECOND)
    partition.record(*settled, late)
    assert partition.state(generation=2, begin=4).counts(10).available == 6
    partition.crash()
    assert choose(partition.state(generation=2, begin=4), 10, 100).ranges == [(4, 10)]


def test_groups_do_not_affect_each_other():
    """What one leases, settles and loses is as new to the other."""
    partition = Partition(end=10)
    other = partition.state(group=2)
    lease = partition.acquire(choose(partition.state(), 10, 10))
    partition.settle(item(Settling.REJECT, lease, [0, 1]), item(Settling.ACCEPT, lease, [2]))
    assert choose(other, 10, 100).ranges == [(0, 10)]
    theirs = partition.acquire(choose(other, 10, 10), group=2, member=9)
    assert partition.settle(item(Settling.ACCEPT, theirs), member=9, group=2) == [None]
    assert [*partition.state().leases] == [lease]


def test_a_deleted_group_is_forgotten():
    """Its state goes, and an event of it makes no other group's."""
    partition = Partition(end=10)
    partition.acquire(choose(partition.state(), 10, 10))
    partition.fold.drop(1)
    assert partition.fold.states == {}


def test_everything_survives_a_snapshot():
    """Leases with what was handed over, waits, suspects, marks, rejections and damage are as they were."""
    partition = Partition()
    state = partition.state()
    down = partition.acquire(choose(state, 1_000, 50))
    partition.record(*expired(state, 1, 1, state.leases[down], partition.retrying))
    alone = partition.acquire(choose_suspects(state, 1_000, 5))
    lease = partition.acquire(choose(state, 1_000, 10))
    partition.settle(
        item(Settling.RELEASE, lease, [50], error=BOOM),
        item(Settling.REJECT, lease, [51], error=BOOM),
        item(Settling.RETURN, lease, [52]),
        handed=[(lease, [53])],
    )
    partition.record(damaged(1, 1, [(54, 55)]))
    partition.crash(snapshot=partition.snapshot(), stored=None)
    after = partition.state()
    after.check()
    assert (after.leases[alone].is_alone, [*after.leases[alone].left]) == (True, [0, 1, 2, 3, 4])
    assert ([*after.leases[lease].left], [*after.leases[lease].handed]) == ([53, 55, 56, 57, 58, 59], [53])
    assert ([*after.suspects], [*after.ready]) == ([*range(5, 50)], [52])
    assert (after.marks.get(50).error, after.rejected.get(51).error, after.attempts(53)) == (BOOM, None, 1)
    assert ([*after.waiting.offsets], [*after.damaged]) == ([50], [54])


def test_a_frozen_state_does_not_change():
    """What is recorded between freezing and packing is not in the snapshot."""
    partition = Partition()
    lease = partition.acquire(choose(partition.state(), 10, 10))
    pack = partition.fold.freeze()
    partition.settle(item(Settling.ACCEPT, lease, range(5)), handed=[(lease, range(10))])
    partition.settle(item(Settling.RELEASE, lease, [5]))
    fold = DeliveryFold(lambda _epoch: 1_000)
    fold.restore(pack())
    assert [*fold.states[1].leases[lease].left] == [*range(10)]
    assert (len(fold.states[1].leases[lease].handed), len(fold.states[1].waiting), len(fold.states[1].marks)) == (
        0,
        0,
        0,
    )


def test_a_million_holes_fit_in_little():
    """Every second of two million settled: the snapshot, of a thousand leases that hold the rest, stays below 3 MB."""
    partition = Partition(end=2_000_000)
    state = partition.state()
    for first in range(0, 2_000_000, 2_000):
        lease = partition.acquire(choose(state, 2_000_000, 2_000))
        partition.settle(item(Settling.ACCEPT, lease, range(first, first + 2_000, 2)))
    assert (len(state.open), state.floor) == (1_000_000, 1)
    sections = partition.fold.freeze()()
    assert len(sections[0].data) < 3_000_000


def test_an_event_of_a_later_broker_refuses_the_open():
    """Nothing is guessed: the error is typed and says what was found."""
    partition = Partition()
    batch = encode_batch([b"\x63\x01" + bytes(62)], timestamp_us=0)
    with pytest.raises(UnsupportedError, match="kinds 1 to 13, version 1, found kind 99"):
        partition.fold.apply_batch(BatchHeader.read(batch), memoryview(batch))
    two = encode_batch([b"\x01\x02" + bytes(62), b""], timestamp_us=0)
    with pytest.raises(UnsupportedError, match="found kind 1, version 2"):
        partition.fold.apply_batch(BatchHeader.read(two), memoryview(two))


@pytest.mark.parametrize(
    "data", [b"", b"\x00", msgspec.msgpack.encode([1, [[1]]]), msgspec.msgpack.encode([1, []])[:-1]]
)
def test_a_snapshot_of_something_else_is_refused(data: bytes):
    """A section that does not decode is CORRUPT, so that an older snapshot is taken."""
    fold = DeliveryFold(lambda _epoch: 0)
    with pytest.raises(CorruptError):
        fold.restore([Section(STATE_SECTION, STATE_VERSION, data)])
