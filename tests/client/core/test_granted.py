"""Leases that wait in the client for their turn."""

from __future__ import annotations

import struct

import pytest
from tests.client.core.leases import lease_of

from tidelog.client.core.granted import Granted, Received
from tidelog.client.core.held_lease import HeldLease
from tidelog.client.core.prefetch import Prefetch
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.batch_header import LEADER_CHECKSUM_AT, leader_checksum
from tidelog.protocol.errors import CorruptError
from tidelog.protocol.messages import Portion


def stored(base: int, count: int, priority: int) -> bytes:
    """Return a batch as the broker stores it."""
    batch = encode_batch([b"%d" % at for at in range(base, base + count)], timestamp_us=1, priority=priority)
    struct.pack_into("<q", batch, 16, base)
    struct.pack_into("<I", batch, LEADER_CHECKSUM_AT, leader_checksum(batch, 0))
    return bytes(batch)


def add(granted: Granted, number: int, priority: int, base: int, *counts: int) -> None:
    """Let a lease come in, of batches of so many messages."""
    bulk, at = b"", base
    for count in counts:
        bulk += stored(at, count, priority)
        at += count
    granted.add(lease_of((base, at), number=number), memoryview(bulk))


def order(granted: Granted) -> list[tuple[int, int]]:
    """Take everything out; return of each batch its lease and its first offset."""
    found: list[tuple[int, int]] = []
    while taken := granted.pop():
        found += [(one.lease.id, one.records.header.base_offset) for one in taken]
    return found


def test_leases_are_taken_in_the_order_in_which_they_came() -> None:
    """Whatever their priorities, which are noted: what the broker gave a low lane as its share is not overtaken."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    add(granted, 1, 0, 0, 2, 2)
    add(granted, 2, 9, 10, 1)
    add(granted, 3, 4, 20, 1)
    assert order(granted) == [(1, 0), (1, 2), (2, 10), (3, 20)]
    assert granted.priorities == {0, 4, 9}


def test_small_batches_of_one_lease_are_taken_together() -> None:
    """Up to so many messages, and at least one batch; none of another lease; put back, they are the next again."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    add(granted, 1, 9, 0, 2, 2, 3, 1)
    add(granted, 2, 9, 8, 1)
    first = granted.pop(4)
    assert [(one.at, one.size) for one in first] == [(0, 2), (2, 2)]
    granted.put_back(first[1:])
    assert [(one.at, one.size) for one in granted.pop(1)] == [(2, 2)]
    assert [(one.lease.id, one.at, one.size) for one in granted.pop(1_000)] == [(1, 4, 3), (1, 7, 1)]
    assert [(one.lease.id, one.at, one.size) for one in granted.pop(1_000)] == [(2, 0, 1)]
    assert granted.pop(1_000) == []


def test_only_a_lease_that_nobody_has_begun_is_taken_back() -> None:
    """One of which a batch was taken out stays, with what is left of it: its first messages are in somebody's hand."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    begun = granted.add(lease_of((0, 2), number=1), memoryview(stored(0, 1, 4) + stored(1, 1, 4)))
    assert len(granted.pop()) == 1
    other = granted.add(lease_of((10, 11), number=2), memoryview(stored(10, 1, 4)))
    assert [granted.take_back(begun), granted.take_back(other), granted.take_back(other)] == [False, True, False]
    assert order(granted) == [(1, 1)]


def test_of_several_priorities_no_more_waits_than_a_moments_worth() -> None:
    """20 ms of handling, as nothing overtakes what is here already; how quick handlers are fed does not change."""
    prefetch = Prefetch(None, 30.0)
    for _ in range(6):
        prefetch.finished(1_000, 0.1)
    assert prefetch.ahead == 2_000
    prefetch.finished(1_000, 0.1, has_lanes=True)
    assert prefetch.ahead == 200
    prefetch.finished(1, 1.0, has_lanes=True)
    assert prefetch.ahead == 2
    quick = Prefetch(None, 30.0)
    for _ in range(12):
        quick.finished(1_000, 0.0005, has_lanes=True)
    assert quick.ahead == 20_000


def mixed(granted: Granted, order: list[tuple[int, int]], *leases: tuple[int, tuple[int, ...]]) -> Received:
    """Let leases come in together, each of a priority and of batches of so many messages, with the order they go in."""
    came: list[tuple[HeldLease, memoryview]] = []
    base = 0
    for number, (priority, counts) in enumerate(leases, 1):
        bulk, start = b"", base
        for count in counts:
            bulk += stored(base, count, priority)
            base += count
        came.append((lease_of((start, base), number=number), memoryview(bulk)))
    return granted.add_all(came, [Portion(grant, count) for grant, count in order])


def portions(granted: Granted, together: int = 1_000) -> list[tuple[int, list[int]]]:
    """Take everything out; return of each list its lease and its offsets."""
    found: list[tuple[int, list[int]]] = []
    while taken := granted.pop(together):
        offsets = [int(one.records.offsets[row]) for one in taken for row in range(one.start, one.stop)]
        assert offsets == taken[0].lease.offsets[taken[0].at : taken[0].at + len(offsets)]
        found.append((taken[0].lease.id, offsets))
    return found


def test_leases_that_came_with_an_order_are_handed_out_in_it() -> None:
    """In portions, across batches and within them; what the order does not name comes last, and a lease that it names
    twice in a row is one list."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    mixed(granted, [(0, 3), (1, 1), (0, 1), (0, 1), (1, 9), (7, 1)], (9, (2, 2, 3)), (0, (2,)))
    add(granted, 3, 4, 20, 1)
    assert portions(granted) == [(1, [0, 1, 2]), (2, [7]), (1, [3, 4]), (2, [8]), (1, [5, 6]), (3, [20])]
    assert granted.priorities == {0, 4, 9}
    assert len(granted) == 0


def test_a_damaged_lease_is_told_and_keeps_no_other_back() -> None:
    """Of three that came together two are damaged: each is told by itself, and the third is handed out."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    received = mixed(granted, [(0, 1), (1, 1), (2, 1), (1, 1)], (9, (2,)), (4, (2,)), (0, (2,)))
    for place in (0, 2):
        lease, bulk = received.leases[place]
        received.leases[place] = (lease, memoryview(bytes(bulk[:-1]) + b"\xff"))
    told: list[int | None] = []
    for _ in range(2):
        with pytest.raises(CorruptError):
            granted.pop()
        told.append(None if granted.failed is None else granted.failed.id)
    assert told == [1, 3]
    assert portions(granted) == [(2, [2, 3])]


def test_a_lease_that_ended_takes_none_of_the_others_along() -> None:
    """Whether it was looked into or not: all of its portions are dropped, and the others keep theirs."""
    for begun in (False, True):
        granted = Granted()
        granted.max_payload_bytes = 1 << 20
        mixed(granted, [(1, 1), (0, 1), (1, 1), (2, 1)], (9, (2,)), (4, (2,)), (0, (1,)))
        if begun:
            assert [(one.lease.id, one.at) for one in granted.pop()] == [(2, 0)]
        ended = granted.next_lease()
        assert ended is not None
        assert ended.id == 1
        granted.skip()
        assert portions(granted) == [(2, [3]) if begun else (2, [2, 3]), (3, [4])]


def test_leases_that_came_together_are_taken_back_together_or_not_at_all() -> None:
    """Once a portion of one is in somebody's hand, all of them stay."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    begun = mixed(granted, [(0, 1), (1, 1)], (9, (1,)), (4, (1,)))
    other = mixed(granted, [(0, 1), (1, 1)], (9, (1,)), (4, (1,)))
    assert len(granted.pop()) == 1
    assert [granted.take_back(begun), granted.take_back(other), granted.take_back(other)] == [False, True, False]
    assert portions(granted) == [(2, [1])]
