"""What `topics describe` says that segments wait for past their retention."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tidelog.client.cli.topics import _state  # pyright: ignore[reportPrivateUsage]
from tidelog.client.topic import Topic, TopicPartition


@pytest.mark.parametrize(
    ("archive", "groups", "said"),
    [
        (True, None, "2 segments wait for the archive"),
        (False, "billing", "2 segments wait for billing"),
        (True, "billing", "2 segments wait for the archive or billing"),
    ],
)
def test_held_segments_are_told_for_what_they_wait(archive: bool, groups: str | None, said: str) -> None:
    """For the archive, or for the groups that retention waits for, or for either."""
    partition = TopicPartition(0, "", 1, 0, 10, 10, 10, 100, 3, False, [], held_segments=2)
    settings = {"archive": archive, "retention_waits_for": groups}
    topic = Topic("orders", 1, 1, datetime(2026, 1, 1, tzinfo=UTC), [partition], settings, [])
    assert _state(topic, partition) == said
