"""Lists that are longer than a reply, as every client sees them: whole."""

from __future__ import annotations

import json
import re

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tidelog import Broker, Client, UnknownGroupError, UnknownTopicError
from tidelog.__main__ import main
from tidelog.broker import page_room


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply has room for one partition."""
    monkeypatch.setattr(page_room, "PAGE_BYTES", 1)


@pytest.mark.usefixtures("tiny_pages")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_groups_are_listed_whole(flavour: str) -> None:
    """All groups with all partitions, though each partition comes in a reply of its own; so are those that are named,
    and what a change is answered with."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create("a", partitions=3)
            await client.topics.create("b", partitions=2)
            await client.produce_many("a", [b"x"] * 4, partition=1)
            for name in ("g3", "g1", "g2"):
                made = await client.groups.create(name, ["b", "a"])
                assert [(topic.name, len(topic.partitions)) for topic in made.topics] == [("a", 3), ("b", 2)]
            listed = await client.groups.list()
            assert [group.name for group in listed] == ["g1", "g2", "g3"]
            for group in listed:
                assert [[one.index for one in topic.partitions] for topic in group.topics] == [[0, 1, 2], [0, 1]]
                assert group.backlog == 4
            assert [group.name for group in await client.groups.list(["g3", "g1"])] == ["g1", "g3"]
            changed = await client.groups.set("g2", max_attempts=7)
            assert (changed.settings.max_attempts, changed.backlog, len(changed.topics[0].partitions)) == (7, 4, 3)
            with pytest.raises(UnknownGroupError):
                await client.groups.list(["g3", "nobody"])

    with Broker() as broker:
        run(flavour, body)


@pytest.mark.usefixtures("tiny_pages")
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_topics_are_listed_whole(flavour: str) -> None:
    """All topics with all partitions, those that are named, what a change is answered with, what readers of a pattern
    read, where a group that was moved begins, and counters."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            made = await client.topics.create("b", partitions=2)
            assert [one.index for one in made.partitions] == [0, 1]
            await client.topics.create("a", partitions=1)
            changed = await client.topics.set("a", partitions=3)
            assert [one.index for one in changed.partitions] == [0, 1, 2]
            listed = await client.topics.list()
            assert [(topic.name, len(topic.partitions)) for topic in listed] == [("a", 3), ("b", 2)]
            assert [len(topic.partitions) for topic in await client.topics.list(["b", "a"])] == [3, 2]
            assert len((await client.topics.describe("a")).partitions) == 3
            assert (await client.health()).partitions == 5
            with pytest.raises(UnknownTopicError):
                await client.topics.list(["b", "nobody"])
            for partition in range(3):
                await client.produce("a", b"x", partition=partition)
            pattern = re.compile("[ab]")
            async with client.consumer(pattern, start="earliest", end="latest") as consumer:
                assert len([message async for message in consumer]) == 3
            await client.groups.create("g", ["a", "b"])
            begins = await client.groups.reset("g", "latest")
            assert [(one.topic, one.partition, one.offset) for one in begins] == [
                ("b", 0, 0),
                ("b", 1, 0),
                ("a", 0, 1),
                ("a", 1, 1),
                ("a", 2, 1),
            ]
            assert (await client.groups.describe("g")).generation == 2
            await client.groups.create("h", "a")
            stats = await client.stats()
            assert [stats[f'tidelog_queue_backlog_messages{{group="{name}"}}'] for name in "gh"] == [0, 3]
            assert (stats["tidelog_topics"], stats["tidelog_partitions"], stats["tidelog_groups"]) == (2, 5, 2)

    with Broker() as broker:
        run(flavour, body)


@pytest.mark.usefixtures("tiny_pages")
def test_the_command_line_lists_groups_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """`groups list` and `groups describe` show all of them, and all partitions."""
    with Broker() as broker, Client(broker.url) as client:
        client.topics.create("a", partitions=3)
        for number in range(4):
            client.groups.create(f"g{number}", "a")
        assert main(["groups", "list", "--url", broker.url, "--output", "json"]) == 0
        listed = capsys.readouterr().out
        assert [json.loads(line)["name"] for line in listed.splitlines()] == ["g0", "g1", "g2", "g3"]
        assert main(["groups", "describe", "g2", "--url", broker.url, "--output", "json"]) == 0
        (topic,) = json.loads(capsys.readouterr().out)["topics"]
        assert [one["index"] for one in topic["partitions"]] == [0, 1, 2]
