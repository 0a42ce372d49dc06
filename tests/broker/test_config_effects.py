"""Every key of the configuration changes something that a client, an operator or the file system can see."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio.testing
from tests.helpers.archive_effects import (
    archive_listed,
    archived_soon,
    bytes_at_hand,
    in_force,
    longest_backoff,
    parts_of_the_store,
    region_of_the_store,
    threads_that_copy,
    timeout_of_the_store,
)
from tests.helpers.config_effects import (
    Given,
    Observation,
    auto_created,
    connections_served,
    data_folder,
    largest_batch,
    largest_message,
    leader,
    lines_logged,
    memory_waits,
    open_to_the_network,
    partitions_made,
    port_listened_on,
    removed,
    removed_by_age,
    removed_under_64_kib,
    request_of_2_mb,
    rows_of_an_index,
    second_topic,
    segments_after_a_pause,
    send_buffer,
    setting,
    silence_after_hello,
    silence_before_hello,
    stalled,
    synced_late,
    taken_at_once,
    time_to_drain,
    told,
    within,
    within_real_time,
)
from tests.helpers.dedup_effects import ids_kept, sent_twice
from tests.helpers.group_effects import (
    backoff_setting,
    error_kept,
    group_setting,
    retention_of_letters,
    second_group,
    settled_events_removed,
)

from tidelog.broker import background
from tidelog.broker.config.problems import keys_of
from tidelog.broker.config.sections import BackoffSection, LanesSection

EFFECTS: dict[str, tuple[Observation, Given, object, object]] = {
    "broker.listen": (port_listened_on, {"listen": "127.0.0.2:0"}, "127.0.0.1", "127.0.0.2"),
    "broker.data_dir": (data_folder, {"data_dir": "elsewhere"}, ["data"], ["elsewhere"]),
    "broker.node_id": (within(leader), {"node_id": "me"}, "node-1", "me"),
    "broker.insecure": (open_to_the_network, {"insecure": True}, False, True),
    "broker.drain_timeout": (within(time_to_drain), {"drain_timeout": "2s"}, 30, 2),
    "broker.max_connections": (
        within(connections_served),
        {"max_connections": 1},
        "IDLE_TIMEOUT",
        "TOO_MANY_CONNECTIONS",
    ),
    "broker.max_frame_bytes": (told("max_frame_bytes"), {"max_frame_bytes": "1MiB"}, 67_108_864, 1_048_576),
    "broker.max_requests_in_flight": (within(taken_at_once), {"max_requests_in_flight": 4}, 10, 4),
    "broker.max_connection_bytes": (within(stalled), {"max_connection_bytes": "128KiB"}, False, True),
    "broker.max_memory_bytes": (within(memory_waits), {"max_memory_bytes": "128KiB"}, False, True),
    "broker.send_buffer_bytes": (send_buffer, {"send_buffer_bytes": "64KiB"}, 2_097_152, 131_072),
    "broker.hello_timeout": (within(silence_before_hello), {"hello_timeout": "3s"}, 10, 3),
    "broker.idle_timeout": (within(silence_after_hello), {"idle_timeout": "20s"}, 600, 20),
    "log.durability": (setting("durability"), {"durability": "written"}, "synced", "written"),
    "log.segment_bytes": (setting("segment_bytes"), {"segment_bytes": "128MiB"}, 67_108_864, 134_217_728),
    "log.segment_age": (within(segments_after_a_pause), {"segment_age": "5s"}, False, True),
    "log.index_interval_bytes": (rows_of_an_index, {"index_interval_bytes": "32KiB"}, 15, 3),
    "log.retention": (within(removed_by_age), {"retention": "1h"}, False, True),
    "log.retention_bytes": (within(removed), {"retention_bytes": "64KiB"}, False, True),
    "log.retention_check_interval": (within(removed_under_64_kib), {"retention_check_interval": "1d"}, True, False),
    "log.max_unsynced_bytes": (
        within_real_time(request_of_2_mb),
        {"max_unsynced_bytes": "1MiB"},
        None,
        "BATCH_TOO_LARGE",
    ),
    "log.sync_interval": (within(synced_late), {"sync_interval": "60s"}, False, True),
    "log.max_batch_bytes": (within(largest_batch), {"max_batch_bytes": "64KiB"}, (None, None), (None, 31)),
    "log.max_batch_payload": (within(largest_batch), {"max_batch_payload": "64KiB"}, (None, None), (31, 31)),
    "topics.partitions": (within(partitions_made), {"partitions": 3}, 6, 3),
    "topics.max_partitions_per_topic": (within(second_topic), {"max_partitions_per_topic": 4}, None, "INVALID_TOPIC"),
    "topics.auto_create": (within(auto_created), {"auto_create": False}, 1, 0),
    "topics.max_topics": (within(second_topic), {"max_topics": 1}, None, "TOPIC_LIMIT"),
    "topics.max_partitions": (within(second_topic), {"max_partitions": 9}, None, "TOPIC_LIMIT"),
    "topics.max_message_bytes": (within(largest_message), {"max_message_bytes": 1999}, None, 32),
    "topics.dedup_window": (within(sent_twice), {"dedup_window": "0s"}, 1, 2),
    "topics.dedup_scope": (setting("dedup_scope"), {"dedup_scope": "topic"}, "partition", "topic"),
    "topics.dedup_max_ids": (within(ids_kept), {"dedup_max_ids": 2}, 3, 2),
    "archive.url": (archive_listed, {"url": "file:///..."}, "ARCHIVE_OFF", None),
    "archive.options": (region_of_the_store, {"options": {"region": "eu-west-1"}}, None, "eu-west-1"),
    "archive.topics": (in_force("archive"), {"topics": False}, "on", "off"),
    "archive.interval": (archived_soon, {"interval": "1d"}, True, False),
    "archive.concurrency": (threads_that_copy, {"concurrency": 5}, 2, 5),
    "archive.part_bytes": (parts_of_the_store, {"part_bytes": "5MiB"}, 8_388_608, 5_242_880),
    "archive.request_timeout": (timeout_of_the_store, {"request_timeout": "1s"}, "30s", "1s"),
    "archive.max_backoff": (longest_backoff, {"max_backoff": "1m"}, 300_000_000, 60_000_000),
    "archive.cache_bytes": (bytes_at_hand, {"cache_bytes": 0}, 1 << 30, 0),
    "delivery.visibility_timeout": (
        group_setting("visibility_timeout_us"),
        {"visibility_timeout": "5s"},
        30_000_000,
        5_000_000,
    ),
    "delivery.max_attempts": (group_setting("max_attempts"), {"max_attempts": 9}, 4, 9),
    "delivery.backoff": (backoff_setting("kind"), {"backoff": {"kind": "linear"}}, "exponential", "linear"),
    "delivery.lanes": (setting("lanes_policy"), {"lanes": {"policy": "weighted"}}, "strict", "weighted"),
    "delivery.max_in_flight": (group_setting("max_in_flight"), {"max_in_flight": 8}, None, 8),
    "delivery.dead_letter": (group_setting("dead_letter"), {"dead_letter": False}, True, False),
    "delivery.dead_letter_retention": (
        within(retention_of_letters),
        {"dead_letter_retention": "1d"},
        2_592_000_000_000,
        86_400_000_000,
    ),
    "delivery.max_error_bytes": (within(error_kept), {"max_error_bytes": "1KiB"}, 4_106, 2_058),
    "delivery.max_groups": (within(second_group), {"max_groups": 1}, None, "GROUP_LIMIT"),
    "trace.retention": (settled_events_removed, {"retention": "1h"}, False, True),
    "logging.level": (lines_logged, {"level": "warning"}, "2", ""),
    "logging.format": (lines_logged, {"format": "json"}, "2", "{"),
}


BACKOFF = {
    "kind": ("linear", "kind", "exponential", "linear"),
    "initial": ("5s", "initial_us", 1_000_000, 5_000_000),
    "max": ("5m", "max_us", 600_000_000, 300_000_000),
    "multiplier": (3.5, "multiplier_thousandths", 2_000, 3_500),
    "jitter": (0, "jitter_percent", 20, 0),
}


@pytest.mark.trio
@pytest.mark.parametrize("key", BACKOFF)
async def test_a_key_of_the_backoff_does_what_it_says(key: str, tmp_path: Path) -> None:
    """Each part of `delivery.backoff` is in force for a group that says nothing."""
    changed, name, expected_by_default, expected = BACKOFF[key]
    observe = backoff_setting(name)
    assert await observe({}, tmp_path) == expected_by_default
    assert await observe({"delivery": {"backoff": {key: changed}}}, tmp_path) == expected


LANES = {
    "policy": ("weighted", "lanes_policy", "strict", "weighted"),
    "weights": ({9: 50, 4: 40}, "lanes_weights", "9:1", "9:50, 4:40"),
    "max_wait": ("10s", "lanes_max_wait", None, 10_000_000),
    "max_wait_share": (7, "lanes_max_wait_share", 5, 7),
}


@pytest.mark.trio
@pytest.mark.parametrize("key", LANES)
async def test_a_key_of_the_lanes_does_what_it_says(key: str, tmp_path: Path) -> None:
    """Each part of `delivery.lanes` is in force for a topic that says nothing."""
    changed, name, expected_by_default, expected = LANES[key]
    observe = setting(name)
    assert await observe({}, tmp_path) == expected_by_default
    assert await observe({"delivery": {"lanes": {key: changed}}}, tmp_path) == expected


def test_every_part_of_the_lanes_is_tried() -> None:
    """The table above leaves no part out."""
    assert set(LANES) == {field.alias or name for name, field in LanesSection.model_fields.items()}


def test_every_part_of_the_backoff_is_tried() -> None:
    """The table above leaves no part out."""
    assert set(BACKOFF) == {field.alias or name for name, field in BackoffSection.model_fields.items()}


def test_every_key_has_an_effect() -> None:
    """The table below leaves no key out, and names none that is not there."""
    assert set(EFFECTS) == {f"{section}.{key}" for section, keys in keys_of().items() for key in keys}


@pytest.mark.trio
@pytest.mark.parametrize("key", EFFECTS)
async def test_a_key_does_what_it_says(
    key: str, tmp_path: Path, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be observed with the default is one thing, and with another value another."""
    observe, changed, expected_by_default, expected = EFFECTS[key]
    section = key.split(".")[0]
    monkeypatch.chdir(tmp_path)
    if key in ("log.retention", "trace.retention"):  # hours pass: ten heartbeats a second would take long
        monkeypatch.setattr(background, "HEARTBEAT_US", 60_000_000)
    assert await observe({}, tmp_path) == expected_by_default
    for left in tmp_path.iterdir():
        if left.name == "data":
            left.rmdir()
    assert await observe({section: changed}, tmp_path) == expected
