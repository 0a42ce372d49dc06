"""The registry of topics: what exists, what a name means, and what administration does."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import DEFAULTS, SECOND, Core, batch, start
from tests.helpers.faulty_files import FaultyFiles

from tidelog.broker.partition import Wake
from tidelog.broker.storage.files import MemoryFiles
from tidelog.broker.topics import TopicLimits
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import (
    DiskFullError,
    InvalidTopicError,
    LogFencedError,
    StorageError,
    TidelogError,
    TopicExistsError,
    TopicLimitError,
    UnknownPartitionError,
    UnknownTopicError,
    UnknownTopicIdError,
)

DAY = 24 * 3_600 * SECOND


# -- what exists -----------------------------------------------------------------------------------------------------


def test_a_topic_is_found_by_name_and_id() -> None:
    """A created topic has what was asked for, is found by name and id, and its partitions by index."""
    core = Core()
    topic = core.create("orders", 3, {"durability": "written"})
    assert (topic.id, topic.count, topic.partition_count) == (1, 1, 3)
    assert core.topics.named("default/orders") is core.topics.by_id(1) is topic
    assert [core.topics.partition(1, n).index for n in range(3)] == [0, 1, 2]
    info = topic.info()
    assert (info.name, info.given, info.settings["durability"], info.settings["retention"]) == (
        "default/orders",
        ["durability"],
        "written",
        7 * DAY,
    )


def test_what_does_not_exist_is_a_typed_error() -> None:
    """An unknown name suggests the nearest, an unknown id asks for fresh metadata, an unknown partition says how many."""
    core = Core()
    core.create("orders", 2)
    core.create("invoices")
    with pytest.raises(UnknownTopicError) as error:
        core.topics.named("default/ordrs")
    assert str(error.value) == 'no topic "ordrs"; did you mean "orders"?'
    assert error.value.details == {"name": "ordrs", "nearest": "orders"}
    with pytest.raises(UnknownTopicError, match=r'no topic "zzz"$'):
        core.topics.named("default/zzz")
    with pytest.raises(UnknownTopicIdError):
        core.topics.by_id(99)
    with pytest.raises(UnknownPartitionError) as gone:
        core.topics.partition(1, 2)
    assert gone.value.details == {"partitions": 2}


def test_nothing_is_served_before_its_fact_is_synced() -> None:
    """A topic that was asked for exists for nobody until the sync of its fact; then its creator is answered."""
    core = Core()
    answer = core.topics.create("default/orders")
    core.begin_round()
    assert core.topics.find("default/orders") is None
    assert answer.is_pending
    core.finish_round()
    assert answer.result().created


@pytest.mark.parametrize("exist_ok", [False, True])
def test_two_who_make_the_same_topic_at_once(exist_ok: bool) -> None:
    """Of two creations of one name one makes it; the other is told that it exists, or given it."""
    core = Core()
    first = core.topics.create("default/orders")
    second = core.topics.create("default/orders", exist_ok=exist_ok)
    core.settle()
    assert first.result().created
    if exist_ok:
        assert second.result().topic is first.result().topic
        assert not second.result().created
    else:
        assert isinstance(second.error, TopicExistsError)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"partitions": 0}, InvalidTopicError),
        ({"partitions": 5}, InvalidTopicError),
        ({"settings": {"segment_bytes": 1}}, InvalidTopicError),
        ({"settings": {"colour": 1}}, InvalidTopicError),
        ({"name": "default/__groups"}, InvalidTopicError),
        ({"name": "default/third"}, TopicLimitError),
        ({"partitions": 4}, TopicLimitError),
    ],
)
def test_what_must_not_be_made_is_refused(arguments: dict[str, object], error: type[TidelogError]) -> None:
    """Settings, names and numbers outside their limits are refused by their cause, and nothing is recorded."""
    core = Core(limits=TopicLimits(max_partitions_per_topic=4, max_partitions=4, max_topics=2))
    core.create("first")
    if arguments.get("name") == "default/third":
        core.create("second")
    version = core.topics.version
    answer = core.topics.create(**{"name": "default/new", **arguments})  # pyright: ignore[reportArgumentType]
    core.settle()
    assert isinstance(answer.error, error)
    assert core.topics.version == version


def test_a_disk_that_cannot_hold_a_new_topic_leaves_none() -> None:
    """When a partition's files cannot be made the creation fails and the name is free again."""
    files = FaultyFiles(MemoryFiles())
    core = Core(files)
    fault = files.fail("create", errno.ENOSPC, path="partitions/1-1/*")
    answer = core.topics.create("default/orders", partitions=3)
    core.settle()
    assert fault.fired == 1
    assert isinstance(answer.error, DiskFullError)
    assert answer.error.message.startswith(
        "expected to create partition 1 of topic orders, found ENOSPC: No space left"
    )
    assert core.topics.find("default/orders") is None
    assert files.list_folder("partitions") == []
    assert core.create("orders", 3).partition_count == 3


# -- changes ---------------------------------------------------------------------------------------------------------


def test_settings_change_and_return_to_the_default() -> None:
    """A change is in force for the running log; a reset key follows the broker's default again; the rest stays."""
    core, partition = start(retention=DAY, segment_bytes=65_536)
    topic = core.wait(core.topics.alter("default/orders", settings={"durability": "received"}, reset=["retention"]))
    assert topic.given == {"segment_bytes": 65_536, "durability": "received"}
    assert topic.settings.retention_us == DEFAULTS.retention_us
    assert core.send(partition, batch(b"a")).result().durability is Durability.RECEIVED


def test_a_change_of_the_segment_size_holds_from_the_next_segment() -> None:
    """After segments were made larger a batch is taken that would not have fitted into the old ones."""
    core, partition = start(segment_bytes=65_536)
    for _ in range(4):
        core.produce(partition, batch(bytes(10_000)))
    core.advance(2 * SECOND)  # more than half full: the next segment was prepared in the old size
    core.wait(core.topics.alter("default/orders", settings={"segment_bytes": 1 << 20}))
    core.produce(partition, batch(bytes(500_000)))
    assert core.read(partition) == [bytes(10_000)] * 4 + [bytes(500_000)]


def test_partitions_are_added_and_never_taken_away() -> None:
    """New partitions serve at once and those who wait are told; fewer than there are is refused."""
    core, partition = start()
    woken: list[Wake] = []
    partition.watch(woken.append)
    before = core.topics.version
    topic = core.wait(core.topics.alter("default/orders", partitions=3))
    assert (topic.partition_count, topic.changed_version, core.topics.version) == (3, before + 1, before + 1)
    assert woken == [Wake.CHANGED]
    core.produce(core.topics.partition(1, 2), batch(b"a"))
    answer = core.topics.alter("default/orders", partitions=2)
    assert isinstance(answer.error, InvalidTopicError)


def test_a_change_that_changes_nothing_is_no_change() -> None:
    """Setting what is set already records nothing and tells nobody."""
    core, _partition = start(retention=DAY)
    version = core.topics.version
    assert not core.topics.alter("default/orders", settings={"retention": DAY}, partitions=1).is_pending
    assert core.topics.version == version


def test_changes_survive_a_restart() -> None:
    """Settings, partitions and the metadata version are there again after a clean stop."""
    core, _partition = start()
    core.wait(core.topics.alter("default/orders", partitions=2, settings={"durability": "written"}))
    version = core.topics.version
    core = core.after_stop()
    topic = core.topic("orders")
    assert (topic.partition_count, topic.given, topic.changed_version) == (2, {"durability": "written"}, version)
    assert core.topics.version == version


# -- deletion --------------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_with_its_files() -> None:
    """After a deletion no name, id or file is left, and a new topic has another id."""
    core, partition = start()
    core.produce(partition, batch(b"secret"))
    assert core.wait(core.topics.delete("default/orders")) == 1
    assert core.topics.find("default/orders") is None
    with pytest.raises(UnknownTopicIdError):
        core.topics.partition(1, 0)
    assert core.files.list_folder("partitions") == []
    again = core.create("orders")
    assert (again.id, again.count, core.read(again.partition(0))) == (2, 2, [])


def test_files_are_removed_only_when_no_thread_is_at_them() -> None:
    """A deletion during a sync round lets that end first; its folder is there until then."""
    core, partition = start()
    core.send(partition, batch(b"a"))
    answer = core.topics.delete("default/orders")
    core.begin_round()
    core.send(partition, batch(b"b"))
    core.finish_round()  # the tombstone is durable now
    assert core.topics.find("default/orders") is None
    assert core.wait(answer) == 1
    assert core.files.list_folder("partitions") == []


def test_folders_that_cannot_be_removed_go_at_the_next_start() -> None:
    """A deletion whose folder resists is done for its clients, reported, and finished by the next start."""
    files = FaultyFiles(MemoryFiles())
    core, _partition = start(files)
    fault = files.fail("remove_folder", errno.EIO)
    assert core.wait(core.topics.delete("default/orders")) == 1
    assert (fault.fired, core.events) == (1, ["folders not removed"])
    assert files.list_folder("partitions") == ["1-0"]
    core.after_stop()
    assert files.list_folder("partitions") == []


def test_partitions_that_were_never_finished_go_with_their_topic() -> None:
    """Folders of partitions that an interrupted change left behind are removed when the topic is."""
    core, _partition = start()
    core.files.make_folder("partitions/1-7")
    core.wait(core.topics.delete("default/orders"))
    assert core.files.list_folder("partitions") == []


def test_a_stranger_in_the_folder_is_reported_never_removed() -> None:
    """Folders under `partitions` that no topic and no tombstone names are left alone and named at the start."""
    core, _partition = start()
    core.files.make_folder("partitions/77-0")
    core.files.make_folder("partitions/backup")
    core = core.after_stop()
    assert core.topics.report.strays == ["77-0", "backup"]
    assert core.files.list_folder("partitions") == ["1-0", "77-0", "backup"]


# -- offline and fenced ----------------------------------------------------------------------------------------------


def test_a_partition_that_cannot_be_opened_does_not_take_the_others_along() -> None:
    """A partition whose folder is gone is offline with the reason, the others serve; put back, it is reopened."""
    core = Core()
    topic = core.create("orders", 2)
    for partition in topic.partitions:
        core.produce(partition, batch(b"%d" % partition.index))
    core.settle()
    core.topics.close()
    core.files.rename("partitions/1-0", "lost")
    core = core.next_process(core.files)
    with pytest.raises(StorageError, match="partitions/1-0, found that they are gone"):
        core.topics.partition(1, 0)
    assert core.read(core.topics.partition(1, 1)) == [b"1"]
    assert list(core.topics.report.offline) == ["orders/0"]
    told = [core.topic("orders").partition_info(index, "node", details=False) for index in range(2)]
    assert [one.fenced for one in told] == [True, False]
    failed = core.topics.reopen("default/orders")
    core.settle()
    assert isinstance(failed.error, StorageError)
    core.files.rename("lost", "partitions/1-0")
    assert core.wait(core.topics.reopen("default/orders")) == [0]
    assert core.read(core.topics.partition(1, 0)) == [b"0"]


@pytest.mark.parametrize("left", [None, "an empty folder", "a prepared segment"])
def test_a_partition_without_its_log_is_offline(left: str | None) -> None:
    """What was lost with `messages/` does not come back as an empty log whose offsets are given out again."""
    core, partition = start()
    core.produce(partition, batch(b"a"))
    core.settle()
    core.topics.close()
    core.files.remove_folder("partitions/1-0/messages")
    if left is not None:
        core.files.make_folder("partitions/1-0/messages")
    if left == "a prepared segment":
        core.files.create("partitions/1-0/messages/0001.next", 4096)
    core = core.next_process(core.files)
    with pytest.raises(StorageError, match="partitions/1-0/messages, found that they are gone"):
        core.topics.partition(1, 0)
    failed = core.topics.reopen("default/orders")
    core.settle()
    assert isinstance(failed.error, StorageError)


def test_partitions_without_facts_stop_the_start() -> None:
    """Without `meta/` nobody knows whose records those are: a new topic must not be given an old one's."""
    core, partition = start()
    core.produce(partition, batch(b"a"))
    core.settle()
    core.topics.close()
    core.files.rename("meta", "lost")
    with pytest.raises(StorageError, match="meta/, found that they are gone while partitions/ holds 1 partitions"):
        core.next_process(core.files)
    core.files.rename("lost", "meta")
    assert core.next_process(core.files).topic("orders").id == 1


def test_a_fenced_partition_is_reopened_without_losing_what_was_read() -> None:
    """After the disk is repaired `reopen` recovers the log under a new epoch, and it takes writes and repeats again."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files)
    p = core.init_producer().producer_id
    core.produce(partition, batch(b"a", producer=p))
    fault = files.fail("sync", errno.EIO, path="partitions/*/messages/0*")
    failed = core.send(partition, batch(b"b", producer=p, sequence=1))
    core.settle()
    assert (fault.fired, partition.is_fenced, failed.result().results[0].error is None) == (1, True, False)
    epoch = partition.log.epoch
    reopening = core.topics.reopen("default/orders")
    assert partition.is_fenced  # until the new epoch is on record
    assert core.wait(reopening) == [0]
    assert (partition.is_fenced, partition.log.epoch) == (False, epoch + 1)
    (again,) = core.produce(partition, batch(b"b", producer=p, sequence=1))
    assert (again.base_offset, again.duplicate) == (1, True)
    core.produce(partition, batch(b"c", producer=p, sequence=2))
    assert core.read(partition) == [b"a", b"b", b"c"]


def test_a_disk_that_is_still_broken_keeps_the_fenced_log_readable() -> None:
    """A reopening that fails changes nothing: reads go on, writes are refused, and it may be tried again."""
    files = FaultyFiles(MemoryFiles())
    core, partition = start(files)
    core.produce(partition, batch(b"a"))
    files.fail("sync", errno.EIO, path="partitions/*/messages/0*")
    core.send(partition, batch(b"b"))
    core.settle()
    still = files.fail("list_folder", errno.EIO, path="partitions/1-0/messages")
    answer = core.topics.reopen("default/orders")
    core.settle()
    assert still.fired == 1
    assert isinstance(answer.error, StorageError)
    assert core.read(partition) == [b"a"]
    refused = core.wait(core.send(partition, batch(b"c"))).results[0].error
    assert refused is not None
    assert isinstance(refused.error(), LogFencedError)
    assert core.wait(core.topics.reopen("default/orders")) == [0]


def test_reopening_what_is_open_does_nothing() -> None:
    """A topic without fenced partitions answers that none was reopened, and no epoch is spent."""
    core, _partition = start()
    epoch = core.topics.epoch
    assert core.topics.reopen("default/orders").result() == []
    assert core.topics.epoch == epoch


# -- many ------------------------------------------------------------------------------------------------------------


def test_a_hundred_partitions_share_a_sync_round() -> None:
    """Partitions that are written together are synced together: one round, not a hundred."""
    core = Core()
    topic = core.create("orders", 100)
    answers = [core.send(partition, batch(b"x")) for partition in topic.partitions]
    assert core.settle() == 1
    assert all(not answer.is_pending for answer in answers)


def test_a_thousand_operations_wait_their_turn() -> None:
    """Administration is done one at a time, without growing the stack, and each has its answer."""
    core = Core()
    core.create("orders")
    answers = [core.topics.create("default/orders", exist_ok=True) for _ in range(1_000)]
    assert all(not answer.result().created for answer in answers)
    making = core.topics.create("default/new")
    waiting = [core.topics.create("default/orders", exist_ok=True) for _ in range(999)]
    assert all(answer.is_pending for answer in waiting)
    core.settle()
    assert making.result().created
    assert all(not answer.is_pending for answer in waiting)
