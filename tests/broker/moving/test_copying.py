"""How records go into batches of copies, and which copies lie one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.helpers.broker_core import Core, batch
from tests.helpers.giving_up import GivingUp, letter_settings

from tidelog.broker.delivery.offset_set import OffsetSet
from tidelog.broker.moving.copying import Copying
from tidelog.broker.moving.search import in_runs
from tidelog.broker.moving.source import Header
from tidelog.broker.queues.leased_batches import LeasedBatch
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.batch import RoutingColumns, decode_batch, encode_batch
from tidelog.protocol.columns import RETRY
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES

KIB = 1024


def with_retries(limit: int) -> memoryview:
    """Two messages that have their own limit of attempts."""
    retries = np.zeros(2, RETRY)
    retries["max_attempts"] = limit
    return memoryview(encode_batch([b"a", b"b"], timestamp_us=1, routing=RoutingColumns(retries=retries)))


@pytest.mark.parametrize(
    ("limits", "copied"), [((5, 0), [5, 5, 0, 0]), ((0, 6), [0, 0, 6, 6]), ((5, 0, 7), [5, 5, 0, 0, 7, 7])]
)
def test_in_a_batch_of_copies_each_keeps_its_own_policy(limits: tuple[int, ...], copied: list[int]) -> None:
    """Beside messages that have none, before or behind them: 0 is the group's."""
    core = Core()
    batches = [with_retries(limit) if limit else batch(b"a", b"b") for limit in limits]
    core.produce(core.create("orders").partition(0), *batches)
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    giving.reject("g", range(len(copied)))
    core.settle()
    (stored,) = (decode_batch(data) for data in core.read_batches(core.topic("orders.dlq").partition(0)))
    assert stored.routing.retries is not None
    assert stored.routing.retries["max_attempts"].tolist() == copied


def said(offset: int, headers: Sequence[Header]) -> Sequence[Header]:
    """What each copy says."""
    assert (offset >= 0, [*headers]) == (True, [])
    return [("tidelog.dlq.x", b"")]


@pytest.mark.parametrize("count", [2, 10])
def test_a_batch_of_several_copies_is_as_large_as_it_may_be_at_most(count: int) -> None:
    """Its own header counts: what the copies come to may fill it to the byte."""
    retries = np.zeros(count, RETRY)
    retries["max_attempts"] = 5
    core = Core()
    orders, routing = core.create("orders").partition(0), RoutingColumns(retries=retries)
    times_us = [*range(1 << 40, (1 << 40) * (count + 1), 1 << 40)]
    data = encode_batch([None] * count, keys=[b"k"] * count, timestamps_us=times_us, routing=routing)
    core.produce(orders, memoryview(data))
    (stored,) = core.read_batches(orders)
    file = MemoryFiles().create("stored", len(stored))
    file.write_at(0, stored)
    lengths: set[int] = set()
    for most in range(250, 170 * count + 200):
        copying = Copying(
            [LeasedBatch(file, 0, len(stored), 0, count, has_retries=True, is_compressed=False, is_whole=True)],
            OffsetSet(range(count)),
            said,
            7,
            max_batch_bytes=most,
            max_payload_bytes=1024 * KIB,
        )
        copying.run()
        assert sorted(offset for one in copying.made for offset in one.offsets) == [*range(count)]
        assert all(len(one.data) <= most for one in copying.made if len(one.offsets) > 1), most
        lengths.add(len(copying.made))
    assert {1, count} <= lengths


def copied_into(segment_bytes: int) -> Core:
    """A core with a message of 70 KiB that was given up, and segments of that size for its copy."""
    core = Core()
    core.create("orders.dlq", 1, {"segment_bytes": segment_bytes})
    core.produce(core.create("orders").partition(0), batch(b"x" * 70 * KIB))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    giving.reject("g", [0])
    core.settle()
    return core


def test_a_copy_as_large_as_a_segment_is_made() -> None:
    """To the byte; for one byte more there is none, which is said."""
    (copy,) = core_batches(copied_into(1024 * KIB))
    room = len(copy) + SEGMENT_HEADER_BYTES
    core = copied_into(room)
    assert [len(one) for one in core_batches(core)] == [len(copy)]
    assert GivingUp(core).part().letters.problem is None
    core = copied_into(room - 1)
    assert core_batches(core) == []
    problem = GivingUp(core).part().letters.problem
    assert problem is not None
    assert (problem.code, problem.details["limit"], problem.details["found"]) == (
        "BATCH_TOO_LARGE",
        len(copy) - 1,
        len(copy),
    )


def core_batches(core: Core) -> list[bytes]:
    """The batches of the dead-letter topic."""
    return core.read_batches(core.topic("orders.dlq").partition(0))


@pytest.mark.parametrize(
    ("found", "runs"),
    [
        ({}, []),
        ({3: 10, 5: 11, 9: 12}, [([3, 5, 9], 10)]),
        ({3: 10, 5: 12}, [([3], 10), ([5], 12)]),
        ({5: 10, 3: 11}, [([5], 10), ([3], 11)]),
        ({1: 20, 2: 21, 7: 11, 8: 12, 0: 22}, [([7, 8], 11), ([1, 2], 20), ([0], 22)]),
    ],
)
def test_copies_are_recorded_in_runs(found: dict[int, int], runs: list[tuple[list[int], int]]) -> None:
    """A run has both ascending, without a gap between copies: else the ranges of its record would tell other pairs."""
    assert [([*one.offsets], one.first_copy) for one in in_runs(found)] == runs
