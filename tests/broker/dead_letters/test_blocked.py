"""Copies that cannot be made: nothing is settled or lost meanwhile, everybody sees why, and repaired there is one each."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import SECOND, Core, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.giving_up import MINUTE, GivingUp, letter_settings

from tidelog.broker.deferred import Deferred
from tidelog.broker.moving.pins import Pins
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.topics import TopicDefaults, TopicLimits
from tidelog.protocol.messages import GroupPartitionInfo, GroupSettings, GroupStart, Settling

KIB = 1024
DLQ = "*/2-0/messages/0*"
"""The dead-letter topic's log: it is the second topic that is made."""


def begin(
    files: FaultyFiles | None = None, limits: TopicLimits | None = None, **settings: int
) -> tuple[Core, GivingUp]:
    """A core with a topic of four messages, and a group that reads it."""
    core = Core(files, limits=limits)
    core.produce(core.create("orders", 1, settings).partition(0), batch(b"0", b"1", b"2", b"3"))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    return core, giving


def standing(core: Core) -> GroupPartitionInfo:
    """Where the group stands."""
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    return found.topics[0].partitions[0]


def check_blocked(core: Core, code: str, count: int) -> None:
    """It is told everywhere that so many messages wait for their copies, and why; none of them is settled."""
    info = standing(core)
    assert info.blocked is not None
    assert (info.blocked.error().code, info.dead_lettering, info.dead_lettered, info.floor) == (code, count, 0, 0)
    assert info.problem is None
    gauges = core.gauges()
    assert gauges['tidelog_queue_dead_lettering_messages{group="g"}'] == count
    assert gauges['tidelog_queue_dead_letters_blocked_partitions{group="g"}'] == 1
    assert core.events.count("dead letters blocked") == 1


def check_repaired(core: Core, giving: GivingUp, origins: list[int], topic: str = "orders.dlq") -> None:
    """There is one copy each, and no sign of trouble."""
    assert giving.origins(topic) == origins
    info = standing(core)
    assert (info.blocked, info.dead_lettering, info.dead_lettered) == (None, 0, len(origins))
    assert core.gauges()['tidelog_queue_dead_letters_blocked_partitions{group="g"}'] == 0
    assert core.events.count("dead letters go on") == 1


def test_a_topic_limit_blocks_until_there_is_room() -> None:
    """A topic less, and the copies are made at once; meanwhile other messages are given out and settled."""
    core, giving = begin(limits=TopicLimits(max_topics=2))
    core.create("other")
    giving.reject("g", [0, 1])
    core.settle()
    check_blocked(core, "TOPIC_LIMIT", 2)
    core.advance(10 * MINUTE)
    assert sorted(giving.take("g")) == [2, 3]
    core.advance(MINUTE)
    check_blocked(core, "TOPIC_LIMIT", 2)
    core.wait(core.topics.delete("default/other"))
    core.advance(MINUTE)
    check_repaired(core, giving, [0, 1])


def test_a_topic_that_somebody_makes_is_used() -> None:
    """Nothing has to be waited for: that a topic was made is reason enough to try again."""
    core, giving = begin(limits=TopicLimits(max_topics=2))
    core.create("other")
    giving.reject("g", [0])
    core.settle()
    check_blocked(core, "TOPIC_LIMIT", 1)
    core.wait(core.topics.delete("default/other"))
    core.settle()
    check_repaired(core, giving, [0])


def test_retries_become_rarer_up_to_once_a_minute() -> None:
    """After 1, 3, 7, 15, 31, 63 and 123 seconds, and then each minute."""
    core, giving = begin(limits=TopicLimits(max_topics=1))
    tried: list[int] = []
    create = core.topics.create

    def counted(*given: object, **options: object) -> Deferred[object]:
        tried.append(core.time.monotonic_us() // SECOND - began)
        return create(*given, **options)  # pyright: ignore[reportArgumentType, reportReturnType]

    core.topics.create = counted  # pyright: ignore[reportAttributeAccessIssue]
    began = core.time.monotonic_us() // SECOND
    giving.reject("g", [0])
    core.advance(200 * SECOND)
    assert tried == [0, 1, 3, 7, 15, 31, 63, 123, 183]


def test_after_it_went_on_the_next_trouble_is_tried_again_soon() -> None:
    """However long the last one was: after a second."""
    files = FaultyFiles(MemoryFiles())
    core, giving = begin(files)
    core.create("orders.dlq")
    for offset, lasting, going_on in ((0, 200 * SECOND, MINUTE), (1, 0, SECOND)):
        fault = files.fail("write_at", errno.ENOSPC, path=DLQ, times=None)
        giving.reject("g", [offset])
        core.settle()
        core.advance(lasting)
        assert fault.fired
        files.faults.remove(fault)
        core.advance(going_on)
        assert giving.origins() == [*range(offset + 1)]


def test_a_full_disk_blocks_until_there_is_room() -> None:
    """The copy that was refused is not there twice afterwards."""
    files = FaultyFiles(MemoryFiles())
    core, giving = begin(files)
    giving.reject("g", [0])
    core.settle()
    fault = files.fail("write_at", errno.ENOSPC, path=DLQ, times=None, keep=100)
    giving.reject("g", [1, 2])
    core.settle()
    assert fault.fired
    info = standing(core)
    assert info.blocked is not None
    assert (info.blocked.error().code, info.dead_lettering) == ("DISK_FULL", 2)
    assert sorted(giving.take("g")) == [3]
    files.faults.remove(fault)
    core.advance(MINUTE)
    check_repaired(core, giving, [0, 1, 2])


@pytest.mark.parametrize("is_written", [True, False])
def test_a_target_whose_sync_fails_blocks_until_it_is_reopened(is_written: bool) -> None:
    """Whether the copies whose sync failed are there then or not: they are searched for, and what is missing is made."""
    files = FaultyFiles(MemoryFiles())
    core, giving = begin(files)
    giving.reject("g", [0])
    core.settle()
    fault = files.fail("sync", errno.EIO, path=DLQ)
    giving.reject("g", [1, 2])
    core.settle()
    assert fault.fired == 1
    target = core.topic("orders.dlq").partition(0)
    assert target.is_fenced
    core.advance(10 * MINUTE)
    info = standing(core)
    assert info.blocked is not None
    assert (info.blocked.error().code, info.dead_lettering) == ("LOG_FENCED", 2)
    if not is_written:
        lose_tail(files, target.log.synced_offset)
    core.wait(core.topics.reopen("default/orders.dlq"))
    core.settle()
    check_repaired(core, giving, [0, 1, 2])


def lose_tail(files: FaultyFiles, synced_offset: int) -> None:
    """Let what was appended after a sync be lost: as if the pages had never reached the disk."""
    assert synced_offset == 1
    inner = files.inner
    (name,) = (name for name in inner.list_folder("partitions/2-0/messages") if name.endswith(".log"))
    file = inner.open(f"partitions/2-0/messages/{name}")
    data = file.read_at(0, file.size())
    second = data.index(b"TLB1", data.index(b"TLB1") + 1)
    file.write_at(second, bytes(len(data) - second))


def test_a_topic_deleted_in_the_middle_is_made_anew() -> None:
    """The copies that went with it are made again, as nobody has them; those on record before are its owner's loss."""
    core, giving = begin()
    giving.reject("g", [0])
    core.settle()
    held = giving.take("g")
    giving.ask("g", giving.items(held, Settling.REJECT, [1, 2]))
    core.begin_round()
    deleted = core.topics.delete("default/orders.dlq")
    core.finish_round()
    assert core.topic("orders.dlq").partition(0).log.end_offset == 3  # the copies are there, and not synced yet
    core.wait(deleted)
    core.advance(2 * SECOND)
    assert giving.origins() == [1, 2]
    assert core.topic("orders.dlq").count == 2
    assert standing(core).dead_lettered == 3


def test_a_topic_deleted_before_anything_was_made_is_made_anew() -> None:
    """Announced for a topic that is gone: announced again for the one that is made."""
    core, giving = begin()
    giving.reject("g", [0])
    core.settle()
    held = giving.take("g")
    giving.ask("g", giving.items(held, Settling.REJECT, [1]))
    deleted = core.topics.delete("default/orders.dlq")
    core.wait(deleted)
    core.advance(2 * SECOND)
    assert giving.origins() == [1]


def test_another_topic_may_be_named_for_what_is_blocked() -> None:
    """Nothing of it is in the fenced one: so it goes where the group says now, without waiting."""
    files = FaultyFiles(MemoryFiles())
    core, giving = begin(files)
    target = core.create("orders.dlq").partition(0)
    fault = files.fail("sync", errno.EIO, path=DLQ)
    core.send(target, batch(b"somebody's"))
    core.settle()
    assert (fault.fired, target.is_fenced) == (1, True)
    giving.reject("g", [0])
    core.settle()
    check_blocked(core, "LOG_FENCED", 1)
    changes = GroupSettings(dead_letter_topic="default/failures")
    core.wait(core.groups.alter("default/g", changes))
    core.settle()
    check_repaired(core, giving, [0], "failures")


def test_copies_that_may_be_in_a_fenced_topic_do_not_go_elsewhere() -> None:
    """They are there or not: that is known when it is reopened, so they wait for that."""
    files = FaultyFiles(MemoryFiles())
    core, giving = begin(files)
    core.create("orders.dlq")
    fault = files.fail("sync", errno.EIO, path=DLQ)
    giving.reject("g", [0])
    core.settle()
    assert fault.fired == 1
    core.wait(core.groups.alter("default/g", GroupSettings(dead_letter_topic="default/failures")))
    core.advance(10 * MINUTE)
    assert core.topics.find("default/failures") is None
    core.wait(core.topics.reopen("default/orders.dlq"))
    core.settle()
    check_repaired(core, giving, [0])


def test_a_fenced_delivery_log_stops_moves_until_it_is_reopened() -> None:
    """The record of what was done is lost with its sync: after the reopening the copies are found, not made again."""
    files = FaultyFiles(MemoryFiles())
    core, giving = begin(files)
    core.create("orders.dlq")
    held = giving.take("g")
    core.advance(3 * SECOND)
    giving.ask("g", giving.items(held, Settling.REJECT, [0, 1]))
    for _ in range(2):
        core.begin_round()
        core.finish_round()
    fault = files.fail("sync", errno.EIO, path="*/1-0/delivery/0*")
    core.advance(3 * SECOND)
    assert fault.fired == 1
    assert giving.origins() == [0, 1]
    part = giving.part()
    assert part.problem() is not None
    core.wait(core.topics.reopen("default/orders"))
    core.advance(3 * SECOND)
    assert giving.origins() == [0, 1]
    assert standing(core).dead_lettered == 2


def test_what_retention_removes_before_its_copy_is_lost_and_said_to_be() -> None:
    """The message is gone from the group; the others are copied once that can be."""
    core = Core(limits=TopicLimits(max_topics=2), defaults=TopicDefaults(segment_bytes=64 * KIB, partitions=1))
    core.create("other")
    orders = core.create("orders", 1, {"retention": 60 * SECOND, "segment_age": 10 * SECOND}).partition(0)
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    core.advance(3601 * SECOND)  # nothing is removed by age before
    core.produce(orders, batch(b"0", b"1"))
    giving.reject("g", [0, 1])
    core.advance(40 * SECOND)
    core.produce(orders, batch(b"2"))
    giving.reject("g", [2])
    core.advance(30 * SECOND)
    core.topics.expire()
    assert orders.start_offset == 2
    assert giving.counted()["dead_letters_lost"] == 2
    assert core.events.count("dead letters lost") == 1
    info = standing(core)
    assert (info.floor, info.dead_lettering) == (2, 1)
    core.wait(core.topics.delete("default/other"))
    core.advance(MINUTE)
    check_repaired(core, giving, [2])


def test_a_message_that_is_damaged_before_its_copy_is_lost_and_the_others_go_on() -> None:
    """The worker that reads it finds a checksum that is wrong; that is damage, on record, and no end of all copies."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    orders = core.create("orders").partition(0)
    for number in range(3):
        core.produce(orders, batch(b"message %d" % number * 100))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    (name,) = (name for name in files.inner.list_folder("partitions/1-0/messages") if name.endswith(".log"))
    file = files.inner.open(f"partitions/1-0/messages/{name}")
    file.write_at(file.read_at(0, file.size()).index(b"message 1"), b"MESSAGE")
    giving.reject("g", [0, 1, 2])
    core.advance(MINUTE)
    assert giving.origins() == [0, 2]
    assert giving.counted() == {"dead_lettered_messages": 2, "dropped_messages": 0, "dead_letters_lost": 1}
    assert [(found.start, found.end) for found in orders.log.damaged] == [(1, 2)]
    assert standing(core).floor == 3


def test_a_copy_that_fits_into_no_segment_lets_the_others_go_on() -> None:
    """The topic was made by hand, with small segments; with larger ones its copy is made too."""
    core = Core()
    core.create("orders.dlq", 1, {"segment_bytes": 64 * KIB})
    orders = core.create("orders").partition(0)
    core.produce(orders, batch(b"0", b"x" * 100 * KIB, b"2"))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    giving.reject("g", [0, 1, 2])
    core.settle()
    assert giving.origins() == [0, 2]
    info = standing(core)
    assert info.blocked is not None
    assert (info.blocked.error().code, info.dead_lettering) == ("BATCH_TOO_LARGE", 1)
    core.wait(core.topics.alter("default/orders.dlq", settings={"segment_bytes": 1024 * KIB}))
    core.settle()
    assert giving.origins() == [0, 1, 2]
    assert standing(core).blocked is None


def test_a_message_that_the_disk_does_not_give_lets_the_others_go_on() -> None:
    """It is tried again, and copied once it can be read."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    orders = core.create("orders").partition(0)
    for number in range(3):
        core.produce(orders, batch(b"%d" % number))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    held = giving.take("g")
    fault = files.fail("read_at", errno.EIO, path="*/1-0/messages/0*", times=1)
    giving.ask("g", giving.items(held, Settling.REJECT, [0, 1, 2]))
    core.settle()
    assert fault.fired == 1
    assert giving.origins() == [1, 2]
    info = standing(core)
    assert info.blocked is not None
    assert (info.blocked.error().code, info.dead_lettering) == ("STORAGE_ERROR", 1)
    core.advance(MINUTE)
    assert giving.origins() == [0, 1, 2]


def test_a_group_that_is_deleted_or_reset_has_nothing_copied_any_more() -> None:
    """What waits for its copy is of the life before; after a reset the messages come again."""
    core, giving = begin(limits=TopicLimits(max_topics=1))
    giving.group("h", letter_settings())
    giving.reject("g", [0])
    giving.reject("h", [0])
    core.wait(core.groups.delete("default/g"))
    core.wait(core.groups.reset("default/h", GroupStart("earliest")))
    core.advance(MINUTE)
    gauges = core.gauges()
    assert gauges['tidelog_queue_dead_lettering_messages{group="h"}'] == 0
    assert sorted(giving.take("h")) == [0, 1, 2, 3]
    pins = core.topics.is_moved
    assert isinstance(pins, Pins)
    assert len(pins) == 0


def test_who_has_moved_everything_watches_nothing() -> None:
    """Groups by the thousand may share a dead-letter topic: what is appended there is of no concern to them."""
    core, giving = begin()
    giving.reject("g", [0])
    core.settle()
    assert core.topic("orders.dlq").partition(0).statistics().watches == 0


def test_a_blocked_group_stays_at_work() -> None:
    """Though nobody asks for messages any more: its copies are made when they can be."""
    core, giving = begin(limits=TopicLimits(max_topics=1))
    giving.reject("g", [0, 1, 2, 3])
    core.advance(30 * MINUTE)
    core.queues.tidy()
    assert core.gauges()["tidelog_queue_groups_at_work"] == 1
    check_blocked(core, "TOPIC_LIMIT", 4)


def test_a_clean_stop_in_the_middle_goes_on_at_the_next_start() -> None:
    """Nobody has to ask for the group."""
    core, giving = begin(limits=TopicLimits(max_topics=1))
    giving.reject("g", [0, 2])
    core = core.after_stop()
    core.advance(SECOND)
    assert GivingUp(core).origins() == [0, 2]
