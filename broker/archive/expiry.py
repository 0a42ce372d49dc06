"""Remove from the archive what is not to be kept for ever: by age, or what is left of deleted topics.

Entries go first, then the bytes they name: a crash in between leaves bytes without an entry, which nobody reads and the
next removal from that partition takes along. The oldest go first, so that no hole comes to be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .catalog import Catalog
from .catalogs import objects_of, read_catalog
from .entry import Entry, Place, base_of, is_entry, place_of
from .store import ObjectStore

FOR_EVER = 1 << 62
"""Past every offset and every time."""

LISTED = 1_000
"""So many removed segments are named in one answer."""


@dataclass(slots=True)
class Expiry:
    """What was removed, or would be. `upto` has the end of the last segment that goes from each partition."""

    entries: list[Entry] = field(default_factory=list[Entry])
    segments: int = 0
    bytes: int = 0
    upto: dict[Place, int] = field(default_factory=dict[Place, int])

    def add(self, place: Place, entries: Iterable[Entry]) -> None:
        """Take in what goes from one partition."""
        self.upto[place] = 0
        for entry in entries:
            self.upto[place] = entry.end_offset
            self.segments += 1
            self.bytes += entry.bytes
            if len(self.entries) < LISTED:
                self.entries.append(entry)


def old_entries(catalog: Catalog, log_start: int, before_us: int, upto: int) -> list[Entry]:
    """Return the oldest entries that were appended before a time, are in the log no more and end at `upto` at most."""
    old: list[Entry] = []
    for entry in catalog.entries:
        if entry.last_append_us >= before_us or entry.end_offset > min(log_start, upto):
            break
        old.append(entry)
    return old


def remove_entries(store: ObjectStore, place: Place, entries: Sequence[Entry]) -> None:
    """Remove segments from the archive, and bytes below them that no entry names; blocks."""
    if not entries:
        return
    end = entries[-1].end_offset
    store.remove([place.entry_name(entry.base_offset) for entry in entries])
    below = [found.name for found in objects_of(store, place.folder) if (base_of(found.name) or 0) < end]
    left = {base_of(name) for name in below if is_entry(name)}
    store.remove([name for name in below if not is_entry(name) and base_of(name) not in left])


def archived_places(store: ObjectStore, broker: str) -> list[Place]:
    """Return the partitions that there is something of below a broker's name; blocks. Whether a topic is gone is asked
    afterwards: one that is made while the store is listed is in the list too."""
    places = {place_of(found.name) for found in store.walk(broker)} - {None}
    return sorted(
        (place for place in places if place is not None),
        key=lambda place: (place.topic, place.topic_id, place.partition),
    )


def remove_place(store: ObjectStore, place: Place, *, dry_run: bool, upto: int) -> list[Entry]:
    """Remove all of a partition that ends at `upto` at most from the archive and return its entries; blocks."""
    found = read_catalog(store, place).entries
    entries = [entry for entry in found if entry.end_offset <= upto]
    if dry_run:
        return entries
    if len(entries) < len(found):
        remove_entries(store, place, entries)
    else:  # and what no entry names
        names = [found.name for found in objects_of(store, place.folder)]
        store.remove([name for name in names if is_entry(name)])
        store.remove([name for name in names if not is_entry(name)])
    return entries
