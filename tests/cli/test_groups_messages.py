"""`tidelog groups messages`: a group's messages by their state."""

from __future__ import annotations

import json

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process


def test_messages_by_state(tidelog: CommandLine, topic: str) -> None:
    """messages shows those in the states asked for, and exit code 3 says that there are none."""
    group = f"messages-of-{topic}"
    tidelog.run("groups", "create", group, "--topic", topic)
    assert tidelog.run("groups", "messages", group, code=3).out == b""
    tidelog.run("produce", topic, stdin=b"a\nb\nc\n")
    lines = tidelog.run("groups", "messages", group, "--limit", "2", "--output", "json").lines
    assert [json.loads(line) for line in lines] == [
        {"id": f"{topic}/0@{at}", "group": group, "state": "available", "attempts": 0, "due": None, "error": None}
        for at in range(2)
    ]
    table = tidelog.run("groups", "messages", group, "--state", "available", "--topic", topic).out.decode()
    assert [line.split()[:2] for line in table.splitlines()[1:]] == [
        [f"{topic}/0@{at}", "available"] for at in range(3)
    ]
    assert "NOT_FOUND" in tidelog.run("groups", "messages", group, "--state", "leased", code=3).error
