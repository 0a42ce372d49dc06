"""An archive looked at without a broker: all that is in a store, of topics and brokers that may be gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from ...protocol.topic_name import short_name
from ..storage.files import Files
from .cache import CACHE_FOLDER, check_object
from .catalog import Catalog
from .catalogs import read_catalog
from .entry import Entry, Place, place_of
from .expiry import FOR_EVER, Expiry, old_entries, remove_entries
from .store import ObjectStore


@dataclass(frozen=True, slots=True)
class Flaw:
    """What is wrong in an archive, and the range of offsets that it concerns."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str


class OfflineArchive:
    """The partitions below a store's url; every method blocks."""

    def __init__(self, store: ObjectStore, topic: str | None = None) -> None:
        """`topic` is the full name of the only one that is meant."""
        self._store = store
        found = {place_of(one.name) for one in store.walk("")}
        places = [place for place in found if place is not None and topic in (None, place.topic)]
        self._places = sorted(places, key=lambda one: (one.topic, one.broker, one.topic_id, one.partition))

    def __repr__(self) -> str:
        return f"<OfflineArchive {self._store.url} {len(self._places)} partitions>"

    def catalogs(self) -> Iterator[tuple[Place, Catalog]]:
        """Yield each partition of each topic, one made again and one of another broker by itself."""
        for place in self._places:
            yield place, read_catalog(self._store, place)

    def expire(self, before_us: int, *, dry_run: bool, confirmed: Expiry | None = None) -> Expiry:
        """Remove what was appended before a time; nothing that was not `confirmed`, where something was."""
        expiry = Expiry()
        for place, catalog in self.catalogs():
            upto = FOR_EVER if confirmed is None else confirmed.upto.get(place, 0)
            old = old_entries(catalog, FOR_EVER, before_us, upto)
            expiry.add(place, old)
            if not dry_run:
                remove_entries(self._store, place, old)
        return expiry


def flaws_of(store: ObjectStore, entry: Entry, files: Files) -> list[Flaw]:
    """Read a segment and say what is wrong with it; blocks. `files` is where it is put meanwhile."""
    damaged, reason = check_object(files, store, entry, f"{CACHE_FOLDER}/check.log")
    topic = short_name(entry.topic)
    return [Flaw(topic, entry.partition, start, end, reason) for start, end in damaged]


def holes(place: Place, catalog: Catalog) -> list[Flaw]:
    """Return the offsets between archived segments that are in none, and entries that cannot be read."""
    topic, entries = short_name(place.topic), catalog.entries
    found = [
        Flaw(topic, place.partition, before.end_offset, after.base_offset, "not archived")
        for before, after in pairwise(entries)
        if before.end_offset < after.base_offset
    ]
    return found + [Flaw(topic, place.partition, bad.base_offset, bad.base_offset, bad.why) for bad in catalog.bad]
