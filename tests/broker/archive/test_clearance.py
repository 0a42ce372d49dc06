"""Retention trusts the store and not its memory: what it removes was seen in the archive a moment before."""

from __future__ import annotations

from tests.helpers.archiving import SECOND, ArchivingCore, archived_topic

from tidelog.broker.archive.clearance import FRESH_US
from tidelog.broker.partition import Partition
from tidelog.broker.topics import Topic
from tidelog.protocol.errors import TidelogError

KEPT = {"retention_bytes": 1 << 40}
GONE = {"retention_bytes": 0}


def archived() -> tuple[ArchivingCore, Topic, Partition, list[bytes]]:
    """Return a core that has archived four segments and still has them in its log."""
    core, topic, partition = archived_topic()
    core.wait(core.topics.alter("default/orders", settings=KEPT))
    values = core.fill(partition, 27)
    core.advance(2 * SECOND)
    assert len(core.store.names(".json")) == 4
    return core, topic, partition, values


def remove_by_age(core: ArchivingCore) -> None:
    """Let retention want everything, for long enough to look and to archive anew."""
    core.wait(core.topics.alter("default/orders", settings=GONE))
    for _ in range(4):
        core.expire()


def test_bytes_removed_behind_the_broker_s_back_are_archived_again() -> None:
    """A segment whose object is gone stays in the log until it is archived anew; nothing is lost."""
    core, _topic, partition, values = archived()
    core.store.remove(core.store.names(".log")[:2])
    remove_by_age(core)
    assert partition.start_offset == 24
    assert (len(core.store.names(".json")), len(core.store.names(".log"))) == (4, 4)
    assert core.read_archived(partition) == values
    assert core.events.count("archived segments are gone") == 1


def test_entries_removed_behind_the_broker_s_back_are_written_again() -> None:
    """So are segments that somebody else expired, as `tidelog archive expire --store` does."""
    core, _topic, partition, values = archived()
    core.store.remove(core.store.names(".json")[1:])
    remove_by_age(core)
    assert partition.start_offset == 24
    assert core.read_archived(partition) == values


def test_a_store_put_in_place_of_the_first_gets_everything_anew() -> None:
    """An empty store under the same url takes nothing from the log that it does not have."""
    core, _topic, partition, values = archived()
    core.store.objects.clear()
    remove_by_age(core)
    assert partition.start_offset == 24
    assert core.read_archived(partition) == values


def test_an_object_cut_short_since_is_sent_anew() -> None:
    """Bytes of another size than the entry says are not the segment."""
    core, _topic, partition, values = archived()
    core.store.cut(core.store.names(".log")[0], 5_000)
    remove_by_age(core)
    assert core.read_archived(partition) == values


def test_a_start_makes_durable_what_an_earlier_process_put() -> None:
    """Who put an object into a folder may have been killed before it was synced: that is done before retention."""
    core, _topic, _partition, _values = archived()
    again = core.next_archiving(core.files)
    partition = again.topic("orders").partition(0)
    again.advance(2 * SECOND)
    assert again.store.secured == set()
    remove_by_age(again)
    assert partition.start_offset == 24
    assert {name for name in again.store.objects if name.endswith((".json", ".log"))} == again.store.secured


def test_what_was_seen_long_ago_is_looked_for_again() -> None:
    """A minute later the store is asked again: what went meanwhile is still in the log."""
    core, _topic, partition, values = archived()
    core.wait(core.topics.alter("default/orders", settings={"retention_bytes": 150_000}))
    core.expire()
    start = partition.start_offset
    assert 0 < start < 24
    core.advance(FRESH_US + SECOND)
    core.store.remove([name for name in core.store.names(".log") if int(name.rsplit("/", 1)[1][:20]) >= start])
    remove_by_age(core)
    assert partition.start_offset == 24
    assert core.read_archived(partition) == values


def test_a_store_that_cannot_be_asked_keeps_the_segments_and_is_named() -> None:
    """While the store does not answer nothing goes although all is archived, and the partition says why."""
    core, topic, partition, _values = archived()
    core.store.go_away()
    remove_by_age(core)
    assert partition.start_offset == 0
    told = topic.partition_info(0, "n", details=True)
    core.archive.describe(topic.id, told)
    error = told.archive_error
    assert error is not None
    assert error.error().code == "ARCHIVE_UNAVAILABLE"
    walks = sum(step.startswith("walk") for step in core.store.steps)
    core.store.come_back()
    core.advance(11 * SECOND)
    core.expire()
    assert partition.start_offset == 24
    told = topic.partition_info(0, "n", details=True)
    core.archive.describe(topic.id, told)
    assert told.archive_error is None
    assert sum(step.startswith("walk") for step in core.store.steps) == walks + 1, "one listing for all four"


def test_one_listing_begins_where_the_log_does() -> None:
    """How much is archived below the log does not matter: only what the log still holds is listed."""
    core, _topic, partition, _values = archived()
    remove_by_age(core)
    core.fill(partition, 7, first=27)
    core.advance(2 * SECOND)
    listed: list[str] = []
    walk = core.store.walk

    def counted(prefix: str, after: str | None = None) -> object:
        found = list(walk(prefix, after))
        listed.extend(one.name for one in found)
        return iter(found)

    core.store.walk = counted  # type: ignore[method-assign, assignment]
    core.advance(FRESH_US + SECOND)
    core.expire()
    assert partition.start_offset == 30
    assert {name.rsplit("/", 1)[1][:20] for name in listed} == {f"{24:020d}"}


def test_what_is_left_of_killed_copies_is_swept_at_the_start() -> None:
    """Only below the broker's own name, and a store that cannot be swept does not hold the start."""
    core, _topic, _partition, _values = archived()
    assert core.store.swept == ["00112233445566aa"]

    def refuse(_prefix: str) -> int:
        raise TidelogError("expected it to answer")

    core.store.sweep = refuse  # type: ignore[method-assign]
    assert core.next_archiving(core.files).topic("orders").name == "default/orders"
