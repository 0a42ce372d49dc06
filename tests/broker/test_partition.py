"""One partition: what an acknowledgement promises, order, visibility, repeats, and waiting."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, errors_of, joined, split, start
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.disk_full import DiskFullNotice
from tidelog.broker.partition import Partition, Wake, Watch
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import (
    BatchTooLargeError,
    DiskFullError,
    InvalidBatchError,
    LogFencedError,
    MessageTooLargeError,
    SequenceGapError,
    SequenceReusedError,
    UnknownTopicIdError,
)

ACKNOWLEDGED = None


# -- acknowledgements ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "is_answered_at_once"),
    [(Durability.RECEIVED, True), (Durability.WRITTEN, True), (Durability.SYNCED, False)],
)
def test_a_request_is_answered_as_durable_as_it_asks(word: Durability, is_answered_at_once: bool) -> None:
    """`received` and `written` are answered from the append, `synced` only after the sync; the answer says which."""
    core, partition = start()
    answer = core.send(partition, batch(b"a"), durability=word)
    assert answer.is_pending is not is_answered_at_once
    assert core.wait(answer).durability is word


def test_without_a_word_the_topic_decides() -> None:
    """Durability 0 means what the topic says."""
    core, partition = start(durability="written")
    assert core.send(partition, batch(b"a")).result().durability is Durability.WRITTEN


def test_results_say_where_batches_went() -> None:
    """Each batch of a request has its base offset, the append time and its record count, in order."""
    core, partition = start()
    results = core.produce(partition, batch(b"a", b"b"), batch(b"c"))
    assert [(r.base_offset, r.append_time_us, r.record_count, r.duplicate) for r in results] == [
        (0, 1_700_000_000_000_000, 2, False),
        (2, 1_700_000_000_000_000, 1, False),
    ]
    assert core.read(partition) == [b"a", b"b", b"c"]


def test_consumers_see_what_is_as_durable_as_the_topic_asks() -> None:
    """On a `synced` topic a `written` receipt does not make a record visible; the sync does. `written` shows at once."""
    core, partition = start()
    core.send(partition, batch(b"a"), durability=Durability.WRITTEN)
    assert (partition.visible_offset, core.read(partition)) == (0, [])
    core.advance(SECOND)
    assert (partition.visible_offset, core.read(partition)) == (1, [b"a"])
    other = core.create("fast", 1, {"durability": "written"}).partition(0)
    core.send(other, batch(b"b"))
    assert (other.visible_offset, core.read(other)) == (1, [b"b"])


def test_one_sync_serves_many_requests() -> None:
    """Requests that came before a round share its one sync."""
    core, partition = start()
    answers = [core.send(partition, batch(b"%d" % n)) for n in range(20)]
    before = core.commit.statistics().synced_logs
    assert core.settle() == 1
    assert core.commit.statistics().synced_logs - before == 1
    assert [answer.result().results[0].base_offset for answer in answers] == list(range(20))


def test_a_stronger_durability_takes_nothing_back() -> None:
    """When a topic becomes `synced` its readers keep what they could see."""
    core, partition = start(durability="written")
    core.send(partition, batch(b"a"))
    core.topics.alter("default/orders", settings={"durability": "synced"})
    core.begin_round()
    assert partition.visible_offset == 1
    core.finish_round()


# -- refusals --------------------------------------------------------------------------------------------------------


def test_the_rest_of_a_request_is_refused_with_its_first_bad_batch() -> None:
    """Batches before a refused one are stored, none after it; each has a result that says so."""
    core, partition = start()
    bad = batch(b"bad")
    bad[60] ^= 1
    results = core.wait(core.send(partition, batch(b"a"), bad, batch(b"b"))).results
    assert errors_of(results) == [ACKNOWLEDGED, InvalidBatchError, InvalidBatchError]
    assert core.read(partition) == [b"a"]


def test_a_gap_refuses_the_rest_of_the_request() -> None:
    """After a sequence gap nothing of the request is stored, so that nothing overtakes the missing batch."""
    core, partition = start()
    p = core.init_producer().producer_id
    sent = [batch(b"%d" % n, producer=p, sequence=n) for n in (0, 2, 3)]
    results = core.wait(core.send(partition, *sent)).results
    assert errors_of(results) == [ACKNOWLEDGED, SequenceGapError, SequenceGapError]
    assert core.read(partition) == [b"0"]


def test_nonsense_is_refused_without_being_believed() -> None:
    """Bytes that are no batch, and a batch that claims more than is there, have one typed error each."""
    core, partition = start()
    for junk in (b"x", b"TLB1" + b"\xff" * 200, bytes(112), bytes(batch(b"a"))[:-8]):
        assert errors_of(core.send(partition, memoryview(junk)).result().results) == [InvalidBatchError]
    assert partition.log.end_offset == 0
    assert core.read(partition) == []


def test_limits_are_the_topics_own() -> None:
    """The largest message is the topic's setting, the largest batch what fits into the topic's segments."""
    core, partition = start(max_message_bytes=1_000, segment_bytes=65_536)
    assert errors_of(core.wait(core.send(partition, batch(bytes(1_001)))).results) == [MessageTooLargeError]
    large = batch(*[bytes(999)] * 70)
    assert errors_of(core.wait(core.send(partition, large)).results) == [BatchTooLargeError]
    core.produce(partition, batch(bytes(1_000)))


def test_a_full_disk_stores_nothing_and_says_so() -> None:
    """ENOSPC on an append is DISK_FULL for every new batch; after there is room the same request is taken."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files)
    p = core.init_producer().producer_id
    fault = files.fail("write_at", errno.ENOSPC, path="partitions/*", keep=50)
    results = core.wait(core.send(partition, batch(b"a", producer=p), batch(b"b", producer=p, sequence=1))).results
    assert fault.fired == 1
    assert errors_of(results) == [DiskFullError, DiskFullError]
    core.produce(partition, batch(b"a", producer=p), batch(b"b", producer=p, sequence=1))
    assert core.read(partition) == [b"a", b"b"]


def test_a_full_disk_is_in_the_log_of_the_broker_but_not_for_every_request() -> None:
    """The first refusal is a line, those of the next seconds are counted in the next line."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files)
    lines: list[dict[str, str | int]] = []
    core.services.disk_full = DiskFullNotice(
        core.time, lambda event, **fields: lines.append({"event": event, **fields})
    )
    for advance_us in (0, 0, 9_999_999, 1):
        core.clock.advance(advance_us)
        files.fail("write_at", errno.ENOSPC, path="partitions/*")
        assert errors_of(core.wait(core.send(partition, batch(b"a"))).results) == [DiskFullError]
    assert [(line["event"], line["partition"], line["refused"]) for line in lines] == [
        ("disk full", "orders/0", 1),
        ("disk full", "orders/0", 3),
    ]


# -- idempotence -----------------------------------------------------------------------------------------------------


def test_a_repeat_is_stored_once_and_answered_alike() -> None:
    """A repeated batch has the first offset and time and says that it is a duplicate, alone or among new ones."""
    core, partition = start()
    p = core.init_producer().producer_id
    (first,) = core.produce(partition, batch(b"a", producer=p))
    core.clock.advance(5 * SECOND)
    again, new = core.produce(partition, batch(b"a", producer=p), batch(b"b", producer=p, sequence=1))
    assert (again.base_offset, again.append_time_us, again.duplicate) == (0, first.append_time_us, True)
    assert (new.base_offset, new.duplicate) == (1, False)
    assert core.read(partition) == [b"a", b"b"]


def test_a_batch_twice_in_one_request_is_stored_once() -> None:
    """A request that holds the same batch twice has a first result and a duplicate."""
    core, partition = start()
    p = core.init_producer().producer_id
    results = core.produce(partition, *[batch(b"a", producer=p)] * 2, batch(b"b", producer=p, sequence=1))
    assert [(r.base_offset, r.duplicate) for r in results] == [(0, False), (0, True), (1, False)]


def test_a_repeat_waits_for_the_sync_of_the_first_copy() -> None:
    """A repeat that arrives while the first copy's sync is pending is not acknowledged before that sync."""
    core, partition = start()
    p = core.init_producer().producer_id
    first = core.send(partition, batch(b"a", producer=p))
    core.begin_round()
    repeat = core.send(partition, batch(b"a", producer=p))
    assert (first.is_pending, repeat.is_pending) == (True, True)
    core.finish_round()
    assert (first.result().results[0].duplicate, repeat.result().results[0].duplicate) == (False, True)


def test_a_repeat_asks_for_its_own_durability() -> None:
    """A batch acknowledged at `written` and repeated at `synced` is answered only when it is synced."""
    core, partition = start(durability="written")
    p = core.init_producer().producer_id
    assert not core.send(partition, batch(b"a", producer=p)).is_pending
    repeat = core.send(partition, batch(b"a", producer=p), durability=Durability.SYNCED)
    assert repeat.is_pending
    assert core.wait(repeat).results[0].duplicate


def test_two_processes_with_one_producer_never_get_each_others_receipt() -> None:
    """After a fork the second process's batch under a used sequence is SEQUENCE_REUSED, not a duplicate."""
    core, partition = start()
    p = core.init_producer().producer_id
    core.produce(partition, batch(b"parent", producer=p))
    assert errors_of(core.wait(core.send(partition, batch(b"child", producer=p))).results) == [SequenceReusedError]


# -- a failed sync ---------------------------------------------------------------------------------------------------


def failing(core: Core, files: FaultyFiles, partition: Partition) -> None:
    """Append one batch and fail its sync."""
    fault = files.fail("sync", errno.EIO, path="partitions/*/messages/0*")
    lost = core.send(partition, batch(b"lost"))
    core.settle()
    assert fault.fired == 1
    assert errors_of(lost.result().results) == [LogFencedError]


def test_a_failed_sync_is_an_error_for_everybody_and_fences_the_log() -> None:
    """After a failed sync nothing is acknowledged or shown that it should have covered; reads of the rest go on."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files)
    p = core.init_producer().producer_id
    core.produce(partition, batch(b"kept", producer=p))
    failing(core, files, partition)
    assert partition.is_fenced
    assert core.read(partition) == [b"kept"]
    assert errors_of(core.wait(core.send(partition, batch(b"more"))).results) == [LogFencedError]
    assert core.produce(partition, batch(b"kept", producer=p))[0].duplicate
    assert core.events == ["log fenced"]


def test_a_repeat_after_a_failed_sync_fails_too() -> None:
    """The repeat of a batch whose sync failed is never acknowledged by the page cache's word."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files)
    p = core.init_producer().producer_id
    files.fail("sync", errno.EIO, path="partitions/*/messages/0*")
    first = core.send(partition, batch(b"a", producer=p))
    core.settle()
    assert errors_of(first.result().results) == [LogFencedError]
    repeat = core.send(partition, batch(b"a", producer=p))
    assert errors_of(core.wait(repeat).results) == [LogFencedError]


def test_what_a_failed_sync_had_covered_before_stays_acknowledged() -> None:
    """In one request whose first batch is a durable repeat, only the new batch fails with the sync."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files)
    p = core.init_producer().producer_id
    core.produce(partition, batch(b"a", producer=p))
    files.fail("sync", errno.EIO, path="partitions/*/messages/0*")
    answer = core.send(partition, batch(b"a", producer=p), batch(b"b", producer=p, sequence=1))
    assert errors_of(core.wait(answer).results) == [ACKNOWLEDGED, LogFencedError]


# -- waiting to read -------------------------------------------------------------------------------------------------


def test_watchers_are_woken_by_visibility_not_by_appends() -> None:
    """On a `synced` topic a watcher hears of a batch when it may be read, once."""
    core, partition = start()
    woken: list[Wake] = []
    watch = partition.watch(woken.append)
    core.send(partition, batch(b"a"))
    assert woken == []
    core.settle()
    assert woken == [Wake.VISIBLE]
    partition.unwatch(watch)
    core.produce(partition, batch(b"b"))
    assert woken == [Wake.VISIBLE]


def test_watchers_hear_of_changes_and_the_end() -> None:
    """A waiting fetch is told when its topic is altered and when it is deleted."""
    core, partition = start()
    woken: list[Wake] = []
    partition.watch(woken.append)
    core.wait(core.topics.alter("default/orders", settings={"retention": None}))
    core.wait(core.topics.delete("default/orders"))
    assert woken == [Wake.CHANGED, Wake.GONE]


def test_a_watcher_may_end_another_watch() -> None:
    """Whoever is woken may unwatch those after it; they are not called any more."""
    core, partition = start()
    woken: list[str] = []
    second: list[Watch] = []

    def first(_why: Wake) -> None:
        woken.append("first")
        partition.unwatch(second[0])

    partition.watch(first)
    second.append(partition.watch(lambda _why: woken.append("second")))
    core.produce(partition, batch(b"a"))
    assert woken == ["first"]


# -- deletion --------------------------------------------------------------------------------------------------------


def test_deletion_answers_everybody_who_waits() -> None:
    """Producers that wait for a sync or for room get UNKNOWN_TOPIC_ID, and so does a later request."""
    core = Core(max_unsynced_bytes=4_000)
    partition = core.create("orders").partition(0)
    waits_for_sync = core.send(partition, batch(bytes(3_000)))
    waits_for_room = core.send(partition, batch(bytes(3_000)))
    core.begin_round()
    partition.delete(lambda: None)
    assert errors_of(waits_for_sync.result().results) == [UnknownTopicIdError]
    assert isinstance(waits_for_room.error, UnknownTopicIdError)
    with pytest.raises(UnknownTopicIdError):
        partition.produce(batch(b"late"))
    error = core.fetch(partition, 0).result.error
    assert error is not None
    assert isinstance(error.error(), UnknownTopicIdError)
    core.finish_round()


def test_joined_batches_are_stamped_in_the_request_itself() -> None:
    """The batches are stored from the receive buffer: what the log stamps shows there, and nothing is copied."""
    _core, partition = start()
    request = joined(batch(b"a"), batch(b"b"))
    partition.produce(request)
    assert [BatchHeader.read(found).base_offset for found in split(bytes(request))] == [0, 1]
