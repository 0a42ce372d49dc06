"""Topic settings: reading, showing and refusing them."""

import pytest

from tidelog.protocol.errors import InvalidTopicError
from tidelog.protocol.topic_settings import KEYS, check_settings, format_setting, parse_setting


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("retention", "7d", 604_800_000_000),
        ("retention", "none", None),
        ("retention_bytes", "10GiB", 10_737_418_240),
        ("segment_bytes", "64MiB", 67_108_864),
        ("segment_age", "1h", 3_600_000_000),
        ("max_message_bytes", "1KiB", 1024),
        ("durability", "written", "written"),
        ("dedup_window", "10m", 600_000_000),
        ("dedup_window", "0s", 0),
        ("dedup_scope", "topic", "topic"),
        ("dedup_max_ids", "1000", 1000),
        ("archive", "off", "off"),
        ("retention_waits_for", "billing, other/audit", "billing, other/audit"),
        ("retention_waits_for", "none", None),
        ("lanes_policy", "weighted", "weighted"),
        ("lanes_weights", "9:50, 4:40, 0:10", "9:50, 4:40, 0:10"),
        ("lanes_max_wait", "10s", 10_000_000),
        ("lanes_max_wait", "none", None),
        ("lanes_max_wait_share", "5", 5),
    ],
)
def test_settings_read_and_show_the_same_text(key: str, text: str, value: object):
    """Each setting reads its documented form and shows it again."""
    assert parse_setting(key, text) == value
    assert parse_setting(key, format_setting(key, parse_setting(key, text))) == value


def test_every_key_is_exercised_above():
    """A new key needs its line in the table."""
    logs = {"retention", "retention_bytes", "segment_bytes", "segment_age", "max_message_bytes", "durability"}
    others = {"dedup_window", "dedup_scope", "dedup_max_ids", "archive", "retention_waits_for"}
    lanes = {"lanes_policy", "lanes_weights", "lanes_max_wait", "lanes_max_wait_share"}
    assert logs | others | lanes == KEYS


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("retention", "7", "retention: expected a duration"),
        ("retention", "1ms", "retention: expected 1s to"),
        ("segment_bytes", "1KiB", "segment_bytes: expected 64KiB to 1GiB, found 1KiB"),
        ("segment_bytes", "none", "segment_bytes: expected a size"),
        ("durability", "fsync", "durability: expected received, written or synced, found 'fsync'"),
        ("max_message_bytes", "17MiB", "max_message_bytes: expected 1B to 16MiB"),
        ("retension", "7d", "expected a topic setting"),
        ("dedup_window", "31d", "dedup_window: expected 0us to 30d"),
        ("dedup_window", "none", "dedup_window: expected a duration"),
        ("dedup_scope", "key", "dedup_scope: expected partition or topic, found 'key'"),
        ("archive", "yes", "archive: expected on or off, found 'yes'"),
        ("retention_waits_for", "billing,,", "retention_waits_for: expected a group name"),
        ("retention_waits_for", ",".join(["g"] * 17), "retention_waits_for: expected at most 16 groups, found 17"),
        ("dedup_max_ids", "0", "dedup_max_ids: expected 1 to 10000000, found 0"),
        ("dedup_max_ids", "1k", "dedup_max_ids: expected a whole number, found '1k'"),
        ("lanes_policy", "fair", "lanes_policy: expected strict or weighted, found 'fair'"),
        ("lanes_weights", "9=50", "lanes_weights: expected priorities with their weights such as 9:50, 4:40, 0:10"),
        ("lanes_weights", "9:-1", "lanes_weights: expected priorities with their weights"),
        ("lanes_weights", "", "lanes_weights: expected priorities with their weights"),
        ("lanes_weights", "10:1", "lanes_weights: expected priorities of 0 to 9, found 10"),
        ("lanes_weights", "9:0", "lanes_weights: expected weights of 1 to 1000, found 0"),
        ("lanes_weights", "9:1001", "lanes_weights: expected weights of 1 to 1000, found 1001"),
        ("lanes_weights", "9:1,9:2", "lanes_weights: expected each priority once, found 9 twice"),
        ("lanes_max_wait", "0s", "lanes_max_wait: expected 1ms to"),
        ("lanes_max_wait_share", "1", "lanes_max_wait_share: expected 2 to 1000, found 1"),
    ],
)
def test_wrong_settings_name_the_key_and_the_rule(key: str, text: str, message: str):
    """A wrong setting is refused with its key and what would be right."""
    with pytest.raises(InvalidTopicError, match=message):
        parse_setting(key, text)


@pytest.mark.parametrize("value", [True, 1.5, "7d", -1])
def test_wrong_types_from_the_wire_are_refused(value: object):
    """A client that sends another type than a number of microseconds is refused."""
    with pytest.raises(InvalidTopicError, match="retention: expected"):
        check_settings({"retention": value})  # type: ignore[dict-item]


def test_a_setting_that_must_have_a_value_refuses_none():
    """Only what may be unlimited can be none."""
    with pytest.raises(InvalidTopicError, match="durability: expected a value, found none"):
        check_settings({"durability": None})
