"""What `tidelog groups` shows of a group, whatever names and texts come from elsewhere."""

from __future__ import annotations

import io
import sys
from datetime import UTC, datetime

import pytest

from tidelog import Backoff, Failure, Group, GroupMember, GroupPartition, GroupSettings, GroupTopic, MessageState
from tidelog.client.cli.group_tables import describe_tables, message_row, summary
from tidelog.client.cli.output import StandardOutput

NASTY = "a\nb\x1b[2J\x1b]52;c;ZWNobw==\x07\u202e"


def group(*partitions: GroupPartition) -> Group:
    """A group with a member whose client has a name meant to harm a terminal."""
    return Group(
        "billing",
        7,
        "queue",
        2,
        datetime(2025, 1, 14, 15, tzinfo=UTC),
        "latest",
        GroupSettings(30.0, 4, Backoff(), 100),
        ["max_in_flight"],
        [GroupTopic("orders", 3, list(partitions))],
        [GroupMember(0xABC, NASTY, 2, waits=True)],
        {"tidelog_queue_acquired_messages_total": 12, "tidelog_queue_expired_messages_total": 0},
        datetime(2025, 1, 14, 15, 2, tzinfo=UTC),
    )


def shown(monkeypatch: pytest.MonkeyPatch, found: Group) -> str:
    """What describe writes for people."""
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "utf-8", write_through=True))
    out = StandardOutput()
    describe_tables(out, found)
    out.flush()
    return raw.getvalue().decode()


def test_names_from_elsewhere_reach_no_terminal_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client's name and a partition's problem are shown escaped, one row a line."""
    problem = f"GROUP_DEGRADED: {NASTY}"
    text = shown(monkeypatch, group(GroupPartition(0, 0, 5, available=5, problem=problem)))
    assert not [character for character in text if ord(character) < 32 and character != "\n"]
    assert "\u202e" not in text
    (member,) = [line for line in text.splitlines() if line.startswith(("     abc", "abc"))]
    assert r"a\nb\x1b[2J" in member
    assert [line for line in text.splitlines() if "GROUP_DEGRADED" in line]


def test_what_is_counted_and_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings say whose they are, counters that are zero are left out, one message is one message."""
    oldest = datetime(2025, 1, 14, 15, 0, 30, tzinfo=UTC)
    text = shown(monkeypatch, group(GroupPartition(0, 4, 5, leased=1, oldest_unsettled=oldest)))
    assert "max_in_flight       100\n" in text
    assert "backlog             1 message, the oldest 90s old\n" in text
    assert "tidelog_queue_acquired_messages_total  12\n" in text
    assert "tidelog_queue_expired_messages_total" not in text


def test_the_state_of_a_group_counts_its_troubled_partitions() -> None:
    """The list says how many partitions need attention."""
    found = group(GroupPartition(0, 0, 5), GroupPartition(1, 0, 5, problem="GROUP_DEGRADED: x"))
    assert summary(found)["state"] == "1 of 2 partitions need attention"
    assert found.problems == ["orders/1: GROUP_DEGRADED: x"]


def test_dead_letters_that_cannot_be_kept_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many there are, and why their copies are not made, in the row of their partition."""
    found = group(GroupPartition(0, 0, 5, dead_lettering=2, dead_lettered=3, blocked="TOPIC_LIMIT: no more topics"))
    (row,) = [line for line in shown(monkeypatch, found).splitlines() if line.startswith("orders")]
    assert row.split()[8] == "5"
    assert row.endswith("no dead letters: TOPIC_LIMIT: no more topics")
    assert summary(found)["dead_lettered"] == 5
    assert found.problems == ["orders/0: no dead letters: TOPIC_LIMIT: no more topics"]


def test_a_message_is_one_row() -> None:
    """The error of the last attempt stands in it; what there is none of is a dash."""
    assert message_row(MessageState("g", "orders/0@5", "available")) == ["orders/0@5", "available", 0, "-", "-"]
    failed = MessageState("g", "orders/0@5", "waiting", 2, oldest(), Failure("ValueError", "bad"))
    assert message_row(failed)[2:] == [2, "2025-01-14T15:00:30.000000Z", "ValueError: bad"]


def oldest() -> datetime:
    """Half a minute after the group was made."""
    return datetime(2025, 1, 14, 15, 0, 30, tzinfo=UTC)
