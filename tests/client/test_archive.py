"""Archived messages through every client: read as if they were local, listed, verified, removed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.helpers.archiving_process import SMALL, archiving_broker, fill, until_archived
from tests.helpers.broker_process import BrokerProcess, broker_process
from tidelog import (
    ArchiveOffError,
    Client,
    InvalidTopicError,
    OffsetOutOfRangeError,
    RangeNotAvailableError,
)

pytestmark = pytest.mark.process


class Archived(NamedTuple):
    """A broker, and the values of its topic `orders`, all but the last of which are archived only."""

    broker: BrokerProcess
    values: list[bytes]
    store: Path


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archived]:
    """A broker whose topic begins in the archive."""
    folder = tmp_path_factory.mktemp("archive")
    with archiving_broker(folder) as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1, **SMALL)
        values = fill(client, "orders", 400)
        until_archived(client, "orders", 360)
        yield Archived(broker, values, folder / "store")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_archived_messages_are_read_as_if_they_were_local(flavour: str, archived: Archived) -> None:
    """Replay and consumer give every message once and in order, over the seam, by offset and by time."""

    async def body(world: World) -> None:
        async with world.client(archived.broker.url) as client:
            async with client.replay("orders", include_archived=True) as replay:
                messages = [message async for message in replay.messages()]
                assert await replay.ranges() == {0: (0, 400)}
            assert [message.value for message in messages] == archived.values
            assert [message.offset for message in messages] == list(range(400))
            middle = messages[150].append_time
            async with client.replay("orders", start=middle, end=390, include_archived=True) as replay:
                found = [message.value async for message in replay.messages()]
            assert found == archived.values[150:390]
            async with client.consumer("orders", start=7, end=395, include_archived=True) as consumer:
                assert [message.value async for message in consumer] == archived.values[7:395]
            async with client.replay("orders", start=100, end=110, ordered="time", include_archived=True) as replay:
                assert [message.offset async for message in replay.messages()] == list(range(100, 110))

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_without_the_word_archived_messages_are_out_of_range(flavour: str, archived: Archived) -> None:
    """Nothing comes from the archive unasked: a replay of what retention removed says what is left."""

    async def body(world: World) -> None:
        async with world.client(archived.broker.url) as client:
            with pytest.raises(RangeNotAvailableError):
                await client.replay("orders", start=0).ranges()
            with pytest.raises(OffsetOutOfRangeError):
                async with client.consumer("orders", start=0) as consumer:
                    [message async for message in consumer]

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_listing_says_where_the_bytes_are(flavour: str, archived: Archived) -> None:
    """The segments of a topic join without a gap, and each url names an object of the size that is said."""

    async def body(world: World) -> None:
        async with world.client(archived.broker.url) as client:
            segments = await client.topics.archived("orders")
            assert segments == await client.archive.list("orders")
            assert segments[0].base_offset == 0
            assert [one.end_offset for one in segments[:-1]] == [one.base_offset for one in segments[1:]]
            assert [one.records for one in segments] == [one.end_offset - one.base_offset for one in segments]
            for one in segments:
                assert Path(one.url.removeprefix("file://")).stat().st_size == one.bytes
            partition = (await client.topics.describe("orders")).partitions[0]
            assert (partition.archived_start, partition.archived_end) == (0, segments[-1].end_offset)
            assert await client.archive.verify(segments[0]) is None
            done = await client.archive.run("orders")
            assert (done.segments, done.problems) == (0, [])
            trial = await client.archive.expire("orders", before=timedelta(0), dry_run=True)
            assert trial.segments == len([one for one in segments if one.end_offset <= partition.start_offset])
            assert [one.base_offset for one in trial.listed] == [one.base_offset for one in segments[: trial.segments]]

    run(flavour, body)


def test_a_broker_without_an_archive_says_so(tmp_path: Path) -> None:
    """Every call that is about the archive is refused by name, and so is a topic that is to be archived."""
    with broker_process(tmp_path, "--in-memory") as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1)
        for ask in (
            lambda: client.replay("orders", include_archived=True).ranges(),
            lambda: client.topics.archived("orders"),
            lambda: client.archive.run(),
            lambda: client.archive.expire_deleted(),
            lambda: client.topics.create("more", archive="on"),
        ):
            with pytest.raises(ArchiveOffError, match="archive"):
                ask()
        with pytest.raises(InvalidTopicError, match="archive: expected on or off, found 'maybe'"):
            client.topics.create("more", archive="maybe")


def test_damage_in_the_archive_is_an_error_and_never_data(archived: Archived) -> None:
    """A flipped bit is found by verify, raised by a replay with its range, and passed over under missing="skip"."""
    with Client(archived.broker.url) as client:
        client.topics.create("fragile", partitions=1, **SMALL)
        values = fill(client, "fragile", 200)
        until_archived(client, "fragile", 180)
        segment = client.topics.archived("fragile")[1]
        path = Path(segment.url.removeprefix("file://"))
        data = bytearray(path.read_bytes())
        data[4096 + 15_000] ^= 4
        path.write_bytes(data)
        damage = client.archive.verify(segment)
        assert damage is not None
        ((start, end),) = damage.ranges
        assert end - start == 10
        with pytest.raises(RangeNotAvailableError) as caught:
            [*client.replay("fragile", include_archived=True)]
        assert (caught.value.details["start"], caught.value.details["next"]) == (start, end)
        left = [m.value for m in client.replay("fragile", missing="skip", include_archived=True).messages()]
        assert left == values[:start] + values[end:]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_bounds_are_found_in_the_archive_too(flavour: str, archived: Archived) -> None:
    """`find_offsets` begins where the archive does when it is asked to look there."""

    async def body(world: World) -> None:
        async with world.client(archived.broker.url) as client:
            (start,) = (await client.topics.find_offsets("orders", "earliest")).values()
            assert start >= 360
            assert await client.topics.find_offsets("orders", "earliest", include_archived=True) == {0: 0}

    run(flavour, body)
