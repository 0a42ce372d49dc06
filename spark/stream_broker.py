"""What a stream asks the broker, with patience: a broker that restarts is waited for, one that stays away is named."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TypeVar

from ..client.blocking.client import Client
from ..client.errors import (
    TidelogError,
    TimedOutError,
    TruncatedError,
    UnknownPartitionError,
    UnknownTopicError,
)
from ..client.topic import Topic
from .fetching import FIRST_PAUSE_S, LONGEST_PAUSE_S
from .offsets import Offsets
from .options import ReadOptions
from .places import Place
from .planning import available_of, check_served, starts_of, unserved_of
from .stream_settle import Seen

T = TypeVar("T")

SHOWN_PLACES = 3
"""Partitions that an error names."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Lookout:
    """Looks what there is for one stream."""

    def __init__(self, client: Client, options: ReadOptions) -> None:
        self._client = client
        self._options = options
        self._selection = options.selection

    def __repr__(self) -> str:
        return f"<Lookout for {self._shown(())} at {self._client.address}>"

    def look(self, known: Iterable[Place]) -> Seen:
        """Return everything that the stream reads, by one request while all is well.

        Raises UnknownPartitionError for one that was assigned and never was there, TimedOutError that names the
        broker and what was asked for.
        """
        known = set(known)
        selection = self._selection
        if selection.pattern is not None:
            pattern = re.compile(selection.pattern)
            everything = self._ask(known, lambda timeout: self._client.topics.list(timeout=timeout))
            seen = _seen([topic for topic in everything if pattern.fullmatch(topic.name)], {})
            return self.confirm(seen, known)
        names = selection.topics or tuple(dict.fromkeys(place.topic for place in selection.places))
        seen = self._by_name(names, known)
        if not selection.places:
            return seen
        for place in selection.places:
            if place.topic in seen.made and place not in seen.available.keys() | seen.unserved | known:
                raise UnknownPartitionError(f"assign: expected partitions that exist, found {place}")
        chosen = {place: held for place, held in seen.available.items() if place in selection.places}
        unserved = seen.unserved.intersection(selection.places)
        return Seen(chosen, seen.made, seen.gone, unserved, seen.epochs, is_whole=False, ids=seen.ids)

    def look_at(self, places: Iterable[Place]) -> Seen:
        """Return what there is of topics, selected or not, that have these partitions."""
        places = set(places)
        return self._by_name(sorted({place.topic for place in places}), places)

    def confirm(self, seen: Seen, known: Iterable[Place]) -> Seen:
        """Return the same, with the topics that were known and are matched by the pattern, but are missing from the
        answer: each is asked for by name, as only that tells whether it is gone."""
        if self._selection.pattern is None:
            return seen
        pattern = re.compile(self._selection.pattern)
        asked = {place.topic for place in known if pattern.fullmatch(place.topic)}
        missing = sorted(asked - seen.made.keys() - seen.gone.keys())
        if not missing:
            return seen
        found = self._by_name(missing, known)
        return Seen(
            seen.available | found.available,
            seen.made | found.made,
            seen.gone | found.gone,
            seen.unserved | found.unserved,
            seen.epochs | found.epochs,
            ids=seen.ids | found.ids,
        )

    def find_cuts(self, positions: Mapping[Place, tuple[int, int]]) -> Offsets:
        """Return where logs end for a reader that was at an offset in an epoch, for those that lost what was before
        it. One request each: it is asked only after a broker has started again."""
        found: Offsets = {}
        for place, (epoch, offset) in sorted(positions.items()):
            end = self._ask([place], partial(self._survived, place, epoch, offset))
            if end is not None:
                found[place] = end
        return found

    def origins(self, seen: Seen) -> Offsets:
        """Return where a new stream begins. Raises OptionError, and what keeps a partition from being served."""

        def ask(_: float) -> Offsets:
            check_served(self._client, seen.unserved)
            return starts_of(self._client, self._options, seen.available)

        return self._ask(seen.available, ask)

    def wait(self, ends: Mapping[Place, int], seconds: float) -> None:
        """Return when something may be there behind these offsets, or when the time is over; `look` knows more."""
        until = time.monotonic() + seconds
        try:
            if ends:
                self._client.topics.wait({**ends}, duration=seconds, timeout=self._options.fetch_timeout_s)
                return
        except TidelogError:  # whatever it is, the next look meets it and says it
            seconds = min(FIRST_PAUSE_S, seconds)
        time.sleep(max(0.0, min(seconds, until - time.monotonic())))

    def _survived(self, place: Place, epoch: int, offset: int, timeout: float) -> int | None:
        try:
            self._client.topics.check(*place, epoch=epoch, offset=offset, timeout=timeout)
        except TruncatedError as error:
            end = error.details.get("end")
            return end if isinstance(end, int) else None
        except TidelogError as error:
            if error.retriable:
                raise
        return None  # what else is wrong there is for those who read there

    def _by_name(self, names: Iterable[str], known: Iterable[Place]) -> Seen:
        names = [*names]
        if not names:
            return Seen({}, {})
        try:
            return _seen(self._list(names, known), {})
        except UnknownTopicError:
            pass
        topics: list[Topic] = []
        gone: dict[str, UnknownTopicError] = {}
        for name in names:
            try:
                topics += self._list([name], known)
            except UnknownTopicError as error:
                gone[str(error.details.get("name", name))] = error
        return _seen(topics, gone)

    def _list(self, names: list[str], known: Iterable[Place]) -> list[Topic]:
        return self._ask(known, lambda timeout: self._client.topics.list(names, timeout=timeout))

    def _ask(self, known: Iterable[Place], question: Callable[[float], T]) -> T:
        """Return the answer to a question, which is given so many seconds for each time it is asked."""
        timeout_s = self._options.fetch_timeout_s
        until = time.monotonic() + timeout_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                return question(max(FIRST_PAUSE_S, until - time.monotonic()))
            except TidelogError as error:
                if not error.retriable:
                    raise
                if time.monotonic() + pause > until:
                    raise TimedOutError(
                        f"{self._shown(known)}: expected an answer about its offsets from {self._client.address}"
                        f" within fetchTimeoutMs={timeout_s * 1000:.0f}, found: {error}"
                    ) from error
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def _shown(self, known: Iterable[Place]) -> str:
        places = [str(place) for place in sorted(known) or self._selection.places]
        shown = places or [*self._selection.topics] or [f"topics that match {self._selection.pattern}"]
        more = f" and {len(shown) - SHOWN_PLACES} more" if len(shown) > SHOWN_PLACES else ""
        return ", ".join(shown[:SHOWN_PLACES]) + more


def _seen(topics: Iterable[Topic], gone: dict[str, UnknownTopicError]) -> Seen:
    topics = [*topics]
    made = {topic.name: (topic.created - _EPOCH) // _MICROSECOND for topic in topics}
    epochs = {Place(topic.name, each.index): each.epoch for topic in topics for each in topic.partitions if each.epoch}
    ids = {topic.name: (topic.count, topic.id) for topic in topics}
    return Seen(available_of(topics), made, gone, unserved_of(topics), epochs, ids=ids)
