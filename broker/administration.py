"""Making, changing, deleting and reopening topics: each a flow from a check through a synced fact to its effect.

    create   check -> TopicCreated synced -> folders and logs made in a worker -> serves -> PartitionsMade
    alter    check -> TopicAltered synced -> logs of new partitions made -> in force, those who wait are told
    delete   TopicDeleted synced -> gone for everybody -> folders removed in a worker -> TopicRemoved
    reopen   EpochRaised synced -> no thread at the fenced logs -> recovered in a worker -> take writes again

One flow at a time, so no two can meet. README.md says what a crash between any two steps leaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..protocol.errors import (
    ArchiveOffError,
    InvalidTopicError,
    TidelogError,
    TopicExistsError,
    TopicLimitError,
)
from ..protocol.topic_name import INTERNAL_PREFIX, is_internal, short_name
from ..protocol.topic_settings import KEYS, SettingValue, check_settings
from .deferred import Deferred
from .flow import Flow, FlowQueue, called_back, offloaded
from .message_log import MessageLog
from .meta import (
    MetaLog,
    PartitionsMade,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from .opening import Wanted, open_partitions, remove_partitions
from .partition import Partition
from .registry import Registry
from .reopening import Reopening
from .services import Services
from .storage.settings import LogSettings
from .topic import Topic
from .topic_defaults import SettingsInForce, TopicDefaults, TopicLimits

_PATH = re.compile(r" \(.*/.*\)$")
"""The file at the end of what the operating system refused."""


@dataclass(frozen=True, slots=True)
class Created:
    """The topic, and whether this request made it."""

    topic: Topic
    created: bool


class Administration:
    """The flows. What they need of the broker comes in; what they change is published in the registry."""

    def __init__(
        self, services: Services, meta: MetaLog, registry: Registry, defaults: TopicDefaults, limits: TopicLimits
    ) -> None:
        self._services = services
        self._meta = meta
        self._registry = registry
        self._defaults = defaults
        self._limits = limits
        self._reopening = Reopening(services, meta, registry, self._open_one)

    # -- create --------------------------------------------------------------------------------------------------

    def create(
        self, name: str, partitions: int | None, given: Mapping[str, SettingValue], *, exist_ok: bool
    ) -> Flow[Created]:
        """Make a topic."""
        existing = self._registry.find(name)
        if existing is not None:
            if exist_ok:
                return Created(existing, False)
            raise TopicExistsError(f"expected a new topic name, found that {short_name(name)} exists", name=name)
        count = self._defaults.partitions if partitions is None else partitions
        self._check_new(name, count, given)
        state = self._meta.state
        created = TopicCreated(
            state.next_topic_id,
            name,
            state.counts.get(name, 0) + 1,
            count,
            dict(given),
            self._services.time.now_us(),
        )
        yield self._meta.record(created)
        record = state.topics[created.topic_id]
        settings = self._defaults.in_force(record.settings)
        logs: list[MessageLog] = []
        try:
            yield self._open(record.id, range(count), settings, logs)
        except TidelogError as error:
            self._services.report("topic not created", name=name, why=error.message)
            yield self._meta.record(TopicDeleted(record.id))
            yield from self._remove_folders(record.id)
            raise
        topic = Topic(record, settings, self._partitions(record.id, 0, logs, settings))
        self._registry.publish(topic)
        self._meta.record(PartitionsMade(record.id, count))
        return Created(topic, True)

    def _check_new(self, name: str, partitions: int, given: Mapping[str, SettingValue]) -> None:
        if is_internal(name):
            raise InvalidTopicError(
                f"expected a name that does not begin with {INTERNAL_PREFIX} (the broker's own), found {name!r}",
                name=name,
            )
        self._check_settings(given)
        self._check_partitions(partitions, more=partitions)
        if len(self._meta.state.topics) >= self._limits.max_topics:
            raise TopicLimitError(
                f"expected at most {self._limits.max_topics} topics, found one more", limit=self._limits.max_topics
            )

    def _check_settings(self, given: Mapping[str, SettingValue]) -> None:
        check_settings(given)
        if given.get("archive") == "on" and not self._defaults.has_archive:
            raise ArchiveOffError("archive: expected a broker with an archive (archive.url), found none configured")

    def _check_partitions(self, partitions: int, *, more: int) -> None:
        limits = self._limits
        if not 1 <= partitions <= limits.max_partitions_per_topic:
            raise InvalidTopicError(
                f"expected 1 to {limits.max_partitions_per_topic} partitions, found {partitions}",
                limit=limits.max_partitions_per_topic,
            )
        total = self._meta.state.partitions + more
        if total > limits.max_partitions:
            raise TopicLimitError(
                f"expected at most {limits.max_partitions} partitions of all topics, found {total}",
                limit=limits.max_partitions,
            )

    def _open(self, topic_id: int, indexes: range, settings: SettingsInForce, logs: list[MessageLog]) -> Deferred[None]:
        """Open the logs of partitions in a worker; all or none."""
        log_settings = self._log_settings(settings)
        state, epoch = self._meta.state, self._meta.state.epoch
        made, name = state.topics[topic_id].made, state.topics[topic_id].name
        wanted = [
            Wanted(topic_id, index, log_settings, settings.dedup, is_made=index < made, topic=name) for index in indexes
        ]

        def work() -> None:
            opened = open_partitions(self._services, state, epoch, wanted)
            failures = [
                result if one.is_made else _not_made(one, result)
                for one, result in zip(wanted, opened, strict=True)
                if isinstance(result, TidelogError)
            ]
            good = [result for result in opened if isinstance(result, MessageLog)]
            if failures:
                for log in good:
                    log.log.close(clean=False)
                raise failures[0]
            logs.extend(good)

        return offloaded(self._services.offload, work)

    def _log_settings(self, settings: SettingsInForce) -> LogSettings:
        return self._defaults.log_settings(settings, self._services.commit.max_unsynced_bytes)

    def _partitions(
        self, topic_id: int, first: int, logs: Sequence[MessageLog], settings: SettingsInForce
    ) -> list[Partition]:
        return [self._registry.make_partition(topic_id, first + place, log, settings) for place, log in enumerate(logs)]

    # -- alter ---------------------------------------------------------------------------------------------------

    def alter(
        self, name: str, partitions: int | None, given: Mapping[str, SettingValue], reset: Sequence[str]
    ) -> Flow[Topic]:
        """Change a topic's settings and raise its number of partitions."""
        topic = self._registry.named(name)
        before = topic.partition_count
        count = before if partitions is None else partitions
        self._check_change(topic, count, given, reset)
        old = dict(topic.given)
        new = {key: value for key, value in {**old, **given}.items() if key not in reset}
        if new == old and count == before:
            return topic
        yield self._meta.record(TopicAltered(topic.id, count, new))
        settings = self._defaults.in_force(new)
        logs: list[MessageLog] = []
        try:
            yield self._open(topic.id, range(before, count), settings, logs)
        except TidelogError:
            yield self._meta.record(TopicAltered(topic.id, before, old))
            raise
        topic.add(self._partitions(topic.id, before, logs, settings))
        self._registry.publish(topic)
        topic.change_settings(settings, self._log_settings(settings))
        if logs:
            self._meta.record(PartitionsMade(topic.id, count))
        return topic

    def _check_change(
        self, topic: Topic, partitions: int, given: Mapping[str, SettingValue], reset: Sequence[str]
    ) -> None:
        self._check_settings(given)
        for key in reset:
            if key not in KEYS:
                raise InvalidTopicError(f"expected a topic setting ({', '.join(sorted(KEYS))}), found {key!r}", key=key)
            if key in given:
                raise InvalidTopicError(f"{key}: expected it set or reset, found both", key=key)
        if partitions < topic.partition_count:
            raise InvalidTopicError(
                f"expected at least the {topic.partition_count} partitions there are, found {partitions}:"
                " partitions are never taken away",
                partitions=topic.partition_count,
            )
        if partitions > topic.partition_count:
            self._check_partitions(partitions, more=partitions - topic.partition_count)

    # -- delete --------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> Flow[int]:
        """Delete a topic; its records are gone when the flow ends."""
        topic = self._registry.named(name)
        yield self._meta.record(TopicDeleted(topic.id))
        self._registry.withdraw(topic)
        yield from [called_back(partition.delete) for partition in topic.partitions]
        yield from self._remove_folders(topic.id)
        return topic.id

    def _remove_folders(self, topic_id: int) -> Flow[None]:
        """Remove the folders of a deleted topic; what cannot be removed now is removed at the next start."""
        files = self._services.files
        try:
            yield offloaded(self._services.offload, lambda: remove_partitions(files, topic_id))
        except TidelogError as error:
            self._services.report("folders not removed", topic_id=topic_id, why=error.message)
            return
        self._meta.record(TopicRemoved(topic_id))

    # -- reopen --------------------------------------------------------------------------------------------------

    def reopen(self, name: str) -> Flow[list[int]]:
        """Reopen the partitions of a topic that are fenced or offline; ends with those that serve again."""
        return self._reopening.reopen(name)

    def look_for_room(self, topics: Iterable[Topic], flows: FlowQueue) -> None:
        """Open what a full disk kept from being opened, if there is room by now."""
        self._reopening.look_for_room(topics, flows)

    def _open_one(self, topic: Topic, index: int, logs: list[MessageLog]) -> Deferred[None]:
        return self._open(topic.id, range(index, index + 1), topic.settings, logs)


def _not_made(one: Wanted, error: TidelogError) -> TidelogError:
    """Say what a user asked for: the files that could not be made are the broker's own."""
    found = _PATH.sub("", error.message.rpartition(", found ")[2])
    return type(error)(
        f"expected to create partition {one.index} of topic {short_name(one.topic)}, found {found}", **error.details
    )
