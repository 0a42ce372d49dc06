"""Leases that wait in the client for their turn."""

from __future__ import annotations

import struct

import pytest
from tests.client.core.leases import lease_of

from tidelog.client.core.granted import Granted
from tidelog.client.core.prefetch import Prefetch
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.batch_header import LEADER_CHECKSUM_AT, leader_checksum
from tidelog.protocol.errors import CorruptError


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
    while (one := granted.pop()) is not None:
        found.append((one.lease.id, one.records.header.base_offset))
    return found


def test_a_lease_of_a_higher_priority_goes_before_those_that_came_earlier() -> None:
    """Among equals the first is first; a lease that was begun is gone on with afterwards, from its next batch on."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    add(granted, 1, 0, 0, 2, 2, 2)
    add(granted, 2, 4, 10, 1)
    add(granted, 3, 4, 20, 1)
    first = granted.pop()
    assert first is not None
    assert first.lease.id == 2
    add(granted, 4, 9, 30, 1, 1)
    assert order(granted) == [(4, 30), (4, 31), (3, 20), (1, 0), (1, 2), (1, 4)]
    add(granted, 5, 0, 40, 1, 1)
    begun = granted.pop()
    assert begun is not None
    add(granted, 6, 7, 50, 1)
    assert order(granted) == [(6, 50), (5, 41)]
    assert granted.priorities == {0, 4, 7, 9}


def test_the_lease_that_is_skipped_is_the_one_whose_turn_it_is() -> None:
    """One that overtook, and then the rest of the one it overtook."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    add(granted, 1, 0, 0, 1, 1)
    assert granted.pop() is not None
    add(granted, 2, 9, 10, 1)
    turns: list[int] = []
    while (lease := granted.next_lease()) is not None:
        turns.append(lease.id)
        granted.skip()
    assert turns == [2, 1]
    assert len(granted) == 0


def test_a_damaged_lease_is_told_when_it_is_taken_and_hides_no_other() -> None:
    """Looking whose turn it is decodes nothing; what is behind the damaged one comes next."""
    granted = Granted()
    granted.max_payload_bytes = 1 << 20
    add(granted, 1, 0, 0, 1, 1)
    assert granted.pop() is not None
    bad = bytearray(stored(10, 1, 9))
    bad[-1] ^= 1
    granted.add(lease_of((10, 11), number=2), memoryview(bytes(bad)))
    turn = granted.next_lease()
    assert turn is not None
    assert turn.id == 2
    with pytest.raises(CorruptError):
        granted.pop()
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
