"""`tidelog topics`: what it changes, and what it shows."""

from __future__ import annotations

import json
from typing import cast

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process

Fields = dict[str, object]


def described(tidelog: CommandLine, name: str) -> Fields:
    """What `topics describe` says as JSON."""
    return cast(Fields, json.loads(tidelog.run("topics", "describe", name, "--output", "json").out))


def test_what_create_sets_is_described(tidelog: CommandLine) -> None:
    """Every flag of create shows in describe; what was not given follows the broker's default."""
    run = tidelog.run(
        "topics", "create", "shop/orders", "--partitions", "3", "--retention", "30d", "--retention-bytes", "10GiB",
        "--set", "durability=written", "--set", "segment_bytes=33MiB", "--output", "json",
    )  # fmt: skip
    topic = described(tidelog, "shop/orders")
    assert json.loads(run.out)["settings"] == topic["settings"]
    settings = cast("dict[str, str]", topic["settings"])
    assert topic["name"] == "shop/orders"
    assert len(cast("list[object]", topic["partitions"])) == 3
    assert topic["given"] == ["durability", "retention", "retention_bytes", "segment_bytes"]
    assert settings["retention"] == "30d"
    assert settings["retention_bytes"] == "10GiB"
    assert settings["durability"] == "written"
    assert settings["segment_bytes"] == "33MiB"
    assert settings["max_message_bytes"] == "16MiB"


def test_set_changes_and_resets(tidelog: CommandLine, topic: str) -> None:
    """set changes keys, raises the number of partitions, and with `default` follows the broker again."""
    tidelog.run("topics", "set", topic, "retention=none", "max_message_bytes=1KiB", "partitions=4")
    changed = described(tidelog, topic)
    assert changed["given"] == ["max_message_bytes", "retention"]
    assert cast("dict[str, str]", changed["settings"])["retention"] == "none"
    assert len(cast("list[object]", changed["partitions"])) == 4
    tidelog.run("topics", "set", topic, "retention=default")
    assert described(tidelog, topic)["given"] == ["max_message_bytes"]
    assert cast("dict[str, str]", described(tidelog, topic)["settings"])["retention"] == "7d"


def test_fewer_partitions_are_refused(tidelog: CommandLine) -> None:
    """Partitions are never taken away: their messages would be lost."""
    tidelog.run("topics", "create", "four", "--partitions", "4")
    assert "INVALID_TOPIC" in tidelog.run("topics", "set", "four", "partitions=2", code=1).error


def test_a_topic_is_created_once(tidelog: CommandLine, topic: str) -> None:
    """Creating a topic that exists is an error and changes nothing."""
    error = tidelog.run("topics", "create", topic, "--partitions", "9", code=1).error
    assert error.startswith("tidelog: TOPIC_EXISTS: ")
    assert len(cast("list[object]", described(tidelog, topic)["partitions"])) == 1


def test_list_counts_what_topics_hold(tidelog: CommandLine, topic: str) -> None:
    """list shows messages and bytes of every topic, as a table and as JSON."""
    tidelog.run("produce", topic, stdin=b"a\nb\nc\n")
    lines = tidelog.run("topics", "list", "--output", "json").lines
    mine = next(fields for fields in map(json.loads, lines) if fields["name"] == topic)
    assert mine.pop("bytes") > 0
    assert mine == {
        "name": topic,
        "partitions": 1,
        "messages": 3,
        "retention": "7d",
        "durability": "synced",
        "state": "ok",
    }
    table = tidelog.run("topics", "list").out.decode().splitlines()
    assert table[0].split() == ["NAME", "PARTITIONS", "MESSAGES", "BYTES", "RETENTION", "DURABILITY", "STATE"]
    assert next(line.split()[:3] for line in table if line.startswith(topic)) == [topic, "1", "3"]


def test_describe_is_for_people_too(tidelog: CommandLine, topic: str) -> None:
    """The table of describe names settings with their units and every partition."""
    text = tidelog.run("topics", "describe", topic).out.decode()
    assert f"name                  {topic}\n" in text
    assert "retention             7d  (the broker's default)\n" in text
    assert text.splitlines()[-1].split()[-1] == "ok"


def test_reopening_says_what_was_fenced(tidelog: CommandLine, topic: str) -> None:
    """reopen on a healthy topic changes nothing and says so."""
    assert tidelog.run("topics", "reopen", topic).out == f"no partition of {topic} was fenced\n".encode()
    assert json.loads(tidelog.run("topics", "reopen", topic, "--output", "json").out) == {
        "topic": topic,
        "reopened": [],
    }


def test_a_deleted_topic_is_gone(tidelog: CommandLine, topic: str) -> None:
    """After delete the topic is unknown; one made again under its name is empty and has other ids."""
    tidelog.run("produce", topic, stdin=b"old\n")
    assert json.loads(tidelog.run("topics", "delete", topic, "--yes", "--output", "json").out)["deleted"] is True
    assert "UNKNOWN_TOPIC" in tidelog.run("consume", topic, code=1).error
    tidelog.run("topics", "create", topic, "--partitions", "1")
    assert tidelog.run("consume", topic, code=3).out == b""
    assert tidelog.run("produce", topic, "--receipts", stdin=b"new\n").out == f"{topic}~2/0@0\n".encode()
    assert "NOT_FOUND" in tidelog.run("get", f"{topic}/0@0", code=3).error


@pytest.mark.parametrize("command", [["describe"], ["set", "retention=1d"], ["reopen"], ["delete", "--yes"]])
def test_an_unknown_topic_is_said_by_every_verb(tidelog: CommandLine, command: list[str]) -> None:
    """Each verb says that there is no such topic."""
    error = tidelog.run("topics", command[0], "nosuch", *command[1:], code=1).error
    assert error.startswith('tidelog: UNKNOWN_TOPIC: no topic "nosuch"')
