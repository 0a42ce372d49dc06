"""Keys that contradict each other although each alone is fine."""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.limits import FRAME_MARGIN_BYTES
from ...protocol.quantities import format_duration, format_size
from .problems import Problem
from .sections import Config

SEGMENT_HEADER_BYTES = 4096

BATCH_MARGIN_BYTES = 4096
"""What a batch of one record needs besides key, value and headers."""


def check_pairs(config: Config, wrong: set[str]) -> list[Problem]:
    """Return what contradicts itself. Keys in `wrong` have a problem of their own and are left alone."""
    return [
        Problem(key, text)
        for key, other, find in _PAIRS
        if key not in wrong and other not in wrong and (text := find(config)) is not None
    ]


def _beyond_loopback(config: Config) -> str | None:
    address = config.broker.listen
    if address.is_loopback or config.broker.insecure:
        return None
    return (
        f"{address} can be reached from other machines, but nothing is encrypted and nobody is asked for "
        "credentials; set broker.insecure: true or give --insecure if that is meant"
    )


def _at_most(found: int, limit: int, reason: str, shown: Callable[[int], str] = format_size) -> str | None:
    return None if found <= limit else f"expected at most {shown(limit)} ({reason}), found {shown(found)}"


def _batch_in_frame(config: Config) -> str | None:
    limit = config.broker.max_frame_bytes - FRAME_MARGIN_BYTES
    return _at_most(config.log.max_batch_bytes, limit, "broker.max_frame_bytes less 64KiB")


def _batch_in_segment(config: Config) -> str | None:
    limit = config.log.segment_bytes - SEGMENT_HEADER_BYTES
    return _at_most(config.log.max_batch_bytes, limit, "log.segment_bytes less 4KiB")


def _payload_in_frame(config: Config) -> str | None:
    limit = config.broker.max_frame_bytes - FRAME_MARGIN_BYTES
    return _at_most(config.log.max_batch_payload_bytes, limit, "broker.max_frame_bytes less 64KiB")


def _payload_in_segment(config: Config) -> str | None:
    limit = config.log.segment_bytes - SEGMENT_HEADER_BYTES
    return _at_most(config.log.max_batch_payload_bytes, limit, "log.segment_bytes less 4KiB")


def _message_in_batch(config: Config) -> str | None:
    limit = min(config.log.max_batch_bytes, config.log.max_batch_payload_bytes) - BATCH_MARGIN_BYTES
    return _at_most(config.topics.max_message_bytes, limit, "log.max_batch_bytes or max_batch_payload less 4KiB")


def _frame_in_unsynced(config: Config) -> str | None:
    found, least = config.log.max_unsynced_bytes, config.broker.max_frame_bytes
    if found >= least:
        return None
    return f"expected at least {format_size(least)} (broker.max_frame_bytes), found {format_size(found)}"


def _frame_in_connection(config: Config) -> str | None:
    return _at_most(config.broker.max_frame_bytes, config.broker.max_connection_bytes, "broker.max_connection_bytes")


def _connection_in_memory(config: Config) -> str | None:
    return _at_most(config.broker.max_connection_bytes, config.broker.max_memory_bytes, "broker.max_memory_bytes")


def _age_in_retention(config: Config) -> str | None:
    age, retention = config.log.segment_age_us, config.log.retention_us
    if age is None or retention is None:
        return None
    return _at_most(age, retention // 4, "a quarter of log.retention", format_duration)


def _partitions_per_topic(config: Config) -> str | None:
    topics = config.topics
    return _at_most(topics.partitions, topics.max_partitions_per_topic, "topics.max_partitions_per_topic", str)


def _partitions_in_all(config: Config) -> str | None:
    topics = config.topics
    return _at_most(topics.max_partitions_per_topic, topics.max_partitions, "topics.max_partitions", str)


def _backoff_in_order(config: Config) -> str | None:
    backoff = config.delivery.backoff
    return _at_most(backoff.initial_us, backoff.max_us, "delivery.backoff.max", format_duration)


_PAIRS: list[tuple[str, str, Callable[[Config], str | None]]] = [
    ("broker.listen", "broker.insecure", _beyond_loopback),
    ("log.max_batch_bytes", "broker.max_frame_bytes", _batch_in_frame),
    ("log.max_batch_bytes", "log.segment_bytes", _batch_in_segment),
    ("log.max_batch_payload", "broker.max_frame_bytes", _payload_in_frame),
    ("log.max_batch_payload", "log.segment_bytes", _payload_in_segment),
    ("topics.max_message_bytes", "log.max_batch_bytes", _message_in_batch),
    ("log.max_unsynced_bytes", "broker.max_frame_bytes", _frame_in_unsynced),
    ("broker.max_frame_bytes", "broker.max_connection_bytes", _frame_in_connection),
    ("broker.max_connection_bytes", "broker.max_memory_bytes", _connection_in_memory),
    ("log.segment_age", "log.retention", _age_in_retention),
    ("delivery.backoff.initial", "delivery.backoff.max", _backoff_in_order),
    ("topics.partitions", "topics.max_partitions_per_topic", _partitions_per_topic),
    ("topics.max_partitions_per_topic", "topics.max_partitions", _partitions_in_all),
]
