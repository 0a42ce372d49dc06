"""What each part of a broker is told of its configuration: defaults of topics, limits of topics and connections."""

from __future__ import annotations

from ..protocol.limits import MAX_WAIT_US
from ..protocol.messages import BrokerLimits
from ..protocol.topic_settings import LanesPolicy
from .config import Config
from .delivery.lane_policy import LaneSettings
from .session import SessionLimits
from .topics import TopicDefaults, TopicLimits


def topic_defaults(config: Config, *, has_archive: bool) -> TopicDefaults:
    """Return what holds for topics that set nothing else."""
    log, topics = config.log, config.topics
    return TopicDefaults(
        durability=log.durability_number,
        retention_us=log.retention_us,
        retention_bytes=log.retention_bytes,
        segment_bytes=log.segment_bytes,
        segment_age_us=log.segment_age_us,
        max_message_bytes=topics.max_message_bytes,
        dedup_window_us=topics.dedup_window_us,
        dedup_scope=topics.dedup_scope,
        dedup_max_ids=topics.dedup_max_ids,
        archive=has_archive and config.archive.topics,
        has_archive=has_archive,
        lanes=_lanes(config),
        partitions=topics.partitions,
        index_interval_bytes=log.index_interval_bytes,
    )


def _lanes(config: Config) -> LaneSettings:
    lanes = config.delivery.lanes
    weights = {} if lanes.weights is None else {"weights": lanes.weights}
    return LaneSettings(
        LanesPolicy(lanes.policy), max_wait_us=lanes.max_wait_us, max_wait_share=lanes.max_wait_share, **weights
    )


def topic_limits(config: Config) -> TopicLimits:
    """Return how many topics and partitions there may be."""
    topics = config.topics
    return TopicLimits(
        max_partitions_per_topic=topics.max_partitions_per_topic,
        max_partitions=topics.max_partitions,
        max_topics=topics.max_topics,
    )


REHEARSED_WAIT_US = 100 * 365 * 24 * 3600 * 1_000_000
"""How long a request may wait in a rehearsal, where time costs nothing and every end of a wait costs a step."""


def longest_wait_us(*, is_rehearsed: bool) -> int:
    """Return how long a request may wait in the broker."""
    return REHEARSED_WAIT_US if is_rehearsed else MAX_WAIT_US


def broker_limits(config: Config, max_wait_us: int) -> BrokerLimits:
    """Return what clients are told."""
    return BrokerLimits(
        max_frame_bytes=config.broker.max_frame_bytes,
        max_message_bytes=config.topics.max_message_bytes,
        max_batch_bytes=config.log.max_batch_bytes,
        max_batch_payload_bytes=config.log.max_batch_payload_bytes,
        max_requests_in_flight=config.broker.max_requests_in_flight,
        max_wait_us=max_wait_us,
        idle_timeout_us=config.broker.idle_timeout_us,
    )


def session_limits(config: Config) -> SessionLimits:
    """Return what one connection may do and hold."""
    broker = config.broker
    return SessionLimits(
        max_frame_bytes=broker.max_frame_bytes,
        max_requests_in_flight=broker.max_requests_in_flight,
        max_connection_bytes=broker.max_connection_bytes,
        hello_timeout_us=broker.hello_timeout_us,
        idle_timeout_us=broker.idle_timeout_us,
    )
