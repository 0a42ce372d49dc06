"""Which topics hold dead letters, and the one in which a group's go; made on first need.

A topic is one when its name ends in `.dlq`, or a group names it. What is given up there is dropped, else a letter that
nobody can read would be copied from topic to topic for ever.
"""

from __future__ import annotations

from functools import partial

from ...protocol.dead_letter_headers import DEAD_LETTER_SUFFIX
from ...protocol.errors import TidelogError, UnknownTopicIdError
from ...protocol.limits import KIB
from ...protocol.topic_settings import MAX_SEGMENT_BYTES, SettingValue
from ..deferred import Deferred, failed, resolved
from ..groups import Group, Groups
from ..partition import Partition
from ..services import Services
from ..storage.layout import place_of
from ..topics import Created, Topic, Topics
from .dead_letter_topics import is_dead_letter_topic

DAY_US = 86_400_000_000
LETTER_RETENTION_US = 30 * DAY_US
"""How long dead letters are kept by default: somebody has to find the cause first."""

MARGIN_BYTES = 128 * KIB
"""By how much a copy may exceed a batch of its topic: its own headers, and what they cost in columns."""


class LetterTopics:
    """The dead-letter topics of one broker."""

    def __init__(self, services: Services, topics: Topics, groups: Groups, retention_us: int | None) -> None:
        """`retention_us` is what topics that are made here are given; None: they keep everything."""
        self._services = services
        self._topics = topics
        self._groups = groups
        self._retention_us = retention_us
        self._making: dict[str, Deferred[Created]] = {}

    def __repr__(self) -> str:
        return f"<LetterTopics making {[*self._making]}>"

    def is_one(self, topic_id: int) -> bool:
        """Whether a topic holds dead letters. One that is gone holds nothing."""
        try:
            name = self._topics.by_id(topic_id).name
        except UnknownTopicIdError:
            return False
        return is_dead_letter_topic(name, self._groups)

    def topic_of(self, topic_id: int) -> Topic:
        """Return a topic. Raises UnknownTopicIdError."""
        return self._topics.by_id(topic_id)

    def partition_for(self, group: Group, topic_id: int, index: int) -> Deferred[Partition]:
        """Return where a group's dead letters of a partition go. Fails with what keeps them from going anywhere."""
        try:
            topic = self._topics.by_id(topic_id)
            name = group.settings.dead_letter_topic or topic.name + DEAD_LETTER_SUFFIX
            found = self._topics.find(name)
            if found is not None:
                return resolved(_partition(found, index))
        except TidelogError as error:
            return failed(error)
        answer: Deferred[Partition] = Deferred()
        self._made(name, topic).on_done(partial(_take, answer, index))
        return answer

    def partition_of(self, log_id: int) -> Partition | None:
        """Return the partition of a log of messages, None where its topic is gone. Raises what keeps it offline."""
        topic_id, index = place_of(log_id)
        try:
            topic = self._topics.by_id(topic_id)
        except UnknownTopicIdError:
            return None
        return topic.partition(index)

    def _made(self, name: str, topic: Topic) -> Deferred[Created]:
        """Have a topic made, once for all who need it."""
        making = self._making.get(name)
        if making is None:
            making = self._making[name] = self._topics.create(
                name, partitions=topic.partition_count, settings=self._settings(topic), exist_ok=True
            )
            making.on_done(lambda _done: self._making.pop(name, None) and None)
        return making

    def _settings(self, topic: Topic) -> dict[str, SettingValue]:
        settings: dict[str, SettingValue] = {"retention": self._retention_us}
        largest = min(topic.settings.segment_bytes, self._services.batch_limits.max_batch_bytes) + MARGIN_BYTES
        if largest > self._topics.defaults.segment_bytes:
            settings["segment_bytes"] = min(largest, MAX_SEGMENT_BYTES)
        return settings


def _partition(topic: Topic, index: int) -> Partition:
    return topic.partition(index % topic.partition_count)


def _take(answer: Deferred[Partition], index: int, made: Deferred[Created]) -> None:
    try:
        answer.resolve(_partition(made.result().topic, index))
    except TidelogError as error:
        answer.fail(error)
