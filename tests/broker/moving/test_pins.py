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
    before = giving.counted()["dead_lettered_messages"]
    giving.ask("g", giving.items(held, Settling.REJECT, offsets))
    giving.ask("g", giving.items(held, Settling.RETURN, sorted(held.keys() - {*offsets})))
    core.begin_round()
    core.finish_round()
    while giving.counted()["dead_lettered_messages"] == before:
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


def test_who_has_copies_that_are_not_on_record_for_sure_is_busy() -> None:
    """Nothing waits for its copy any more; the group goes on being at work until the record is synced."""
    core, giving, _target = begin()
    copy_without_record(core, giving, [0, 1, 2])
    part = giving.part()
    assert part.state is not None
    assert not part.state.moves
    assert part.letters.is_busy
    core.settle()
    assert not part.letters.is_busy


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


def test_a_record_that_is_lost_with_its_delivery_log_is_made_from_a_search() -> None:
    """It was appended, its sync failed, and it is not there when the log is opened anew: its copies are found all the
    same, though this process knew them recorded, and are not made again."""
    files = FaultyFiles(MemoryFiles())
    core, giving, _target = begin(files)
    copy_without_record(core, giving, [0, 1, 2])
    fault = files.fail("sync", errno.EIO, path="*/2-0/delivery/0*")
    core.settle()
    assert fault.fired == 1
    inner = files.inner
    (name,) = (name for name in inner.list_folder("partitions/2-0/delivery") if name.endswith(".log"))
    file = inner.open(f"partitions/2-0/delivery/{name}")
    data = file.read_at(0, file.size())
    record = data.rindex(b"TLB1")
    file.write_at(record, bytes(len(data) - record))
    core.wait(core.topics.reopen("default/orders"))
    state = giving.part().state
    assert state is not None
    assert [[*one.offsets] for one in state.moves.intents.values()] == [[0, 1, 2]]
    core.advance(3 * SECOND)
    assert giving.origins() == [0, 1, 2]
    assert sorted(state.dead_lettered) == [0, 1, 2]


def after_power_loss(seed: int) -> Core:
    """Start again after three copies of which the last two may be on record or not."""
    core, giving, _target = begin(PowerLossFiles())
    giving.reject("g", [0])
    core.settle()
    copy_without_record(core, giving, [1, 2])
    return core.after_power_loss(random.Random(seed))


def expire_before_the_search(core: Core) -> None:
    """Let retention have several looks, and workers make snapshots, while the one that was asked first waits."""
    core.workers.held = True
    core.advance(SECOND)
    search, *core.workers.waiting = core.workers.waiting
    for _ in range(6):
        core.workers.run()
        core.topics.expire()
        core.advance(3 * SECOND)
    core.workers.waiting.append(search)
    core.workers.held = False
    core.workers.run()
    core.advance(3 * SECOND)


def test_an_intent_that_is_searched_for_holds_from_where_the_search_begins() -> None:
    """At a start: while nobody has looked for the copies yet, retention leaves them, and takes what lies before."""
    searched = 0
    for seed in range(10):
        core = after_power_loss(seed)
        state = GivingUp(core).part().state
        assert state is not None
        if not state.moves.intents:
            continue
        searched += 1
        target = core.topic("orders.dlq").partition(0)
        assert [(one.search_from, [*one.offsets]) for one in state.moves.intents.values()] == [(1, [1, 2])]
        expire_before_the_search(core)
        assert (target.start_offset, target.visible_offset) == (1, 3), "they were found, not made again"
        expire(core)
        assert (target.start_offset, target.visible_offset) == (2, 3)
    assert searched


def test_a_copy_that_a_search_finds_is_durable_before_it_is_recorded() -> None:
    """A flow that is begun anew in the same process finds copies that no sync has reached: the power may still fail."""
    core, giving, target = begin(PowerLossFiles())
    held = giving.take("g")
    giving.ask("g", giving.items(held, Settling.REJECT, [0]))
    while target.visible_offset == 0 and target.log.end_offset == 0:
        assert core.begin_round()
        core.finish_round()
    assert target.log.synced_offset == 0
    part = giving.part()
    part.letters.restart()
    state = part.state
    assert state is not None
    for begin_again in core.timers.expired(core.time.monotonic_us()):
        begin_again()
    rounds = 0
    while not state.dead_lettered:
        assert core.begin_round()
        core.finish_round()
        rounds += 1
    assert (target.log.synced_offset, target.log.end_offset, rounds) == (1, 1, 1)
