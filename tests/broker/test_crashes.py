"""The core over a disk that loses power: scenarios that broke other designs, and a crash between any two steps."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, bulk_of, errors_of, model, start
from tests.helpers.disk_model import Loss
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.deferred import Deferred
from tidelog.broker.meta import RangeQuarantined
from tidelog.broker.partition import Partition, Wake
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import LogFencedError, UnknownTopicIdError

SEEDS = range(6)
LOG = "partitions/1-0/messages/"


def orders(core: Core) -> Partition:
    return core.topic("orders").partition(0)


def lose_everything_unsynced(core: Core) -> Core:
    """The worst power loss: nothing survives but what was synced."""
    return core.next_process(
        model(core).crash(random.Random(0), pages=Loss.NOTHING_SURVIVES, names=Loss.NOTHING_SURVIVES)
    )


# -- repeats and syncs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_a_failed_sync_then_a_restart_then_a_repeat_then_power_loss(seed: int) -> None:
    """A batch whose sync failed, found again in the page cache after kill -9, is durable before its repeat is answered."""
    files = PowerLossFiles()
    core, partition = start(files)
    p = core.init_producer().producer_id
    core.produce(partition, batch(b"before", producer=p))
    files.fail_syncs(lambda path: path.startswith(LOG))
    first = core.send(partition, batch(b"lost?", producer=p, sequence=1))
    core.settle()
    assert files.failed_syncs == 1
    assert errors_of(first.result().results) == [LogFencedError]
    core = core.after_kill()
    (repeat,) = core.produce(orders(core), batch(b"lost?", producer=p, sequence=1))
    assert (repeat.base_offset, repeat.duplicate) == (1, True)
    core = core.after_power_loss(random.Random(seed))
    assert core.read(orders(core)) == [b"before", b"lost?"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_repeat_during_the_first_copys_sync_then_power_loss(seed: int) -> None:
    """Neither copy is acknowledged while the sync is pending; what a power loss then takes was promised to nobody."""
    core, partition = start(PowerLossFiles())
    p = core.init_producer().producer_id
    first = core.send(partition, batch(b"a", producer=p))
    core.begin_round()
    repeat = core.send(partition, batch(b"a", producer=p))
    assert (first.is_pending, repeat.is_pending) == (True, True)
    core = core.after_power_loss(random.Random(seed))
    core.produce(orders(core), batch(b"a", producer=p))
    assert core.read(orders(core)) == [b"a"]


def test_a_torn_batch_with_an_intact_one_behind_it() -> None:
    """The retry of a torn batch lands in its place; the later batch that survived behind it is not stored twice."""
    core, partition = start(PowerLossFiles(), durability="written")
    p = core.init_producer().producer_id
    for n in range(3):
        core.send(partition, batch(bytes([n]) * 3_000, producer=p, sequence=n))
    (torn,) = partition.get(1)
    disk = model(core).kill()
    disk.open(f"{LOG}{0:020d}.log").write_at(torn.position + 200, bytes(500))
    core = core.next_process(disk).after_kill()
    assert orders(core).visible_offset == 1
    results = core.produce(
        orders(core), *[batch(bytes([n]) * 3_000, producer=p, sequence=n) for n in (1, 2)], durability=Durability.SYNCED
    )
    assert [(r.base_offset, r.duplicate) for r in results] == [(1, False), (2, False)]
    core = core.after_power_loss(random.Random(1))
    assert core.read(orders(core)) == [bytes([n]) * 3_000 for n in range(3)]


def test_written_acknowledgements_taken_by_power_loss_then_two_more_restarts() -> None:
    """New messages at offsets whose first holders were lost are kept by later restarts; old readers are TRUNCATED."""
    core, partition = start(PowerLossFiles(), durability="written")
    core.produce(partition, batch(b"kept"), durability=Durability.SYNCED)
    core.send(partition, batch(b"lost 1"), batch(b"lost 2"))
    epoch = BatchHeader.read(bulk_of(core.fetch(partition, 2))).leader_epoch
    core = lose_everything_unsynced(core)
    core.produce(orders(core), batch(b"new"), durability=Durability.SYNCED)
    for _ in range(2):
        core = core.after_kill()
        assert core.read(orders(core)) == [b"kept", b"new"]
    error = core.fetch(orders(core), 3, epoch=epoch).result.error
    assert error is not None
    assert error.details == {"epoch": epoch, "end": 1}


def test_damage_recorded_before_a_power_loss_says_nothing_about_new_records() -> None:
    """A range quarantined in an earlier epoch is void for records that took its offsets after a power loss."""
    core, partition = start(PowerLossFiles(), durability="written")
    core.produce(partition, batch(b"kept"), durability=Durability.SYNCED)
    core.send(partition, batch(b"damaged"), batch(b"lost"))
    meta = core.topics.meta
    core.wait(meta.record(RangeQuarantined(partition.log.log_id, 1, 2, core.topics.epoch)))
    core = lose_everything_unsynced(core)
    core.produce(orders(core), batch(b"new"), durability=Durability.SYNCED)
    core = core.after_kill()
    assert core.read(orders(core)) == [b"kept", b"new"]


def test_a_log_that_keeps_its_damage_keeps_it_quarantined() -> None:
    """A range whose records are still those that were found damaged stays quarantined over restarts."""
    core, partition = start(PowerLossFiles())
    core.produce(partition, batch(b"a"), batch(b"b"), batch(b"c"))
    meta = core.topics.meta
    core.wait(meta.record(RangeQuarantined(partition.log.log_id, 1, 2, core.topics.epoch)))
    core = core.after_kill().after_kill()
    assert orders(core).info("node", details=True).damaged == [(1, 2)]
    assert core.read(orders(core), 2) == [b"c"]


def test_damage_is_recorded_once_however_often_it_is_found() -> None:
    """Starts that find the same damage record nothing more, and what retention has removed is forgotten."""
    core, partition = start(PowerLossFiles(), segment_bytes=65_536)
    log_id = partition.log.log_id
    core.produce(partition, batch(b"a"))
    core.produce(partition, batch(b"b" * 100))
    core.produce(partition, batch(b"c"))
    (piece,) = partition.get(1)
    disk = model(core).kill()
    broken = disk.open(f"{LOG}{0:020d}.log")
    broken.write_at(piece.position, b"\xff" * 64)
    broken.sync()
    recorded: list[int] = []
    for _ in range(4):
        core = core.next_process(disk)
        core.settle()
        recorded.append(len(core.topics.meta.state.quarantined[log_id]))
        assert orders(core).info("node", details=True).damaged == [(1, 2)]
        disk = model(core).kill()
    assert recorded == [1, 1, 1, 1]
    assert core.events == []
    core = core.next_process(disk)
    partition = orders(core)
    core.wait(core.topics.alter("default/orders", settings={"retention_bytes": 0}))
    for n in range(6):
        core.produce(partition, batch(bytes([n]) * 30_000))
    core.advance(2 * SECOND)
    for _ in range(2):
        core.topics.expire()
        core.advance(2 * SECOND)
    assert partition.start_offset > 2
    core = core.after_kill()
    assert core.topics.meta.state.quarantined == {}


# -- identities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_producer_ids_are_never_given_twice(seed: int) -> None:
    """Whatever is lost, ids given before a crash and after it are all different, over blocks and restarts."""
    rng = random.Random(seed)
    core = Core(PowerLossFiles())
    given: list[int] = []
    for _ in range(4):
        for _ in range(rng.randrange(1, 60)):
            given.append(core.init_producer().producer_id)
        answers = [core.topics.init_producer(None) for _ in range(4_200)]
        if rng.random() < 0.5:
            core.begin_round()
        given += [answer.result().producer_id for answer in answers if not answer.is_pending]
        core = core.after_power_loss(rng) if rng.random() < 0.7 else core.after_kill()
    assert len(given) == len(set(given))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_returning_name_fences_its_older_session_for_ever(seed: int) -> None:
    """An epoch told to a named producer outlives power loss; every later session of the name has a higher one."""
    rng = random.Random(seed)
    core = Core(PowerLossFiles())
    core.create("orders")
    epochs: list[int] = []
    ids: set[int] = set()
    for n in range(5):
        session = core.init_producer("ingest")
        epochs.append(session.epoch)
        ids.add(session.producer_id)
        core.produce(orders(core), batch(b"%d" % n, producer=session.producer_id, epoch=session.epoch))
        core.topics.init_producer("ingest")  # asked for and never told: the crash comes first
        core = core.after_power_loss(rng)
    assert epochs == sorted(set(epochs))
    assert len(ids) == 1
    assert core.read(orders(core)) == [b"%d" % n for n in range(5)]


@pytest.mark.parametrize("seed", SEEDS)
def test_epochs_only_rise(seed: int) -> None:
    """Every start has a higher epoch than any batch that an earlier one wrote."""
    rng = random.Random(seed)
    core, partition = start(PowerLossFiles())
    for n in range(4):
        core.produce(partition, batch(b"%d" % n))
        core = core.after_power_loss(rng) if n % 2 else core.after_kill()
        partition = orders(core)
    epochs = [BatchHeader.read(found).leader_epoch for found in core.read_batches(partition)]
    assert epochs == sorted(set(epochs))
    assert core.topics.epoch > epochs[-1]


# -- topics ----------------------------------------------------------------------------------------------------------


def test_a_topic_made_again_under_those_who_wait() -> None:
    """A consumer and a producer of a deleted topic get a typed error, never the data of the topic made in its place."""
    core, partition = start(PowerLossFiles())
    core.produce(partition, batch(b"old"))
    woken: list[Wake] = []
    partition.watch(woken.append)
    deleting = core.topics.delete("default/orders")
    making = core.topics.create("default/orders")
    core.settle()
    assert (deleting.result(), making.result().topic.id) == (1, 2)
    assert woken == [Wake.GONE]
    core.produce(orders(core), batch(b"new"))
    with pytest.raises(UnknownTopicIdError):
        core.topics.partition(1, 0)
    with pytest.raises(UnknownTopicIdError):
        partition.produce(batch(b"for the old one"))
    core = core.after_power_loss(random.Random(2))
    assert core.read(orders(core)) == [b"new"]
    assert core.topic("orders").count == 2


def make_orders(core: Core) -> Deferred[object]:
    return core.topics.create("default/orders", partitions=2).then(lambda made: made)


def widen_kept(core: Core) -> Deferred[object]:
    return core.topics.alter("default/kept", partitions=3, settings={"durability": "written"}).then(lambda done: done)


def delete_kept(core: Core) -> Deferred[object]:
    return core.topics.delete("default/kept").then(lambda done: done)


@pytest.mark.parametrize("act", [make_orders, widen_kept, delete_kept])
@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_crash_between_any_two_steps_of_administration(act: Callable[[Core], Deferred[object]], how: str) -> None:
    """Whatever step a crash hits, the operation is done or it is not: answered ones are, and nothing is in between."""
    crashes = 0
    for step in range(1, 400):
        rng = random.Random(step)
        files = PowerLossFiles()
        core = Core(files)
        kept = core.create("kept", 2)
        core.produce(kept.partition(0), batch(b"precious"))
        files.crash_at(step, rng)
        answer: Deferred[object] | None = None
        try:
            answer = act(core)
            core.settle()
        except Crashed:
            crashes += 1
        else:
            assert crashes > 5
            return
        is_answered = answer is not None and not answer.is_pending
        core = core.after_kill() if how == "kill" else core.after_power_loss(rng)
        check_consistent(core, act, is_answered=is_answered)
        ends = {topic.name: [one.visible_offset for one in topic.partitions] for topic in core.topics.all()}
        core = lose_everything_unsynced(core)
        assert {topic.name: [one.visible_offset for one in topic.partitions] for topic in core.topics.all()} == ends
    pytest.fail("the operation never ended")


def check_consistent(core: Core, act: Callable[[Core], Deferred[object]], *, is_answered: bool) -> None:
    """Every topic serves with all its partitions, nothing strange lies about, and an answered operation is done."""
    assert core.topics.report.offline == {}
    assert core.topics.report.strays == []
    made, kept = core.topics.find("default/orders"), core.topics.find("default/kept")
    if act is delete_kept:
        assert not (is_answered and kept is not None)
    else:
        assert kept is not None
    if is_answered and act is make_orders:
        assert made is not None
    if kept is not None:
        assert kept.partition_count in ((2, 3) if act is widen_kept else (2,))
        assert not (is_answered and act is widen_kept and kept.partition_count == 2)
        assert core.read(kept.partition(0)) == [b"precious"]
    else:
        assert core.files.list_folder("partitions") == []
    for topic in core.topics.all():
        for partition in topic.partitions:
            end = partition.visible_offset
            core.produce(partition, batch(b"after"), durability=Durability.SYNCED)
            assert core.read(partition, end)[-1] == b"after"
    core.create("another")
    core.settle()


def test_facts_are_read_back_from_a_snapshot() -> None:
    """After so many changes that a snapshot was taken, a start from it knows what a full replay would."""
    core = Core(PowerLossFiles())
    for n in range(30):
        core.create(f"t{n}")
        if n % 3:
            core.wait(core.topics.delete(f"default/t{n}"))
    core = core.after_stop()
    assert core.topics.meta.log.recovery.snapshot_offset is not None
    assert [topic.name for topic in core.topics.all()] == sorted(f"default/t{n}" for n in range(0, 30, 3))
    assert core.create("new").id == 31
    core.advance(SECOND)
