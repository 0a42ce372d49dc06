"""Bringing partitions back that take no writes: those that are fenced, and those that could not be opened.

An operator asks for it (`topics reopen`): what a sync or a read said about a disk may be true still. Where there was no
room on it that is seen by trying, so it is tried again with each pass of retention, which makes room itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..protocol.errors import DiskFullError, LogFencedError, TidelogError
from ..protocol.topic_name import short_name
from .deferred import Deferred
from .errors import kept
from .flow import Flow, FlowQueue, called_back
from .message_log import MessageLog
from .meta import MetaLog
from .partition import Partition
from .registry import Registry
from .services import Services
from .topic import Topic
from .watches import Wake

OpenOne = Callable[[Topic, int, list[MessageLog]], Deferred[None]]
"""Opens the log of one partition in a worker."""


def _lacks_room(topic: Topic) -> bool:
    return bool(_offline_for_room(topic) or _unsaid_for_room(topic))


def _offline_for_room(topic: Topic) -> list[int]:
    return [index for index, why in topic.offline.items() if isinstance(why, DiskFullError)]


def _unsaid_for_room(topic: Topic) -> list[Partition]:
    return [partition for partition in topic.partitions if partition.delivery.lacks_room]


class Reopening:
    """The flows that do it. What they change is published in the registry."""

    def __init__(self, services: Services, meta: MetaLog, registry: Registry, open_one: OpenOne) -> None:
        self._services = services
        self._meta = meta
        self._registry = registry
        self._open_one = open_one
        self._is_looking = False

    def reopen(self, name: str) -> Flow[list[int]]:
        """Reopen the partitions of a topic that are fenced or offline; ends with those that serve again."""
        topic = self._registry.named(name)
        fenced = [partition for partition in topic.partitions if partition.is_fenced]
        unsaid = [partition for partition in topic.partitions if partition.delivery.needs_reopening]
        if not fenced and not topic.offline and not unsaid:
            return []
        yield self._meta.raise_epoch()
        return (yield from self._bring_back(topic, fenced, topic.offline, unsaid))

    def look_for_room(self, topics: Iterable[Topic], flows: FlowQueue) -> None:
        """Try again, in turn with whatever else is under way, what a full disk kept from being opened."""
        names = [topic.name for topic in topics if _lacks_room(topic)]
        if names and not self._is_looking:
            self._is_looking = True
            flows.run(self._reopen_full(names)).on_done(self._looked)

    def _looked(self, _done: Deferred[None]) -> None:
        self._is_looking = False

    def _reopen_full(self, names: Iterable[str]) -> Flow[None]:
        found = [topic for name in names if (topic := self._registry.find(name)) is not None and _lacks_room(topic)]
        if not found:
            return
        yield self._meta.raise_epoch()
        for topic in found:
            try:
                opened = yield from self._bring_back(topic, [], _offline_for_room(topic), _unsaid_for_room(topic))
            except TidelogError:
                continue  # there is no room yet, which is known
            for index in opened:
                self._services.report("opened as there is room", topic=short_name(topic.name), partition=index)

    def _bring_back(
        self, topic: Topic, fenced: Iterable[Partition], offline: Iterable[int], unsaid: Iterable[Partition]
    ) -> Flow[list[int]]:
        """Open some anew: fenced ones, those offline, and those whose delivery log is fenced or not open."""
        reopened: set[int] = set()
        failure: TidelogError | None = None
        for partition in fenced:
            error = yield from self._recover(topic, partition)
            if error is None:
                reopened.add(partition.index)
            failure = failure or error
        for index in offline:
            logs: list[MessageLog] = []
            try:
                yield self._open_one(topic, index, logs)
            except TidelogError as error:
                failure = failure or error
                continue
            partition = self._registry.make_partition(topic.id, index, logs[0], topic.settings)
            for told in self._registry.before_back:
                yield told(partition)
            topic.put(partition)
            self._registry.publish(topic)
            reopened.add(index)
            failure = failure or partition.delivery.problem()
        for partition in unsaid:
            error = yield from self._reopen_delivery(partition)
            if error is None:
                reopened.add(partition.index)
            failure = failure or error
        if failure is not None and not reopened:
            raise failure
        return sorted(reopened)

    def _recover(self, topic: Topic, partition: Partition) -> Flow[TidelogError | None]:
        """Recover a fenced log beside the old one, which serves reads until it is replaced."""
        old = partition.log
        why = LogFencedError("expected a log that takes writes, found one that is being reopened")
        yield called_back(lambda released: partition.release(why, released))
        logs: list[MessageLog] = []
        try:
            yield self._open_one(topic, partition.index, logs)
        except TidelogError as error:
            partition.keep()
            return kept(error)
        partition.replace(logs[0])
        old.close(clean=False)
        partition.wake(Wake.VISIBLE)
        return None

    def _reopen_delivery(self, partition: Partition) -> Flow[TidelogError | None]:
        """Recover a fenced delivery log, or open one that could not be opened; messages are read meanwhile."""
        delivery = partition.delivery
        why = LogFencedError("expected a delivery log that takes writes, found one that is being reopened")
        yield called_back(lambda released: delivery.release(why, released))
        delivery.let_go()
        yield delivery.reopen()
        return delivery.problem()
