"""What `tidelog outcome` says of a dedup id."""

from __future__ import annotations

import json

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process


def test_a_message_is_found_by_its_dedup_id(tidelog: CommandLine, topic: str) -> None:
    """Sent twice it is stored once, and its outcome is its receipt, for people and for scripts."""
    for _ in range(2):
        tidelog.run("produce", topic, "--dedup-id", "o-1", stdin=b"v\n")
    assert tidelog.run("consume", topic).out == b"v\n"
    found = json.loads(tidelog.run("outcome", topic, "--dedup-id", "o-1", "--output", "json").out)
    assert (found["topic"], found["offset"]) == (topic, 0)
    assert found["id"] == f"{topic}/{found['partition']}@0"
    assert found["id"] in tidelog.run("outcome", topic, "--dedup-id", "o-1").out.decode()
    assert found == json.loads(
        tidelog.run(
            "outcome", topic, "--dedup-id", "o-1", "--partition", str(found["partition"]), "--output", "json"
        ).out
    )


def test_an_id_that_nothing_is_stored_under(tidelog: CommandLine, topic: str) -> None:
    """Exit code 3, as for any message that is not there, and words for what that means."""
    tidelog.run("produce", topic, "--dedup-id", "o-1", stdin=b"v\n")
    error = tidelog.run("outcome", topic, "--dedup-id", "o-2", code=3).error
    assert error == f"tidelog: NOT_FOUND: no message with the dedup id o-2 is stored in {topic} at this moment"
    assert "UNKNOWN_TOPIC" in tidelog.run("outcome", f"{topic}-x", "--dedup-id", "o-1", code=1).error
