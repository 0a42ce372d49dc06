"""Groups of a real broker process, by the command line, over kills and stops."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process

Fields = dict[str, object]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of the test's own."""
    with BrokerProcess(tmp_path / "data") as running:
        yield running


def described(tidelog: CommandLine, name: str) -> Fields:
    """What `groups describe` says as JSON, but how old it is."""
    group = cast(Fields, json.loads(tidelog.run("groups", "describe", name, "--output", "json").out))
    assert cast(float, group.pop("backlog_seconds")) >= 0
    return group


def places(group: Fields) -> list[tuple[object, object, object, object]]:
    """Topic, partition, floor and what is available of each partition."""
    return [
        (topic["name"], one["index"], one["floor"], one["available"])
        for topic in cast("list[Fields]", group["topics"])
        for one in cast("list[Fields]", topic["partitions"])
    ]


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_groups_outlive_their_broker(broker: BrokerProcess, tmp_path: Path, ending: str) -> None:
    """Name, settings, start, generation and begins are as they were after any end, and an id is never used again."""
    tidelog = CommandLine(broker.url, tmp_path)
    tidelog.run("topics", "create", "orders", "--partitions", "2")
    tidelog.run("produce", "orders", "--partition", "0", stdin=b"a\nb\n")
    tidelog.run("groups", "create", "early", "--topic", "orders", "--set", "max_attempts=7")
    tidelog.run("groups", "create", "late", "--topic", "orders", "--from", "latest")
    tidelog.run("groups", "create", "gone", "--topic", "orders")
    tidelog.run("groups", "delete", "gone", "--yes")
    tidelog.run("groups", "reset", "early", "--to", "1", "--topic", "orders", "--partition", "0", "--yes")
    before = {name: described(tidelog, name) for name in ("early", "late")}
    for _ in range(2):
        getattr(broker, ending)()
        broker.start()
        assert {name: described(tidelog, name) for name in before} == before
    tidelog.run("topics", "set", "orders", "partitions=3")
    for partition in ("0", "2"):
        tidelog.run("produce", "orders", "--partition", partition, stdin=b"c\n")
    assert places(described(tidelog, "late")) == [("orders", 0, 2, 1), ("orders", 1, 0, 0), ("orders", 2, 0, 1)]
    assert places(described(tidelog, "early")) == [("orders", 0, 1, 2), ("orders", 1, 0, 0), ("orders", 2, 0, 1)]
    tidelog.run("groups", "create", "gone", "--topic", "orders")
    assert [cast(int, described(tidelog, name)["id"]) for name in ("early", "late", "gone")] == [1, 2, 4]


def test_a_deleted_topic_leaves_the_group(broker: BrokerProcess, tmp_path: Path) -> None:
    """The group goes on with what it still reads; the topic made again under its name is not of it until it joins."""
    tidelog = CommandLine(broker.url, tmp_path)
    for topic in ("orders", "refunds"):
        tidelog.run("topics", "create", topic, "--partitions", "1")
    tidelog.run("groups", "create", "billing", "--topic", "orders", "--topic", "refunds")
    tidelog.run("topics", "delete", "orders", "--yes")
    tidelog.run("topics", "create", "orders", "--partitions", "1")
    assert [place[0] for place in places(described(tidelog, "billing"))] == ["refunds"]
    broker.kill()
    broker.start()
    assert [place[0] for place in places(described(tidelog, "billing"))] == ["refunds"]
