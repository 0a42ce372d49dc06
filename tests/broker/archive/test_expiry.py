"""Removing from the archive: the oldest first, never what a log still holds, and whole topics that are deleted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from tests.helpers.archiving import SECOND, ArchivingCore, archived_topic
from tests.helpers.object_stores import Died

from tidelog.broker.archive import expiry
from tidelog.broker.archive.entry import Place
from tidelog.broker.archive.offline import OfflineArchive, flaws_of, holes
from tidelog.broker.archive.store import StoredObject
from tidelog.broker.partition import Partition
from tidelog.broker.storage.files import MemoryFiles


def archived(count: int = 27) -> tuple[ArchivingCore, Partition, list[bytes]]:
    """Return a core whose topic has all but its active segment in the archive only."""
    core, _topic, partition = archived_topic()
    values = core.fill(partition, count)
    core.advance(2 * SECOND)
    core.expire()
    return core, partition, values


def test_what_is_older_goes_and_the_rest_stays() -> None:
    """Segments whose last message is older than the time go, entries and objects; reading begins behind them."""
    core, partition, values = archived()
    topic = core.topic("orders")
    (_first, second, _third, _fourth) = core.archive.entries(topic).result()
    before_us = second.last_append_us + 1
    trial = core.archive.expire(topic, before_us, dry_run=True).result()
    assert (trial.segments, len(core.store.objects)) == (2, 8)
    done = core.archive.expire(topic, before_us, dry_run=False).result()
    assert [(entry.base_offset, entry.end_offset) for entry in done.entries] == [(0, 6), (6, 12)]
    assert done.bytes == sum(entry.bytes for entry in done.entries)
    assert len(core.store.objects) == 4
    assert core.read_archived(partition, 12) == values[12:]
    result = core.fetch_archived(partition, 3).result
    assert result.error is not None
    assert (result.error.error().code, result.error.details["start"]) == ("OFFSET_OUT_OF_RANGE", 12)


def test_what_is_in_the_log_is_never_removed() -> None:
    """Nothing of the archive goes that the log still holds: it would only be archived again."""
    core, _topic, partition = archived_topic()
    core.fill(partition, 27)
    core.advance(2 * SECOND)
    done = core.archive.expire(core.topic("orders"), 1 << 61, dry_run=False).result()
    assert (done.segments, len(core.store.names(".json"))) == (0, 4)


def test_a_removal_that_dies_leaves_no_entry_without_its_object() -> None:
    """Wherever removing ends, what is listed can be read, and doing it again removes the rest."""
    deaths = 0
    for dies_at in itertools.count():
        core, partition, values = archived()
        topic = core.topic("orders")
        begun = len(core.store.steps)
        core.store.dies_at = 2 * begun + dies_at
        try:
            core.archive.expire(topic, 1 << 61, dry_run=False)
        except Died:
            deaths += 1
        else:
            break
        after = core.next_archiving(core.files)
        partition = after.topic("orders").partition(0)
        entries = after.archive.entries(after.topic("orders")).result()
        start = entries[0].base_offset if entries else 24
        assert after.read_archived(partition, start) == values[start:]
        for entry in entries:
            assert entry.object in after.store.objects
        after.archive.expire(after.topic("orders"), 1 << 61, dry_run=False).result()
        assert after.store.names(".json") == []
    assert deaths >= 16


def test_deleted_topics_are_removed_whole() -> None:
    """All that this broker archived of deleted topics goes, and nothing of live ones or of another broker's."""
    core, partition, values = archived()
    gone = core.create("gone").partition(0)
    core.fill(gone, 13)
    other = ArchivingCore(store=core.store, identity="f" * 16)
    other.fill(other.create("gone").partition(0), 13)
    for one in (core, other):
        one.advance(2 * SECOND)
    core.wait(core.topics.delete("default/gone"))
    trial = core.archive.expire_deleted(dry_run=True).result()
    assert {(entry.broker, entry.topic, entry.topic_id) for entry in trial.entries} == {
        ("00112233445566aa", "default/gone", 2)
    }
    assert (trial.segments, len(core.store.names(".json"))) == (2, 8)
    assert core.archive.expire_deleted(dry_run=False).result().segments == 2
    assert len(core.store.names(".json")) == 6
    assert core.archive.expire_deleted(dry_run=False).result().segments == 0
    assert core.read_archived(partition) == values
    assert any("/gone/" in name and name.startswith("f" * 16) for name in core.store.objects)


def test_a_topic_that_is_made_while_deleted_ones_are_looked_for_is_kept() -> None:
    """What is archived of it is in the list that was asked for before it was there; nothing of it goes."""
    core, _, _ = archived()
    walk = core.store.walk

    def walk_while_one_is_made(prefix: str) -> Iterator[StoredObject]:
        late = core.create("late")
        name = Place("00112233445566aa", late.name, late.id, 0).entry_name(0)
        core.store.objects[name] = b"its first entry"
        return walk(prefix)

    core.store.walk = walk_while_one_is_made  # type: ignore[method-assign]
    assert core.archive.expire_deleted(dry_run=False).result().segments == 0
    assert [name for name in core.store.names(".json") if "/late/" in name]


def test_nothing_goes_that_was_not_confirmed() -> None:
    """What grows old, leaves the log or is deleted after a dry run stays, until somebody confirms it."""
    core, partition, values = archived()
    trial = core.archive.expire(core.topic("orders"), 1 << 61, dry_run=True).result()
    upto = [(place.topic_id, place.partition, end) for place, end in trial.upto.items()]
    assert upto == [(1, 0, 24)]
    values += core.fill(partition, 12, first=27)
    core.advance(2 * SECOND)
    core.expire()
    assert partition.start_offset == 36
    assert core.archive.expire(core.topic("orders"), 1 << 61, dry_run=False, upto=[]).result().segments == 0
    done = core.archive.expire(core.topic("orders"), 1 << 61, dry_run=False, upto=upto).result()
    assert [(entry.base_offset, entry.end_offset) for entry in done.entries] == [(0, 6), (6, 12), (12, 18), (18, 24)]
    assert core.read_archived(partition, 24) == values[24:]
    assert core.archive.expire(core.topic("orders"), 1 << 61, dry_run=False, upto=upto).result().segments == 0


def test_no_deleted_topic_goes_that_was_not_confirmed() -> None:
    """A topic that is deleted after the dry run stays, and so does what of a confirmed one came later."""
    core, _partition, _values = archived()
    second = core.create("second").partition(0)
    core.fill(second, 13)
    core.advance(2 * SECOND)
    core.wait(core.topics.delete("default/orders"))
    trial = core.archive.expire_deleted(dry_run=True).result()
    core.wait(core.topics.delete("default/second"))
    upto = [(place.topic_id, place.partition, end) for place, end in trial.upto.items()]
    assert upto == [(1, 0, 24)]
    part = core.archive.expire_deleted(dry_run=False, upto=[(1, 0, 12)]).result()
    assert (part.segments, len(core.store.names(".log"))) == (2, 4)
    assert core.archive.expire_deleted(dry_run=False, upto=upto).result().segments == 2
    assert {entry.topic for entry in core.archive.expire_deleted(dry_run=True).result().entries} == {"default/second"}


def test_all_that_deleted_topics_left_leaves_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many segments are named in the answer, none of those removed is kept at hand."""
    monkeypatch.setattr(expiry, "LISTED", 1)
    core, partition, values = archived()
    assert core.read_archived(partition) == values
    core.wait(core.topics.delete("default/orders"))
    assert core.archive.cache.held_bytes > 0
    assert core.archive.expire_deleted(dry_run=True).result().segments == 4
    assert core.archive.cache.held_bytes > 0, "a dry run changes nothing"
    done = core.archive.expire_deleted(dry_run=False).result()
    assert (done.segments, len(done.entries), core.archive.cache.held_bytes) == (4, 1, 0)


def test_verifying_reads_from_the_store_and_not_from_the_cache() -> None:
    """What rots in the store after it was read is found, and what is mended there is well again."""
    core, partition, values = archived()
    assert core.read_archived(partition) == values
    topic = core.topic("orders")
    assert core.archive.verify(topic, partition, 6).result() == ([], "")
    name = core.store.names(".log")[1]
    core.store.flip(name, 4096 + 25_000)
    ranges, reason = core.archive.verify(topic, partition, 6).result()
    assert (ranges, reason) == ([(8, 9)], f"{name} does not have the checksum of its entry")
    core.store.flip(name, 4096 + 25_000)
    assert core.archive.verify(topic, partition, 6).result() == ([], "")
    core.store.flip(name, 3000)
    assert core.archive.verify(topic, partition, 6).result()[0] == [(6, 12)]
    del core.store.objects[name]
    assert core.archive.verify(topic, partition, 6).result()[1] == f"{name} is missing from the archive"
    assert core.archive.verify(topic, partition, 7).error is not None


def test_an_archive_is_looked_at_without_its_broker() -> None:
    """From the store alone come all entries, their damage, and the holes between them."""
    core, _partition, _values = archived()
    offline = OfflineArchive(core.store)
    ((place, catalog),) = offline.catalogs()
    assert (place.topic, place.topic_id, len(catalog)) == ("default/orders", 1, 4)
    files = MemoryFiles()
    files.make_folder("archive")
    files.make_folder("archive/cache")
    assert [flaws_of(core.store, entry, files) for entry in catalog.entries] == [[], [], [], []]
    core.store.cut(core.store.names(".log")[3], 4096)
    (flaw,) = flaws_of(core.store, catalog.entries[3], files)
    assert (flaw.topic, flaw.partition, flaw.start, flaw.end) == ("orders", 0, 18, 24)
    core.store.remove([core.store.names(".json")[1]])
    ((place, catalog),) = offline.catalogs()
    (hole,) = holes(place, catalog)
    assert (hole.start, hole.end, hole.reason) == (6, 12, "not archived")
    assert list(OfflineArchive(core.store, "default/others").catalogs()) == []


def test_an_archive_without_its_broker_is_emptied_by_age() -> None:
    """Without a broker whatever is old goes, of every broker and topic of the name."""
    core, _partition, _values = archived()
    (first, *_) = core.archive.entries(core.topic("orders")).result()
    offline = OfflineArchive(core.store, "default/orders")
    assert offline.expire(first.last_append_us + 1, dry_run=True).segments == 1
    assert offline.expire(first.last_append_us + 1, dry_run=False).segments == 1
    assert offline.expire(1 << 61, dry_run=False).segments == 3
    assert core.store.objects == {}
