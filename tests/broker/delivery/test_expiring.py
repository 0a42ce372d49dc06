"""Leases that end by themselves: what counts, who is suspect, and how a killer is found."""

from __future__ import annotations

import pytest
from tests.broker.delivery.driver import PLAIN, SECOND, VISIBILITY_US, Partition, item

from tidelog.broker.delivery.acquiring import choose, choose_suspects
from tidelog.broker.delivery.backoff import Backoff, BackoffKind, RetryPolicy
from tidelog.broker.delivery.events import Flag
from tidelog.broker.delivery.expiring import expired, leases_due, returned
from tidelog.broker.delivery.queue_state import QueueState
from tidelog.protocol.messages import Settling

AT_ONCE = RetryPolicy(3, Backoff(BackoffKind.CONSTANT, 0, 0, 1.0, 0.0))


def go_down(partition: Partition, lease: int) -> None:
    """Let the member of a lease go down."""
    state = partition.state()
    partition.record(*expired(state, 1, 1, state.leases[lease], partition.retrying))
    state.check()


def test_what_was_reported_counts_and_the_rest_is_suspect():
    """The reported ones wait by the backoff, suspects as well since they are two; the others are available at once,
    uncounted, and apart."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, 100, 100))
    partition.settle(handed=[(lease, [0, 1])])
    go_down(partition, lease)
    assert [*state.waiting.offsets] == [0, 1]
    assert [state.attempts(at) for at in (0, 1, 2, 99)] == [1, 1, 0, 0]
    assert [state.marks.get(at).suspect for at in (0, 1, 2, 99)] == [10, 10, 10, 10]
    assert state.counts(200).suspect == 98


def test_of_several_in_hand_none_is_blamed_before_it_was_alone():
    """A batch of ten goes down with its worker at its only attempt: nine are acknowledged one by one in the end, and
    the one that kills its worker each time is the one that is rejected, after it was leased alone."""
    partition = Partition(lambda offsets: [(offsets, RetryPolicy(1, Backoff(initial_us=0, max_us=0)))])
    state = partition.state()
    lease = partition.acquire(choose(state, 10, 10))
    partition.settle(handed=[(lease, [*range(10)])])
    go_down(partition, lease)
    assert [state.attempts(at) for at in range(10)] == [0] * 10
    for at in range(10):
        choice = choose_suspects(state, 10, 10)
        assert [*choice.offsets] == [at]
        alone = partition.acquire(choice)
        if at == 3:
            go_down(partition, alone)
        else:
            partition.settle(item(Settling.ACCEPT, alone, [at]))
    assert [*state.rejected.offsets] == [3]
    assert state.counts(10).floor == 10


def test_one_in_hand_is_given_up_at_its_limit():
    """Nothing else was handed over, so it is to blame: also where more was leased."""
    partition = Partition(lambda offsets: [(offsets, RetryPolicy(1))])
    state = partition.state()
    lease = partition.acquire(choose(state, 10, 10))
    partition.settle(handed=[(lease, [0])])
    go_down(partition, lease)
    assert [*state.rejected.offsets] == [0]
    assert state.counts(10).suspect == 9


def test_a_lease_ends_at_its_deadline_and_not_before():
    """What is due is told exactly, the earliest first, and again until it was recorded."""
    partition = Partition()
    state = partition.state()
    late = partition.acquire(choose(state, 100, 1), duration_us=2 * SECOND)
    early = partition.acquire(choose(state, 100, 1), duration_us=SECOND)
    begun = partition.monotonic_us
    assert leases_due(state, begun + SECOND - 1) == []
    assert [lease.id for lease in leases_due(state, begun + 2 * SECOND)] == [early, late]
    assert [lease.id for lease in leases_due(state, begun + 2 * SECOND)] == [early, late]
    go_down(partition, early)
    assert [lease.id for lease in leases_due(state, begun + 2 * SECOND)] == [late]


def test_suspects_are_leased_apart_and_in_shrinking_groups():
    """A thousand, then a hundred, then ten, then one alone, which counts when it is leased."""
    partition = Partition(lambda offsets: [(offsets, AT_ONCE)])
    state = partition.state()
    lease = partition.acquire(choose(state, 1_000, 1_000))
    sizes: list[int] = []
    for _ in range(3):
        go_down(partition, lease)
        chosen = choose_suspects(state, 1_000, 1_000)
        sizes.append(chosen.count)
        assert choose(state, 1_000, 1_000).count == 0
        lease = partition.acquire(chosen)
        assert state.leases[lease].is_alone
    assert sizes == [100, 10, 1]
    assert [*state.leases[lease].handed] == [0]


@pytest.mark.parametrize(("count", "alone"), [(100, 3), (30, 1)])
def test_one_that_is_to_be_alone_is_not_leased_with_its_neighbours(count: int, alone: int):
    """A group of suspects, of ten or of two, ends before one that is under a stricter suspicion."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, count, count))
    partition.settle(item(Settling.SUSPECT, lease, [alone]))
    go_down(partition, lease)
    assert choose_suspects(state, count, 100).ranges == [(0, alone)]
    partition.acquire(choose_suspects(state, count, 100))
    assert choose_suspects(state, count, 100).ranges == [(alone, alone + 1)]


def test_only_a_settle_clears_suspicion():
    """Expiry and return keep it, at the strictest that was said; a release takes it away."""
    partition = Partition(lambda offsets: [(offsets, AT_ONCE)])
    state = partition.state()
    go_down(partition, partition.acquire(choose(state, 1, 1)))
    partition.record(returned(1, 1, state.leases[partition.acquire(choose_suspects(state, 1, 1))]))
    assert (state.marks.get(0).suspect, state.attempts(0)) == (1, 0)
    go_down(partition, partition.acquire(choose_suspects(state, 1, 1)))
    assert (state.marks.get(0).suspect, state.attempts(0)) == (1, 1)
    partition.settle(item(Settling.RELEASE, partition.acquire(choose_suspects(state, 1, 1))))
    assert (state.marks.get(0).suspect, state.attempts(0), [*state.ready]) == (0, 2, [0])


def worker(partition: Partition, state: QueueState, killer: int) -> bool:
    """Take work as a worker does that dies in the handler of one message, before it reports anything; return whether
    there was any."""
    chosen = choose_suspects(state, 1_000, 1_000) or choose(state, 1_000, 1_000)
    if not chosen:
        return False
    lease = partition.acquire(chosen)
    if killer in chosen.offsets:
        accepted = [offset for offset in chosen.offsets if offset < killer]
        if accepted:
            partition.settle(item(Settling.ACCEPT, lease, accepted))
        go_down(partition, lease)
    else:
        partition.settle(item(Settling.ACCEPT, lease))
    return True


def test_a_message_that_kills_its_worker_ends_alone_in_every_position():
    """However early or late it lies in a lease of a thousand, it is rejected, at its limit, and nobody else is."""
    for killer in (0, 1, 499, 500, 998, 999):
        partition = Partition(lambda offsets: [(offsets, AT_ONCE)])
        state = partition.state()
        for _ in range(100):
            if not worker(partition, state, killer):
                break
        assert ([*state.rejected.offsets], state.floor, state.rejected.get(killer).attempts) == ([killer], 1_000, 3)


def test_a_process_that_ends_itself_each_time_is_found_too():
    """The message in hand of a SystemExit is uncounted once, then leased alone, where each time counts."""
    partition = Partition(lambda offsets: [(offsets, AT_ONCE)])
    state = partition.state()
    times = 0
    while chosen := choose_suspects(state, 1, 1) or choose(state, 1, 1):
        partition.settle(item(Settling.SUSPECT, partition.acquire(chosen), [0]))
        times += 1
    assert (times, state.rejected.get(0).attempts) == (4, 3)


def test_clients_that_count_by_lease_have_all_of_it_counted():
    """With `counts` each lease is an attempt for all its messages, reported or not."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, 100, 100), counts=True)
    go_down(partition, lease)
    assert (state.counts(100).suspect, state.counts(100).waiting, state.attempts(99)) == (0, 100, 1)


def test_a_lease_that_nobody_received_is_given_back_uncounted():
    """At once available, no suspicion, no attempt."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, 10, 10))
    partition.settle(handed=[(lease, [0])])
    partition.record(returned(1, 1, state.leases[lease]))
    assert (state.counts(10).available, state.attempts(0), len(state.marks)) == (10, 0, 0)


def test_expiry_says_that_it_was_expiry():
    """Its events have the flag, and no error of anybody's."""
    partition = Partition(lambda offsets: [(offsets, RetryPolicy(1, PLAIN.backoff))])
    state = partition.state()
    lease = partition.acquire(choose(state, 2, 2))
    partition.settle(handed=[(lease, [0])])
    events = expired(state, 1, 1, state.leases[lease], partition.retrying)
    assert [(event.kind.name, event.flags, event.spans, event.error) for event in events] == [
        ("SUSPECTED", Flag.EXPIRED, [(1, 2)], None),
        ("REJECTED", Flag.EXPIRED | Flag.AT_LIMIT, [(0, 1)], None),
    ]


def test_many_renewals_leave_no_heap_behind():
    """The noted deadlines stay within a few times the leases, however often these are renewed."""
    partition = Partition()
    state = partition.state()
    lease = partition.acquire(choose(state, 10, 10))
    for _ in range(1_000):
        partition.advance(SECOND)
        partition.settle(item(Settling.RENEW, lease))
    assert len(state.deadlines) <= 68
    assert state.next_due_us() == partition.monotonic_us + VISIBILITY_US
