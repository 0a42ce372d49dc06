"""`tidelog groups`: what it changes, and what it shows."""

from __future__ import annotations

import json
from typing import cast

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process

Fields = dict[str, object]


def described(tidelog: CommandLine, name: str) -> Fields:
    """What `groups describe` says as JSON."""
    return cast(Fields, json.loads(tidelog.run("groups", "describe", name, "--output", "json").out))


def partitions(group: Fields) -> list[Fields]:
    """The partitions of a group's only topic."""
    (topic,) = cast("list[dict[str, list[Fields]]]", group["topics"])
    return topic["partitions"]


@pytest.fixture
def group(tidelog: CommandLine, topic: str) -> str:
    """A group of the test's own that reads the test's topic."""
    name = f"group-of-{topic}"
    tidelog.run("groups", "create", name, "--topic", topic)
    return name


def test_what_create_sets_is_described(tidelog: CommandLine, topic: str) -> None:
    """Every flag of create shows in describe; what was not given follows the broker's default."""
    tidelog.run("produce", topic, stdin=b"a\nb\nc\n")
    run = tidelog.run(
        "groups", "create", "shop/billing", "--topic", topic, "--kind", "queue", "--from", "2",
        "--set", "visibility_timeout=2m", "--set", "backoff=linear:500ms:1m", "--output", "json",
    )  # fmt: skip
    group = described(tidelog, "shop/billing")
    assert json.loads(run.out)["settings"] == group["settings"]
    assert (group["name"], group["kind"], group["generation"], group["start"]) == ("shop/billing", "queue", 1, "2")
    assert group["given"] == ["backoff", "visibility_timeout"]
    assert group["settings"] == {
        "visibility_timeout": "2m",
        "max_attempts": "4",
        "backoff": "linear:500ms:1m:2:0.2",
        "max_in_flight": "none",
        "dead_letter": "true",
        "dead_letter_topic": "default",
    }
    assert [(one["index"], one["floor"], one["end_offset"]) for one in partitions(group)] == [(0, 2, 3)]
    text = tidelog.run("groups", "create", "shop/other", "--topic", topic).out
    assert text == b"created queue group shop/other\n"


def test_where_dead_letters_go_is_set(tidelog: CommandLine, group: str) -> None:
    """They are dropped, kept in a topic of the group's own, or follow the topic's name again."""
    tidelog.run("groups", "set", group, "dead_letter=false", "dead_letter_topic=failed")
    changed = described(tidelog, group)
    settings = cast("dict[str, str]", changed["settings"])
    assert changed["given"] == ["dead_letter", "dead_letter_topic"]
    assert (settings["dead_letter"], settings["dead_letter_topic"]) == ("false", "failed")
    tidelog.run("groups", "set", group, "dead_letter=default", "dead_letter_topic=default")
    assert described(tidelog, group)["given"] == []
    for wrong in ("dead_letter=no", "dead_letter_topic=a b"):
        assert tidelog.run("groups", "set", group, wrong, code=2).error.startswith("tidelog: USAGE: groups set")


def test_set_changes_and_resets(tidelog: CommandLine, group: str) -> None:
    """set changes keys, and with `default` follows the broker again."""
    tidelog.run("groups", "set", group, "max_attempts=9", "max_in_flight=100")
    changed = described(tidelog, group)
    assert changed["given"] == ["max_attempts", "max_in_flight"]
    tidelog.run("groups", "set", group, "max_attempts=default")
    settings = cast("dict[str, str]", described(tidelog, group)["settings"])
    assert (settings["max_attempts"], settings["max_in_flight"]) == ("4", "100")
    tidelog.run("groups", "set", group, "max_in_flight=none")
    changed = described(tidelog, group)
    assert cast("dict[str, str]", changed["settings"])["max_in_flight"] == "none"
    assert changed["given"] == ["max_in_flight"]


def test_reset_says_where_the_group_begins_now(tidelog: CommandLine, topic: str, group: str) -> None:
    """reset moves to a position of every form, after a question that --yes answers."""
    tidelog.run("produce", topic, stdin=b"a\nb\nc\n")
    for to, offset in (("earliest", 0), ("latest", 3), ("1", 1), ("-15m", 0), ("now", 3)):
        run = tidelog.run("groups", "reset", group, "--to", to, "--yes", "--output", "json")
        begun = json.loads(run.out)
        assert (begun["group"], begun["topic"], begun["partition"], begun["offset"]) == (group, topic, 0, offset)
    moved = tidelog.run("groups", "reset", group, "--to", "2100-01-01T00:00:00Z", "--yes").out.decode().splitlines()
    assert [line.split() for line in moved] == [
        ["TOPIC", "PARTITION", "BEGINS", "AT", "NOT", "BEFORE"],
        [topic, "0", "3", "2100-01-01T00:00:00.000000Z"],
    ]
    assert described(tidelog, group)["generation"] == 7
    error = tidelog.run("groups", "reset", group, "--to", "latest", code=2).error
    assert error.startswith("tidelog: USAGE: groups reset: this cannot be undone")


def test_list_shows_every_group(tidelog: CommandLine, topic: str, group: str) -> None:
    """list shows what groups have to do, as a table and as JSON."""
    lines = tidelog.run("groups", "list", "--output", "json").lines
    mine = next(fields for fields in map(json.loads, lines) if fields["name"] == group)
    assert (mine["kind"], mine["topics"], mine["backlog"], mine["state"]) == ("queue", [topic], 0, "ok")
    table = tidelog.run("groups", "list").out.decode().splitlines()
    assert table[0].split() == ["NAME", "KIND", "TOPICS", "CONSUMERS", "BACKLOG", "IN", "FLIGHT", "OLDEST", "STATE"]
    assert next(line.split() for line in table if line.startswith(group)) == [
        group, "queue", topic, "0", "0", "0", "-", "ok",
    ]  # fmt: skip


def test_describe_is_for_people_too(tidelog: CommandLine, group: str) -> None:
    """The tables of describe name settings with their units and every partition."""
    text = tidelog.run("groups", "describe", group).out.decode()
    assert f"name                {group}\n" in text
    assert "visibility_timeout  30s  (the broker's default)\n" in text
    assert "TOPIC" in text
    assert text.splitlines()[-1].split()[-1] == "ok"


def test_a_deleted_group_is_gone(tidelog: CommandLine, topic: str, group: str) -> None:
    """After delete the group is unknown; one made again under its name has another id."""
    before = described(tidelog, group)["id"]
    assert "this cannot be undone" in tidelog.run("groups", "delete", group, code=2).error
    run = tidelog.run("groups", "delete", group, "--yes", "--output", "json")
    assert json.loads(run.out) == {"group": group, "deleted": True}
    tidelog.run("groups", "create", group, "--topic", topic)
    assert cast(int, described(tidelog, group)["id"]) > cast(int, before)


@pytest.mark.parametrize(
    "command", [["describe"], ["set", "max_attempts=1"], ["reset", "--to", "latest", "--yes"], ["delete", "--yes"]]
)
def test_an_unknown_group_is_said_by_every_verb(tidelog: CommandLine, group: str, command: list[str]) -> None:
    """Each verb says on which broker there is no such group, and which was probably meant."""
    error = tidelog.run("groups", command[0], f"{group}x", *command[1:], code=1).error
    address = tidelog.url.removeprefix("tidelog://")
    assert error.startswith(f'tidelog: UNKNOWN_GROUP: no group "{group}x" on {address}; did you mean "')


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["create", "g"], "--topic"),
        (["create", "a b", "--topic", "t"], "expected a group name"),
        (["create", "a\nb", "--topic", "t"], r"expected a group name"),
        (["create", "g", "--topic", "t", "--set", "colour=red"], "expected key=value with a key of visibility_timeout"),
        (["create", "g", "--topic", "t", "--set", "max_attempts=0"], "max_attempts: expected a whole number"),
        (["create", "g", "--topic", "t", "--set", "backoff=slowly:1s"], "backoff: expected a backoff such as"),
        (["create", "g", "--topic", "t", "--set", "visibility_timeout=30"], "visibility_timeout: expected"),
        (["create", "g", "--topic", "t", "--kind", "stack"], "queue"),
        (["set", "g", "max_attempts=1", "max_attempts=2"], "expected max_attempts once, found it twice"),
        (["reset", "g", "--to", "yesterday", "--yes"], "expected earliest, latest, an offset"),
        (["messages", "g", "--state", "lost"], "available"),
    ],
)
def test_wrong_usage_is_one_line(tidelog: CommandLine, arguments: list[str], text: str) -> None:
    """What cannot mean anything is exit code 2 with what was expected, and asks no broker; control characters in it
    are escaped."""
    error = tidelog.run("groups", *arguments, code=2).error
    assert error.startswith(f"tidelog: USAGE: groups {arguments[0]}: ")
    assert text in error


def test_what_the_broker_refuses_is_one_line(tidelog: CommandLine, topic: str, group: str) -> None:
    """Exit code 1, the code, and the reason."""
    assert "GROUP_EXISTS" in tidelog.run("groups", "create", group, "--topic", topic, code=1).error
    assert "UNKNOWN_TOPIC" in tidelog.run("groups", "create", "g", "--topic", f"{topic}x", code=1).error
    stream = tidelog.run("groups", "create", "g", "--topic", topic, "--kind", "stream", code=1).error
    assert stream == (
        "tidelog: UNSUPPORTED: expected a queue group, found a stream group: this broker has queue groups only"
    )
    out_of_range = tidelog.run("groups", "reset", group, "--to", "7", "--yes", code=1).error
    assert out_of_range.startswith("tidelog: OFFSET_OUT_OF_RANGE: ")


def test_an_offset_needs_its_partition(tidelog: CommandLine, topic: str) -> None:
    """A bare number where several partitions are meant is wrong usage that names the option, and nothing is made or
    moved; with the partition it is taken."""
    wide, group = f"{topic}-wide", f"{topic}-wide-group"
    tidelog.run("topics", "create", wide, "--partitions", "3")
    tidelog.run("produce", wide, "--partition", "1", stdin=b"a\nb\n")
    create = ("groups", "create", group, "--topic", wide)
    assert tidelog.run(*create, "--from", "1", code=2).error == (
        f"tidelog: USAGE: groups create: --from: an offset is of one partition, and {wide} has 3 partitions; leave it"
        f" out, or give a time, and move partitions one by one afterwards: tidelog groups reset {group} --to 1 --topic"
        f" {wide} --partition N; see tidelog groups create --help"
    )
    consume = ("consume", wide, "--group", group, "--mode", "queue", "--from", "1")
    assert "--from: an offset is of one partition, and" in tidelog.run(*consume, code=2).error
    assert "UNKNOWN_GROUP" in tidelog.run("groups", "describe", group, code=1).error
    tidelog.run(*create)
    reset = ("groups", "reset", group, "--yes", "--output", "json")
    for options in ((), ("--topic", wide)):
        assert tidelog.run(*reset, "--to", "1", *options, code=2).error == (
            f"tidelog: USAGE: groups reset: --to: an offset needs --partition: {wide} has 3 partitions;"
            " see tidelog groups reset --help"
        )
    assert described(tidelog, group)["generation"] == 1
    begun = json.loads(tidelog.run(*reset, "--to", "1", "--partition", "1").out)
    assert (begun["partition"], begun["offset"]) == (1, 1)
    assert tidelog.run(*consume).lines == [b"b"]  # the group is there: where a new one would begin does not matter


def test_an_offset_needs_its_topic(tidelog: CommandLine, topic: str) -> None:
    """Where a group reads several topics, an offset, and a partition, need the topic too."""
    other, group = f"{topic}-other", f"{topic}-both"
    tidelog.run("topics", "create", other, "--partitions", "1")
    create = ("groups", "create", group, "--topic", topic, "--topic", other)
    refused = tidelog.run(*create, "--from", "0", code=2).error
    assert f"and {topic} has 1 partition and {other} has 1 partition; leave it out" in refused
    tidelog.run(*create)
    reset = ("groups", "reset", group, "--yes")
    for options, what in (
        (("--to", "0"), "--to: an offset needs --topic and --partition"),
        (("--to", "0", "--partition", "0"), "--partition needs --topic"),
        (("--to", "latest", "--partition", "0"), "--partition needs --topic"),
    ):
        assert f"groups reset: {what}: group {group} reads {topic}, {other}; see" in tidelog.run(
            *reset, *options, code=2
        ).error  # fmt: skip
    tidelog.run(*reset, "--to", "0", "--topic", f"default/{other}")


def test_consumers_are_listed_until_they_leave(tidelog: CommandLine, topic: str) -> None:
    """A command that has ended is no consumer any more, whether it acknowledged or left messages leased."""
    group = f"{topic}-left"
    tidelog.run("produce", topic, stdin=b"a\nb\nc\n")
    command = ("consume", topic, "--group", group, "--mode", "queue", "--limit", "1")
    tidelog.run(*command)
    assert described(tidelog, group)["consumers"] == []
    tidelog.run(*command, "--settle", "none")
    group_now = described(tidelog, group)
    assert (group_now["consumers"], partitions(group_now)[0]["leased"]) == ([], 1)
    lines = map(json.loads, tidelog.run("groups", "list", "--output", "json").lines)
    assert [fields["consumers"] for fields in lines if fields["name"] == group] == [0]


def test_lanes_are_described(tidelog: CommandLine, topic: str, group: str) -> None:
    """Where messages have several priorities, what is available of each; of one priority nothing is said."""
    tidelog.run("produce", topic, stdin=b"a\nb\n")
    (described_topic,) = cast("list[Fields]", described(tidelog, group)["topics"])
    assert described_topic["lanes"] == []
    tidelog.run("produce", topic, "--priority", "9", stdin=b"c\n")
    (described_topic,) = cast("list[Fields]", described(tidelog, group)["topics"])
    lanes = cast("list[Fields]", described_topic["lanes"])
    assert [(lane["priority"], lane["available"]) for lane in lanes] == [(9, 1), (4, 2)]
    table = tidelog.run("groups", "describe", group).out.decode()
    assert [line.split()[:3] for line in table.splitlines() if line.startswith(f"{topic} ")][-2:] == [
        [topic, "9", "1"],
        [topic, "4", "2"],
    ]
