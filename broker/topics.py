"""All topics of one broker: the registry of what is served, and the doors to administration and identities.

What is recorded (`meta`) decides what exists; what is published here is what a peer can use. The two differ only
while a flow of `administration` is under way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from ..protocol.errors import TidelogError, UnknownTopicError, UnknownTopicIdError
from ..protocol.messages import InitProducerReply
from ..protocol.topic_name import is_internal, short_name
from ..protocol.topic_settings import SettingValue
from .administration import Administration, Created
from .deferred import Deferred
from .errors import storage_error
from .flow import Flow, FlowQueue
from .message_log import MessageLog
from .meta import MetaLog, ProducerIds, RangeQuarantined
from .nearest_name import nearest_name
from .opening import refuse_lost_facts
from .partition import Partition, PartitionStatistics
from .services import Services
from .start import StartReport, start_topics
from .storage.damage import DamagedRange
from .storage.log import Log
from .storage.retention import Expired
from .storage.sealed import Removable
from .storage.sync_round import SyncTask, run_round
from .topic import Topic
from .topic_defaults import SettingsInForce, TopicDefaults, TopicLimits
from .turns import Pace
from .watches import Wake, Watches

__all__ = ["Created", "StartReport", "Topic", "TopicDefaults", "TopicLimits", "Topics", "TopicsStatistics"]


IsArchived = Callable[[Topic, Partition], Removable | None]
"""Returns what says which segments retention may remove, None for all."""


def _all(_topic: Topic, _partition: Partition) -> Removable | None:
    """Stand in where no groups are served."""
    return None


def _both(first: Removable | None, second: Removable | None) -> Removable | None:
    if first is None or second is None:
        return first or second
    return lambda segment: first(segment) and second(segment)


def _no_archive(topic: Topic, _partition: Partition) -> Removable | None:
    """Stand in for an archive where there is none: what was to be archived is kept until there is one."""
    return (lambda _segment: False) if topic.settings.archive else None


@dataclass(frozen=True, slots=True)
class TopicsStatistics:
    """Counters and gauges over all topics."""

    topics: int
    partitions: int
    offline_partitions: int
    fenced_partitions: int
    damaged_records: int
    producers: int
    dedup_ids: int
    dedup_ids_forgotten: int
    expired_segments: int
    expired_bytes: int
    failed_upkeep_steps: int


class Topics:
    """The registry of topics, their partitions, and producer identities."""

    def __init__(self, services: Services, meta: MetaLog, defaults: TopicDefaults, limits: TopicLimits) -> None:
        self._services = services
        self.meta = meta
        self.defaults = defaults
        self._by_id: dict[int, Topic] = {}
        self._by_name: dict[str, Topic] = {}
        self._administration = Administration(services, meta, self, defaults, limits)
        self.flows = FlowQueue()
        """Where all that is recorded in `meta` has its turn, groups' administration included."""
        self.when_gone: list[Callable[[Topic], None]] = []
        """Told of each topic that was deleted."""
        self.when_changed: list[Callable[[Topic], None]] = []
        """Told of each topic that is new, or has other settings or more partitions."""
        self.when_damaged: list[Callable[[Partition], None]] = []
        """Told of each partition in which damage was found."""
        self.before_back: list[Callable[[Partition], Deferred[None]]] = []
        """Told of each partition that was offline, before it serves again; resolves when it may."""
        self.when_expired: list[Callable[[], None]] = [self._reopen_full]
        """Told when retention has been at all topics."""
        self.changes = Watches()
        """Who waits for a change of any topic."""
        self._producer_ids = ProducerIds(meta)
        self._expired_segments = self._expired_bytes = 0
        self.is_archived: IsArchived = _no_archive
        """Asked which segments of a topic retention may remove."""
        self.is_settled: IsArchived = _all
        """The same, of topics whose retention waits for groups."""
        self.is_moved: IsArchived = _all  # the same, of copies that a start might have to find
        self.version = meta.state.version
        """Rises with every change of any topic, also over restarts."""
        self.report = StartReport()
        """What the start found."""

    def __repr__(self) -> str:
        return f"<Topics {len(self._by_id)} topics, version {self.version}>"

    @classmethod
    def open(cls, services: Services, *, defaults: TopicDefaults, limits: TopicLimits) -> Topics:
        """Recover everything under `services.files`; blocks. Partitions that cannot be opened are offline.

        Raises StorageError, UnsupportedError (a later broker wrote this), CorruptError (facts are damaged).
        """
        try:
            refuse_lost_facts(services.files)
            meta = MetaLog.open(services)
            topics = cls(services, meta, defaults, limits)
            topics.report = start_topics(services, meta, topics, defaults)
        except OSError as error:
            raise storage_error(error, "opening the data directory") from error
        return topics

    # -- lookups -------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The broker's epoch: raised at every start."""
        return self.meta.state.epoch

    def all(self) -> list[Topic]:
        """Return the live topics by name."""
        return [self._by_name[name] for name in sorted(self._by_name)]

    def find(self, name: str) -> Topic | None:
        """Return a topic by full name, or None."""
        return self._by_name.get(name)

    def named(self, name: str) -> Topic:
        """Return a topic by full name. Raises UnknownTopicError that suggests the nearest."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        shown = short_name(name)
        nearest = nearest_name(shown, (short_name(other) for other in self._by_name if not is_internal(other)))
        hint = f'; did you mean "{nearest}"?' if nearest else ""
        raise UnknownTopicError(f'no topic "{shown}"{hint}', name=shown, nearest=nearest)

    def by_id(self, topic_id: int) -> Topic:
        """Return a topic by id. Raises UnknownTopicIdError."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise UnknownTopicIdError(
                f"expected the id of a topic that exists, found {topic_id}; it was deleted, or made again under its"
                " name with another id",
                topic_id=topic_id,
            )
        return topic

    def find_id(self, topic_id: int) -> Topic | None:
        """Return the topic of an id, or None."""
        return self._by_id.get(topic_id)

    def partition(self, topic_id: int, index: int) -> Partition:
        """Return a partition. Raises UnknownTopicIdError, UnknownPartitionError, or what keeps it offline."""
        return self.by_id(topic_id).partition(index)

    # -- changes -------------------------------------------------------------------------------------------------

    def create(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        exist_ok: bool = False,
    ) -> Deferred[Created]:
        """Make a topic of a full name. Fails with TopicExistsError, InvalidTopicError, TopicLimitError."""
        return self.flows.run(self._administration.create(name, partitions, settings or {}, exist_ok=exist_ok))

    def alter(
        self,
        name: str,
        *,
        partitions: int | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        reset: Sequence[str] = (),
    ) -> Deferred[Topic]:
        """Change settings and raise the number of partitions. Fails with UnknownTopicError, InvalidTopicError."""
        return self.flows.run(self._administration.alter(name, partitions, settings or {}, reset))

    def delete(self, name: str) -> Deferred[int]:
        """Delete a topic; its id, which is never used again. Fails with UnknownTopicError."""
        return self.flows.run(self._administration.delete(name))

    def reopen(self, name: str) -> Deferred[list[int]]:
        """Reopen the fenced partitions of a topic; their indexes. Fails with UnknownTopicError, StorageError."""
        return self.flows.run(self._administration.reopen(name))

    def _reopen_full(self) -> None:
        self._administration.look_for_room(self._by_id.values(), self.flows)

    def init_producer(self, name: str | None) -> Deferred[InitProducerReply]:
        """Give a producer identity: a new id, or a returning name's own id under a raised epoch."""
        return self._producer_ids.take(name)

    # -- what the flows publish ----------------------------------------------------------------------------------

    def publish(self, topic: Topic) -> None:
        """Serve a topic, or serve it as it is now."""
        self._by_id[topic.id] = self._by_name[topic.name] = topic
        self.version = self.meta.state.version
        for told in self.when_changed:
            told(topic)
        self.changes.wake(Wake.CHANGED)

    def withdraw(self, topic: Topic) -> None:
        """Serve a topic no more."""
        del self._by_id[topic.id], self._by_name[topic.name]
        self.version = self.meta.state.version
        for told in self.when_gone:
            told(topic)
        self.changes.wake(Wake.CHANGED)

    def make_partition(self, topic_id: int, index: int, log: MessageLog, settings: SettingsInForce) -> Partition:
        """Return the owner of an opened log."""
        return Partition(self._services, topic_id, index, log, settings, self._record_damage)

    def _record_damage(self, partition: Partition, found: Sequence[DamagedRange]) -> None:
        log_id, epoch = partition.log.log_id, self.meta.state.epoch
        self.meta.record(*(RangeQuarantined(log_id, damage.start, damage.end, epoch) for damage in found))
        for damage in found:
            self._services.report(
                "damage found",
                topic_id=partition.topic_id,
                partition=partition.index,
                start=damage.start,
                end=damage.end,
            )
        for told in self.when_damaged:
            told(partition)

    # -- retention, statistics, the end --------------------------------------------------------------------------

    def expire(self) -> None:
        """Remove what retention no longer keeps, and producers that were not heard of; called every so often."""
        time = self._services.time
        age_allowed, now_us = time.age_retention_allowed(), time.wall_us()
        expired: list[Expired] = []
        try:
            for topic in self._by_id.values():
                for partition in topic.partitions:
                    found = self._expire(topic, partition, now_us, age_allowed=age_allowed)
                    expired += [] if found is None else [found]
                    found = partition.delivery.expire(now_us, age_allowed=age_allowed)
                    expired += [] if found is None else [found]
        finally:  # what was dropped is in no log any more, so its files go whatever happens to the others
            self._remove_segments(expired)
        for told in self.when_expired:
            told()

    def _expire(self, topic: Topic, partition: Partition, now_us: int, *, age_allowed: bool) -> Expired | None:
        try:
            asked = (self.is_settled, self.is_archived, self.is_moved)
            may_remove = reduce(_both, [one(topic, partition) for one in asked])
            return partition.expire(now_us, age_allowed=age_allowed, may_remove=may_remove)
        except TidelogError as error:  # the others must not fill the disk because of this one
            self._services.report(
                "retention failed", topic_id=partition.topic_id, partition=partition.index, why=error.message
            )
            return None

    def _remove_segments(self, expired: Sequence[Expired]) -> None:
        if not expired:
            return
        self._expired_segments += sum(len(found.segments) for found in expired)
        self._expired_bytes += sum(found.removed_bytes for found in expired)
        errors: list[TidelogError | None] = []

        def done() -> None:
            for found, error in zip(expired, errors, strict=True):
                if error is not None:
                    self._services.report("segments not removed", folder=found.folder, why=error.message)

        self._services.offload(lambda: errors.extend(found.run() for found in expired), done)

    def statistics(self, pace: Pace) -> Flow[TopicsStatistics]:
        """Return counters and gauges; each partition is counted as it is when its turn comes."""
        partitions, fenced = yield from _counted(self._partitions(), pace)
        return TopicsStatistics(
            topics=len(self._by_id),
            partitions=sum(topic.partition_count for topic in self._by_id.values()),
            offline_partitions=sum(len(topic.offline) for topic in self._by_id.values()),
            fenced_partitions=fenced,
            damaged_records=sum(one.damaged_records for one in partitions),
            producers=sum(one.producers for one in partitions),
            dedup_ids=sum(one.dedup_ids for one in partitions),
            dedup_ids_forgotten=sum(one.dedup_ids_forgotten for one in partitions),
            expired_segments=self._expired_segments,
            expired_bytes=self._expired_bytes,
            failed_upkeep_steps=self._services.upkeep.failed_steps,
        )

    def _partitions(self) -> list[Partition]:
        return [partition for topic in self._by_id.values() for partition in topic.partitions]

    def close(self, *, clean: bool = True) -> None:
        """Make everything durable and close all logs; blocks. No round and no upkeep may be out."""
        logs: list[Log] = [log for partition in self._partitions() for log in partition.logs]
        logs.append(self.meta.log)
        if clean:
            _sync_together(self._services, logs)
        for log in logs:
            log.close(clean=clean)


def _sync_together(services: Services, logs: Sequence[Log]) -> None:
    tasks: list[tuple[Log, SyncTask]] = [(log, task) for log in logs if (task := log.begin_sync()) is not None]
    errors = run_round(services.files, [task for _log, task in tasks])
    for (log, task), error in zip(tasks, errors, strict=True):
        log.finish_sync(task, error)
        if error is not None:
            services.report("sync failed at the stop", folder=log.folder, why=error.message)


def _counted(partitions: Sequence[Partition], pace: Pace) -> Flow[tuple[list[PartitionStatistics], int]]:
    """Return what each partition counts, and how many are fenced."""
    found: list[PartitionStatistics] = []
    fenced = 0
    for partition in partitions:
        found.append(partition.statistics())
        fenced += partition.is_fenced
        yield from pace.spend()
    return found, fenced
