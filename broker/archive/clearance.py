"""What retention may remove: segments that were seen in the store, whole and durable, a moment ago.

    retention asks --not seen lately--> queued --its turn--> looking --seen--> retention asks again: removed
                                                                `--an entry or its bytes are gone--> archived anew

An entry that is remembered is not enough: a lifecycle rule, another command or a store that was put in place of the
first may have removed what it names, and then the log has the only copy. One listing, of what the log still holds,
tells of a whole partition. Everything here runs on the loop, looks run in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...protocol.errors import TidelogError
from ...protocol.topic_name import short_name
from ..deferred import Deferred
from ..flow import Flow, offloaded, start_flow
from ..offload import Offload
from ..partition import Partition
from ..services import Services
from ..storage.sealed import SealedSegment
from ..topic import Topic
from .catalogs import Catalogs, Key
from .entry import Entry, Place
from .store import ObjectMissingError, ObjectStore

FRESH_US = 60_000_000
"""How long what was seen is taken to be there."""

LOOKS = 2
"""Partitions looked at a time: half of the threads that readers of the archive need too."""

RETRY_US = 10_000_000
"""How long a store that does not answer is left alone."""

AGAIN_US = 500_000
"""Retention goes over all partitions, so it is asked again for all that were looked at in this time."""


class Clearance:
    """Knows which archived segments were seen lately, and looks for those that retention asks about."""

    def __init__(
        self,
        services: Services,
        store: ObjectStore,
        offload: Offload,
        catalogs: Catalogs,
        place_of: Callable[[Topic, Partition], Place],
        *,
        recount: Callable[[Key], None],
        retain: Callable[[], None],
    ) -> None:
        """`recount` has a partition's segments compared with its catalog anew, `retain` is retention's pass."""
        self._services = services
        self._store = store
        self._offload = offload
        self._catalogs = catalogs
        self._place_of = place_of
        self._recount = recount
        self._retain = retain
        self._seen: dict[Key, tuple[int, frozenset[str]]] = {}
        self._secured: dict[Key, set[str]] = {}
        self._queue: dict[Key, tuple[Place, Partition]] = {}
        self._looking: set[Key] = set()
        self._errors: dict[Key, TidelogError] = {}
        self._not_before_us = 0
        self._is_asked_again = False

    def __repr__(self) -> str:
        return f"<Clearance {len(self._seen)} partitions seen, {len(self._looking)} looking, {len(self._queue)} queued>"

    def may_remove(self, topic: Topic, partition: Partition, segment: SealedSegment) -> bool:
        """Whether retention may remove a segment now; where it has to be looked for, retention is asked again."""
        key = (partition.topic_id, partition.index)
        catalog = self._catalogs.known(key)
        if catalog is None or not catalog.has(segment):
            self._recount(key)  # more is known of it than when it was looked at last
            return False
        entry = catalog.find(segment.base_offset)
        now_us = self._services.time.monotonic_us()
        seen_us, seen = self._seen.get(key, (0, frozenset[str]()))
        if entry is not None and entry.object in seen and now_us - seen_us <= FRESH_US:
            return True
        if key not in self._looking and now_us >= self._not_before_us:
            self._queue[key] = (self._place_of(topic, partition), partition)
            self._start()
        return False

    def error_of(self, key: Key) -> TidelogError | None:
        """Return why a partition could not be looked at the last time."""
        return self._errors.get(key)

    def keep(self, is_live: Callable[[int], bool]) -> None:
        """Forget the partitions of topics that are gone."""
        self._seen = {key: seen for key, seen in self._seen.items() if is_live(key[0])}
        self._secured = {key: names for key, names in self._secured.items() if is_live(key[0])}
        self._errors = {key: error for key, error in self._errors.items() if is_live(key[0])}

    # -- looking -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        while self._queue and len(self._looking) < LOOKS:
            key = next(iter(self._queue))
            place, partition = self._queue.pop(key)
            self._looking.add(key)
            start_flow(self._look(key, place, partition.start_offset)).on_done(partial(self._ended, key))

    def _look(self, key: Key, place: Place, log_start: int) -> Flow[None]:
        catalog = yield from self._catalogs.of(place)
        entries = [entry for entry in catalog.entries if entry.base_offset >= log_start]
        secured = self._secured.setdefault(key, set())
        known, seen, begun_us = frozenset(secured), list[str](), self._services.time.monotonic_us()
        yield offloaded(self._offload, lambda: seen.extend(look(self._store, place, entries, known)))
        self._seen[key] = (begun_us, frozenset(seen))
        self._secured[key] = set(seen)
        missing = [entry for entry in entries if entry.object not in self._seen[key][1]]
        if missing:
            self._services.report(
                "archived segments are gone",
                topic=short_name(place.topic),
                partition=place.partition,
                segments=len(missing),
                why=f"expected {missing[0].object} and its entry in {self._store.url}, found them gone or changed:"
                " archived again",
            )
            catalog.forget(missing)
            self._recount(key)

    def _ended(self, key: Key, done: Deferred[None]) -> None:
        self._looking.discard(key)
        if done.error is not None:
            self._errors[key] = done.error
            self._queue.clear()  # they would fail the same way
            self._not_before_us = self._services.time.monotonic_us() + RETRY_US
            return
        self._errors.pop(key, None)
        if not self._is_asked_again:
            self._is_asked_again = True
            self._services.timers.add(self._services.time.monotonic_us() + AGAIN_US, self._ask_again)
        self._start()

    def _ask_again(self) -> None:
        self._is_asked_again = False
        self._retain()


def look(store: ObjectStore, place: Place, entries: Sequence[Entry], secured: frozenset[str]) -> list[str]:
    """Return the objects that are there with their entries, made durable unless they are `secured`; blocks."""
    if not entries:
        return []
    after = place.before(entries[0].base_offset)
    found = {one.name: one.bytes for one in store.walk(place.folder, after)}
    seen: list[str] = []
    for entry in entries:
        name = place.entry_name(entry.base_offset)
        if name in found and found.get(entry.object) == entry.bytes:
            try:
                store.secure([] if entry.object in secured else [entry.object, name])
            except ObjectMissingError:
                continue
            seen.append(entry.object)
    return seen
