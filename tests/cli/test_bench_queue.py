"""`tidelog bench queue`: its figures, what it verifies, and what it leaves behind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.helpers.command_line import CommandLine

from tidelog.client.blocking.queue import Queue

pytestmark = pytest.mark.process

FAULTS = ["lost", "repeated", "reordered", "altered", "misplaced"]


def left(tidelog: CommandLine) -> list[str]:
    """The topics and groups that a benchmark left."""
    lines = [
        *tidelog.run("topics", "list", "--output", "json").lines,
        *tidelog.run("groups", "list", "--output", "json").lines,
    ]
    return [name for line in lines if (name := json.loads(line)["name"]).startswith("tidelog-bench-")]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], {"callers": 1, "partitions": 1, "batch": 1000}),
        (["--callers", "3", "--partitions", "2", "--batch", "50"], {"callers": 3, "partitions": 2, "batch": 50}),
    ],
)
def test_a_run_says_its_figures(tidelog: CommandLine, flags: list[str], expected: dict[str, object]) -> None:
    """One line for consuming and one for lone acknowledgements, no fault, and no topic or group left."""
    run = tidelog.run("bench", "queue", "--messages", "3000", *flags, "--output", "json")
    consume, acknowledge = (json.loads(line) for line in run.lines)
    assert (consume["measured"], consume["messages"]) == ("consume", 3000)
    assert (acknowledge["measured"], acknowledge["calls"]) == ("acknowledge", 1000)
    for line in (consume, acknowledge):
        assert {name: line[name] for name in expected} == expected
        assert [line[name] for name in FAULTS] == [0] * 5
        assert 0 < line["p50_us"] <= line["p99_us"] <= line["max_us"]
        assert line["messages_per_s"] > 0
    assert left(tidelog) == []


def test_people_get_a_table(tidelog: CommandLine) -> None:
    """With what it holds for and what was verified."""
    lines = tidelog.run("bench", "queue", "--messages", "500").out.decode().splitlines()
    assert lines[0] == "500 messages of 100B, messages of 1000, 1 caller, synced, 1 partition"
    assert [line.split()[0] for line in lines[2:5]] == ["WHAT", "consume", "acknowledge"]
    assert lines[6].startswith("every message acknowledged once, and settled by the group's account: none lost,")


def test_what_is_there_already_is_not_taken(tidelog: CommandLine, topic: str) -> None:
    """In a topic of the user's only what the benchmark sends is consumed, and the topic stays."""
    tidelog.run("produce", topic, stdin=b"mine\n")
    tidelog.run("bench", "queue", "--topic", topic, "--messages", "100")
    assert tidelog.run("consume", topic, "--limit", "1").out == b"mine\n"
    described = json.loads(tidelog.run("topics", "describe", topic, "--output", "json").out)
    assert described["partitions"][0]["end_offset"] == 201


def test_a_message_that_is_handed_out_twice_spoils_the_run(
    tidelog: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No figure, exit code 1, the fault counted, and nothing left behind."""
    receive = Queue.receive

    def twice(self: Any, *arguments: Any, **options: Any) -> Any:
        found = receive(self, *arguments, **options)
        return [*found, found[0]] if found else found

    monkeypatch.setattr(Queue, "receive", twice)
    run = tidelog.run("bench", "queue", "--messages", "100", "--batch", "200", code=1)
    assert run.out == b""
    assert "tidelog: VERIFICATION_FAILED: 0 lost, " in run.error
    assert " 0 repeated" not in run.error
    assert left(tidelog) == []
