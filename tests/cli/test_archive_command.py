"""`tidelog archive` and `--include-archived`: against a broker, on the store itself, and every way to be wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.archiving_process import SMALL, archiving_broker, fill, until_archived
from tests.helpers.command_line import CommandLine

from tidelog import Client
from tidelog.broker.cli import archive as archive_command

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the module's broker and its archive are."""
    return tmp_path_factory.mktemp("archive")


@pytest.fixture(scope="module")
def cli(folder: Path) -> Iterator[CommandLine]:
    """The command line against a broker whose topics `orders` and `fragile` begin in the archive."""
    with archiving_broker(folder) as broker, Client(broker.url) as client:
        for name in ("orders", "fragile", "gone"):
            client.topics.create(name, partitions=1, **SMALL)
            fill(client, name, 200)
        for name in ("orders", "fragile", "gone"):
            until_archived(client, name, 180)
        client.topics.delete("gone")
        yield CommandLine(broker.url, folder)


@pytest.fixture
def store(folder: Path) -> str:
    """The url of the archive."""
    return f"file://{folder}/store"


def test_replay_and_consume_read_the_archive_when_told(cli: CommandLine) -> None:
    """--include-archived prints the whole range; without it the range is not available."""
    whole = cli.run("replay", "orders", "--from", "0", "--to", "200", "--include-archived")
    assert [int(line[:8]) for line in whole.lines] == list(range(200))
    part = cli.run("consume", "orders", "--from", "3", "--limit", "2", "--include-archived")
    assert [int(line[:8]) for line in part.lines] == [3, 4]
    refused = cli.run("replay", "orders", "--from", "0", "--to", "200", code=1)
    assert refused.error.startswith("tidelog: RANGE_NOT_AVAILABLE: ")


def test_the_list_is_the_same_from_broker_and_store(cli: CommandLine, store: str) -> None:
    """Both list the same segments, with ranges, sizes, checksums and urls."""
    remote = [json.loads(line) for line in cli.run("archive", "list", "orders", "--output", "json").lines]
    direct = cli.run("archive", "list", "orders", "--store", store, "--output", "json")
    assert remote == [json.loads(line) for line in direct.lines]
    assert remote[0]["base_offset"] == 0
    assert list(remote[0]) == [
        "topic",
        "topic_id",
        "broker",
        "partition",
        "base_offset",
        "end_offset",
        "first_append_time",
        "last_append_time",
        "records",
        "batches",
        "bytes",
        "checksum",
        "url",
        "damaged",
    ]
    heads, *rows = cli.run("archive", "list").lines
    assert heads.split()[:5] == [b"TOPIC", b"ID", b"PARTITION", b"START", b"END"]
    assert {row.split()[0] for row in rows} == {b"orders", b"fragile"}
    assert b"gone" in cli.run("archive", "list", "--store", store).out


def test_a_run_says_what_it_did(cli: CommandLine) -> None:
    """`run` waits until all is archived that can be, and counts it."""
    done = json.loads(cli.run("archive", "run", "--output", "json").out)
    assert done == {"segments": 0, "bytes": 0, "problems": []}
    assert cli.run("archive", "run", "orders").out == b"archived 0 segments, 0B\n"


def test_verify_names_the_damage_and_fails(cli: CommandLine, store: str) -> None:
    """Broker and store both find a flipped bit and a missing object, with their ranges, by exit code 1."""
    assert cli.run("archive", "verify", "orders").out.endswith(b": intact\n")
    listed = [json.loads(line) for line in cli.run("archive", "list", "fragile", "--output", "json").lines]
    first, second = (Path(one["url"].removeprefix("file://")) for one in listed[:2])
    data = bytearray(first.read_bytes())
    data[-1_000] ^= 1
    first.write_bytes(data)
    second.unlink()
    for where in ([], ["--store", store]):
        found = cli.run("archive", "verify", "fragile", "--output", "json", *where, code=1)
        damages = [json.loads(line) for line in found.lines]
        assert [(one["topic"], one["start"], one["end"]) for one in damages[:-1]] == [
            ("fragile", listed[0]["end_offset"] - 10, listed[0]["end_offset"]),
            ("fragile", listed[1]["base_offset"], listed[1]["end_offset"]),
        ]
        assert damages[-1]["damages"] == 2
        assert found.error == "tidelog: CORRUPT: 2 ranges of the archive cannot be read"


def test_removing_asks_first_and_can_be_tried(cli: CommandLine, store: str) -> None:
    """A dry run changes nothing, nobody is asked without a terminal, --yes removes; deleted topics go whole."""
    tried = cli.run("archive", "expire", "fragile", "--older-than", "0s", "--dry-run")
    assert b"would remove 3 segments" in tried.lines[-1]
    refused = cli.run("archive", "expire", "fragile", "--older-than", "0s", code=2)
    assert "add --yes" in refused.error
    assert cli.run("archive", "expire", "fragile", "--older-than", "1d", "--yes").out == b"removed 0 segments, 0B\n"
    done = cli.run("archive", "expire", "fragile", "--older-than", "0s", "--yes", "--output", "json")
    assert json.loads(done.lines[-1])["segments"] == 3
    cli.run("archive", "expire", "--deleted", "--yes")
    left = cli.run("archive", "list", "--store", store)
    assert b"gone" not in left.out
    assert b"orders" in left.out
    with Client(cli.url) as client:
        assert client.topics.describe("fragile").partitions[0].end_offset == 200


WRONG = [
    (["archive", "list", "nowhere"], 1, "UNKNOWN_TOPIC"),
    (["archive", "list", "--store", "foo://bar"], 1, "INVALID_CONFIG: archive.url"),
    (["archive", "list", "--store", "file:///nowhere/at/all"], 1, "expected a folder, found none"),
    (["archive", "list", "--option", "a=b"], 2, "expected --option together with --store"),
    (["archive", "list", "--store", "s3://x", "--option", "region"], 2, "expected NAME=VALUE, found 'region'"),
    (["archive", "list", "--store", "s3://x", "--url", "localhost:1"], 2, "expected --url or --store"),
    (["archive", "expire"], 2, "expected a topic and --older-than, or --deleted"),
    (["archive", "expire", "orders"], 2, "expected a topic and --older-than, or --deleted"),
    (["archive", "expire", "orders", "--deleted"], 2, "expected a topic and --older-than, or --deleted"),
    (["archive", "expire", "--deleted", "--store", "file:///tmp"], 2, "only a broker knows"),
    (["archive", "expire", "orders", "--older-than", "3"], 2, "expected a duration"),
    (["archive", "verify", "--url", "127.0.0.1:1"], 1, "CANNOT_CONNECT"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG)
def test_wrong_usage_and_wrong_places_are_one_line(
    cli: CommandLine, arguments: list[str], code: int, said: str
) -> None:
    """Each mistake is said in one line, with its exit code, and nothing is changed."""
    assert said in cli.run(*arguments, code=code).error


def test_nothing_archived_is_exit_code_3(cli: CommandLine, store: str) -> None:
    """A topic that is named and has nothing in the archive is not found."""
    with Client(cli.url) as client:
        client.topics.create("empty", partitions=1)
    for verb in ("list", "verify"):
        assert cli.run("archive", verb, "empty", code=3).error == "tidelog: NOT_FOUND: nothing of empty is archived"
    assert cli.run("archive", "list", "empty", "--store", store, code=3).code == 3


def test_a_partition_that_is_not_there_is_said(cli: CommandLine, store: str) -> None:
    """A broker knows how many a topic has; a store, or all topics, have nothing of it: never `intact`."""
    for verb in ("list", "verify"):
        found = cli.run("archive", verb, "orders", "--partition", "99", code=1)
        assert found.error == ("tidelog: UNKNOWN_PARTITION: partition: expected 0 to 0 in topic 'orders', found 99")
        found = cli.run("archive", verb, "--partition", "99", code=3)
        assert found.error == "tidelog: NOT_FOUND: nothing of partition 99 of any topic is archived"
        found = cli.run("archive", verb, "orders", "--partition", "99", "--store", store, code=3)
        assert found.error == "tidelog: NOT_FOUND: nothing of partition 99 of orders is archived"
        assert b"intact" not in found.out


@pytest.mark.parametrize("direct", [False, True])
def test_what_was_not_confirmed_is_not_removed(
    cli: CommandLine, store: str, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is archived and leaves the log while the question stands stays: the answer was to another question."""
    name = f"grows{direct}"
    with Client(cli.url) as client:
        client.topics.create(name, partitions=1, **SMALL)
        fill(client, name, 200)
        until_archived(client, name, 180)

        def meanwhile(question: str, _yes: bool) -> None:
            assert question.startswith("Remove 3 segments")
            fill(client, name, 200, first=200)
            until_archived(client, name, 360)

        monkeypatch.setattr(archive_command, "confirm", meanwhile)
        where = {"store": store} if direct else {"url": cli.url}
        archive_command.expire_archive(name, older_than=0, yes=False, **where)  # type: ignore[arg-type]
        assert client.topics.archived(name)[0].base_offset == 180 or direct
    left = cli.run("archive", "list", name, "--store", store, "--output", "json").lines
    assert [json.loads(line)["base_offset"] for line in left] == [180, 240, 300]


@pytest.mark.parametrize("verb", [["list"], ["run"], ["verify"], ["expire", "--deleted", "--yes"]])
def test_a_broker_without_an_archive_is_one_line(tidelog: CommandLine, topic: str, verb: list[str]) -> None:
    """Each verb says that this broker has no archive, and which key would give it one."""
    del topic  # it is there, so that there is something to list
    found = tidelog.run("archive", *verb, code=1)
    assert found.error == (
        "tidelog: ARCHIVE_OFF: expected a broker with an archive (archive.url), found none configured"
    )
