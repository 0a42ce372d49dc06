"""What is in force for a topic: every setting given or the broker's default, none forgotten."""

from __future__ import annotations

import pytest

from tidelog.broker.topic_defaults import TopicDefaults
from tidelog.protocol.durability import Durability
from tidelog.protocol.topic_settings import KEYS, SettingValue

GIVEN: dict[str, SettingValue] = {
    "archive": "on",
    "dedup_max_ids": 7,
    "dedup_scope": "topic",
    "dedup_window": 0,
    "durability": "received",
    "lanes_max_wait": 5_000_000,
    "lanes_max_wait_share": 3,
    "lanes_policy": "weighted",
    "lanes_weights": "9:50, 4:40",
    "max_message_bytes": 1_000,
    "retention": None,
    "retention_bytes": 5_000,
    "retention_waits_for": "billing, other/audit",
    "segment_age": 7_000_000,
    "segment_bytes": 65_536,
}


def test_every_setting_is_resolved() -> None:
    """The settings in force name exactly the settings there are."""
    assert TopicDefaults().in_force({}).on_wire().keys() == KEYS
    assert GIVEN.keys() == KEYS


@pytest.mark.parametrize("key", sorted(KEYS))
def test_a_given_setting_overrules_its_default_alone(key: str) -> None:
    """Giving one setting changes that one and leaves the others as the broker has them."""
    defaults = TopicDefaults(durability=Durability.WRITTEN, retention_bytes=9, segment_age_us=11)
    assert defaults.in_force({key: GIVEN[key]}).on_wire() == {**defaults.in_force({}).on_wire(), key: GIVEN[key]}


def test_logs_are_opened_with_what_is_in_force() -> None:
    """Segment size, ages and retention reach the log as they are in force."""
    defaults = TopicDefaults(index_interval_bytes=512)
    settings = defaults.log_settings(defaults.in_force(GIVEN), 1 << 20)
    assert (settings.segment_bytes, settings.segment_age_us, settings.retention_us, settings.retention_bytes) == (
        65_536,
        7_000_000,
        None,
        5_000,
    )
    assert (settings.index_interval_bytes, settings.max_unsynced_bytes) == (512, 1 << 20)
