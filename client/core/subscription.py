"""Which topics a reader reads: names, or a pattern that topics made later can match too."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ...protocol.errors import TidelogError
from ...protocol.messages import Metadata, MetadataReply
from ...protocol.topic_name import full_name, is_internal, short_name
from ..shortening import shortened
from .directory import TopicEntry
from .record import check_partition, to_partition

TopicChoice = str | Iterable[str] | re.Pattern[str]

MAX_SHOWN = 3
"""Topics that a repr names."""


class Subscription:
    """The topics a user asked for. A pattern must match a whole name as it is shown."""

    __slots__ = ("_names", "_pattern", "partition")

    def __init__(self, topics: TopicChoice, partition: int | None, namespace: str) -> None:
        self.partition = None if partition is None else to_partition(partition)
        self._pattern: re.Pattern[str] | None = None
        self._names: list[str] = []
        if isinstance(topics, re.Pattern):
            if not isinstance(topics.pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"topics: expected a pattern of text, found one of bytes, {topics.pattern!r}")
            self._pattern = topics
        else:
            names = [topics] if isinstance(topics, str) else _names(topics)
            self._names = list(dict.fromkeys(full_name(name, namespace) for name in names))
            if not self._names:
                raise ValueError("topics: expected at least one topic, found none")

    def __repr__(self) -> str:
        return f"<Subscription to {self}>"

    def __str__(self) -> str:
        if self._pattern is not None:
            return f"what matches {shortened(self._pattern.pattern)}"
        shown, more = self._names[:MAX_SHOWN], len(self._names) - MAX_SHOWN
        return ", ".join(map(short_name, shown)) + (f" and {more:,} more" if more > 0 else "")

    @property
    def is_pattern(self) -> bool:
        """Whether topics that are made later may be of it."""
        return self._pattern is not None

    def question(self) -> Metadata:
        """Return the request that tells what exists."""
        return Metadata(None if self._pattern is not None else self._names)

    def missing(self, reply: MetadataReply) -> TidelogError | None:
        """Return why a topic that was asked for by name is not there."""
        return reply.errors[0].error.error() if reply.errors else None

    def places(self, reply: MetadataReply) -> list[tuple[TopicEntry, int]]:
        """Return every partition to read. Raises UnknownPartitionError when the chosen one does not exist."""
        found: list[tuple[TopicEntry, int]] = []
        for info in reply.topics:
            if self._pattern is not None and not self._matches(info.name):
                continue
            entry = TopicEntry.of(info, reply.version)
            if self.partition is None:
                found += [(entry, index) for index in range(entry.partitions)]
            else:
                found.append((entry, check_partition(self.partition, entry.partitions, entry.shown)))
        return found

    def _matches(self, name: str) -> bool:
        return not is_internal(name) and bool(self._pattern and self._pattern.fullmatch(short_name(name)))


def _names(topics: Iterable[str]) -> list[str]:
    if not isinstance(topics, Iterable) or isinstance(topics, bytes | bytearray | memoryview):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"topics: expected a name, several names or a compiled pattern, found {topics!r}")
    return [*topics]
