"""The catalogs of all partitions, read from the store when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...protocol.errors import CorruptError
from ...protocol.topic_name import short_name
from ..deferred import Deferred
from ..flow import Flow, offloaded
from ..offload import Offload
from ..report import Report
from .catalog import BadEntry, Catalog
from .entry import Entry, Place, base_of, decode_entry, is_entry
from .store import ObjectStore, StoredObject

Key = tuple[int, int]
"""Topic id and partition."""


class Catalogs:
    """What is known of the archive; the loop's own."""

    def __init__(self, store: ObjectStore, offload: Offload, report: Report) -> None:
        self._store = store
        self._offload = offload
        self._report = report
        self._known: dict[Key, Catalog] = {}
        self._loading: dict[Key, Deferred[None]] = {}

    def __repr__(self) -> str:
        return f"<Catalogs of {len(self._known)} partitions>"

    def known(self, key: Key) -> Catalog | None:
        """Return a catalog that was read already."""
        return self._known.get(key)

    def of(self, place: Place) -> Flow[Catalog]:
        """Return the catalog of a partition, read once for all who ask. Raises what the store refuses with."""
        key = (place.topic_id, place.partition)
        while (known := self._known.get(key)) is None:
            yield self._loading.get(key) or self._load(key, place)
        return known

    def forget(self, key: Key) -> None:
        """Read it anew when it is asked for next."""
        self._known.pop(key, None)

    def keep(self, is_live: Callable[[int], bool]) -> None:
        """Forget the partitions of topics that are gone."""
        self._known = {key: catalog for key, catalog in self._known.items() if is_live(key[0])}

    def _load(self, key: Key, place: Place) -> Deferred[None]:
        found: list[Catalog] = []

        def work() -> None:
            found.append(read_catalog(self._store, place))

        def done(loaded: Deferred[None]) -> None:
            self._loading.pop(key, None)
            if found:
                self._known[key] = found[0]
                for note in found[0].notes:
                    self._report("archive entry not used", topic=place.topic, partition=place.partition, why=note)

        loading = self._loading[key] = offloaded(self._offload, work)
        loading.on_done(done)
        return loading


def read_catalog(store: ObjectStore, place: Place) -> Catalog:
    """Read all entries of a partition; blocks. Raises what the store refuses with."""
    names = [found.name for found in store.walk(place.folder) if is_entry(found.name)]
    reading = _Reading(place)
    for name, data in zip(names, store.read_many(names), strict=True):
        if data is not None:
            reading.take(name, data)
    return reading.catalog()


@dataclass(slots=True)
class _Reading:
    """Entries on their way into a catalog."""

    place: Place
    entries: list[Entry] = field(default_factory=list[Entry])
    bad: list[BadEntry] = field(default_factory=list[BadEntry])
    notes: list[str] = field(default_factory=list[str])

    def take(self, name: str, data: bytes) -> None:
        try:
            entry = decode_entry(data, name)
            if not self.place.is_own(entry) or entry.base_offset != base_of(name):
                raise CorruptError(f"expected the entry of {name}, found that of {entry.object}")
            self.entries.append(entry)
        except CorruptError as error:
            self.notes.append(error.message)
            self.bad.append(BadEntry(base_of(name) or 0, error.message))

    def catalog(self) -> Catalog:
        self.entries.sort(key=lambda entry: entry.base_offset)
        used: list[Entry] = []
        for entry in self.entries:
            if used and entry.base_offset < used[-1].end_offset:
                self.notes.append(
                    f"expected entries that do not overlap, found {entry.object} within {used[-1].object}: a copy of"
                    " the data directory archives there too"
                )
            else:
                used.append(entry)
        title = f"{short_name(self.place.topic)}/{self.place.partition}"
        return Catalog(title, used, self.bad, self.notes)


def objects_of(store: ObjectStore, folder: str) -> Sequence[StoredObject]:
    """Return all objects below a folder; blocks."""
    return list(store.walk(folder))
