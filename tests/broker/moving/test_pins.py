"""Retention leaves copies alone of which it is not durable yet that they were made."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence

from tests.helpers.broker_core import SECOND, Core, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.giving_up import GivingUp, letter_settings
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.moving.pins import Pins
from tidelog.broker.partition import Partition
from tidelog.broker.storage.files import Files, MemoryFiles
from tidelog.protocol.errors import LogFencedError
from tidelog.protocol.messages import Settling

KIB = 1024


def begin(files: Files | None = None) -> tuple[Core, GivingUp, Partition]:
    """A core whose dead-letter topic has a segment for each letter, and keeps none longer than it must."""
    core = Core(files)
    target = core.create("orders.dlq", 1, {"segment_bytes": 64 * KIB, "retention_bytes": 1}).partition(0)
    orders = core.create("orders").partition(0)
    for number in range(6):
        core.produce(orders, batch(b"%d" % number * 40 * KIB))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    core.advance(3 * SECOND)
    return core, giving, target


def copy_without_record(core: Core, giving: GivingUp, offsets: Sequence[int]) -> None:
    """Let copies be made and synced; that they were made is on record, but not synced."""
    held = giving.take("g")
    giving.ask("g", giving.items(held, Settling.REJECT, offsets))
    giving.ask("g", giving.items(held, Settling.RETURN, sorted(held.keys() - {*offsets})))
    core.begin_round()
    core.finish_round()
    while not giving.counted()["dead_lettered_messages"]:
        assert core.begin_round()
        core.finish_round()


def expire(core: Core) -> None:
    """Let retention have several looks, and snapshots be taken in between, without which nothing goes."""
    for _ in range(3):
        core.topics.expire()
        core.advance(3 * SECOND)


def test_pins_hold_from_the_lowest_on_until_they_are_released() -> None:
    """Each is for one log; a second release of one is nothing."""
    core, _giving, target = begin()
    pins, topic = Pins(), core.topic("orders.dlq")
    core.produce(target, *(batch(b"x" * 50 * KIB) for _ in range(3)))
    sealed = target.log.sealed_segments()
    assert pins(topic, target) is None
    high, low = pins.hold(target.log.log_id, 2), pins.hold(target.log.log_id, 1)
    pins.hold(7, 0)
    asked = pins(topic, target)
    assert asked is not None
    assert [asked(one) for one in sealed] == [True, False]
    pins.release(low)
    asked = pins(topic, target)
    assert asked is not None
    assert [asked(one) for one in sealed] == [True, True]
    for _ in range(2):
        pins.release(high)
    assert pins(topic, target) is None
    assert len(pins) == 1


def test_copies_stay_until_their_record_is_synced() -> None:
    """A start that finds neither would make them again: so retention by bytes waits for one sync."""
    core, giving, target = begin()
    copy_without_record(core, giving, [0, 1, 2])
    core.topics.expire()
    assert (target.start_offset, target.log.held_segments) == (0, 2)
    expire(core)
    assert target.start_offset == 2


def test_what_was_removed_is_not_made_again_after_a_power_loss() -> None:
    """Whatever of the record is lost with the power: the copies that it was of are there to be found."""
    for seed in range(20):
        rng = random.Random(seed)
        core, giving, _target = begin(PowerLossFiles())
        copy_without_record(core, giving, [0, 1, 2])
        core.topics.expire()
        core = core.after_power_loss(rng)
        core.advance(3 * SECOND)
        assert GivingUp(core).origins() == [0, 1, 2]
        expire(core)
        assert core.topic("orders.dlq").partition(0).start_offset == 2


def test_pins_outlive_a_delivery_log_that_is_fenced() -> None:
    """The record of the copies failed to be synced: they stay until the log is opened anew, and they are found."""
    files = FaultyFiles(MemoryFiles())
    core, giving, target = begin(files)
    copy_without_record(core, giving, [0, 1, 2])
    fault = files.fail("sync", errno.EIO, path="*/2-0/delivery/0*")
    core.settle()
    assert fault.fired == 1
    assert isinstance(giving.part().problem(), LogFencedError)
    expire(core)
    assert target.start_offset == 0
    core.wait(core.topics.reopen("default/orders"))
    core.advance(3 * SECOND)
    assert giving.origins() == [0, 1, 2]
    expire(core)
    assert target.start_offset == 2


def test_an_intent_that_is_searched_for_holds_from_where_the_search_begins() -> None:
    """At a start, before anything is served: the target may be looked at by retention first."""
    files = PowerLossFiles()
    core, giving, _target = begin(files)
    giving.reject("g", [0])
    core.settle()
    copy_without_record(core, giving, [1, 2])
    core = core.after_kill()
    core.topics.expire()
    target = core.topic("orders.dlq").partition(0)
    assert target.start_offset <= 1
    expire(core)
    assert target.start_offset == 2
    assert GivingUp(core).part().letters.problem is None
