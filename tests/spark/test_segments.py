"""Sealed segments, read past the broker: the same rows as through it, and nothing that is not certain."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.stored_data import flip, segments_of, store
from tidelog import Client
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES
from tidelog.spark.narrowing import Narrowing
from tidelog.spark.options import ReadOptions
from tidelog.spark.places import Place, Range
from tidelog.spark.planning import plan
from tidelog.spark.reading import RangePartition, read_partition
from tidelog.spark.schema import ALL_COLUMNS, schema_of
from tidelog.spark.segments import SealedSegments

VALUES: list[bytes | None] = [b"v" * 1000, None, b"", b"w" * 1000]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A data folder with 300 batches of four records in partition 0 of topic 1, in segments of 64 KiB."""
    store(tmp_path / "data", VALUES, batches=300)
    return tmp_path / "data"


def whole(count: int = 1200, **changes: int) -> Range:
    """Return the range of all records."""
    return Range(Place("t", 0), changes.get("start", 0), count, 1, changes.get("topic_id", 1))


def offsets(segments: SealedSegments) -> list[int]:
    """Return the offsets of what segments yield."""
    found: list[int] = []
    for part in segments.parts():
        base = part.records.header.base_offset
        found += range(base + part.start, base + part.stop)
    return found


def test_all_but_the_last_segment_is_sealed(stored: Path) -> None:
    """What lies before the last segment comes without a hole, and the position says where to go on."""
    last = int(segments_of(stored)[-1].stem)
    assert len(segments_of(stored)) > 5
    segments = SealedSegments(str(stored), whole())
    assert offsets(segments) == [*range(last)]
    assert segments.position == last


def test_a_range_is_cut_to_the_record(stored: Path) -> None:
    """From the middle of one batch to the middle of another, across segments."""
    segments = SealedSegments(str(stored), whole(318, start=6))
    assert offsets(segments) == [*range(6, 318)]
    assert segments.position == 318
    first = next(SealedSegments(str(stored), whole(7, start=6)).parts())
    assert (first.topic, first.partition, first.size, first.records.values[2]) == ("t", 0, 1, b"")


@pytest.mark.parametrize("place", ["header", "body"])
def test_what_is_damaged_is_left_to_the_broker(stored: Path, place: str) -> None:
    """One flipped bit ends the pass before its batch; a damaged header page before its segment."""
    second = segments_of(stored)[1]
    base = int(second.stem)
    if place == "body":
        flip(second, SEGMENT_HEADER_BYTES + 300)
    else:
        flip(second, 3)
        flip(second, 2048 + 3)
    segments = SealedSegments(str(stored), whole())
    assert offsets(segments) == [*range(base)]
    assert segments.position == base


def test_a_hole_inside_a_segment_is_left_to_the_broker(stored: Path) -> None:
    """A flipped bit that makes a batch one without messages is met by no checksum, as such are not read; the pass ends
    before it and never goes on behind it."""
    second = segments_of(stored)[1]
    base = int(second.stem)
    flip(second, SEGMENT_HEADER_BYTES + 62)  # Attributes.CONTROL, of the first batch there
    segments = SealedSegments(str(stored), whole())
    assert offsets(segments) == [*range(base)]
    assert segments.position == base


def test_what_is_missing_or_anothers_is_left_to_the_broker(stored: Path, tmp_path: Path) -> None:
    """No folder, a segment that retention removed, and one of another log: nothing is read past them."""
    assert offsets(SealedSegments(str(tmp_path / "nowhere"), whole())) == []
    assert offsets(SealedSegments(str(stored), whole(topic_id=2))) == []
    files = segments_of(stored)
    files[0].unlink()
    assert offsets(SealedSegments(str(stored), whole())) == []
    start = int(files[1].stem)
    assert offsets(SealedSegments(str(stored), whole(start + 9, start=start))) == [*range(start, start + 9)]
    files[2].unlink()
    assert offsets(SealedSegments(str(stored), whole(start=start))) == [*range(start, 2 * start)]
    other = stored / "partitions/2-0/messages"
    other.parent.mkdir()
    shutil.copytree(stored / "partitions/1-0/messages", other)
    assert offsets(SealedSegments(str(stored), whole(start=int(files[3].stem), topic_id=2))) == []


def rows(broker: BrokerProcess, **options: str) -> list[dict[str, object]]:
    """Return all rows of topic `t` as tasks yield them."""
    given = {"url": broker.url, "subscribe": "t", "minPartitions": "3", **options}
    parsed, schema = ReadOptions.parse(given), schema_of(None, ALL_COLUMNS)
    with Client(broker.url) as client:
        ranges = plan(client, parsed, Narrowing())
    assert len(ranges) == 3
    batches = [batch for each in ranges for batch in read_partition(RangePartition(each), parsed, schema)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.process
def test_the_same_rows_as_through_the_broker(tmp_path: Path) -> None:
    """All columns of all rows, headers and priorities too, and the broker sends no more than what is not sealed."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("t", partitions=1, segment_bytes=65_536)
        for at in range(0, 4000, 50):
            values = [None if number % 7 == 0 else b"%d" % number * 20 for number in range(at, at + 50)]
            headers = [[("n", b"%d" % number), ("n", None)] if number % 3 else [] for number in range(at, at + 50)]
            keys = [None if number % 5 == 0 else b"%d" % (number % 9) for number in range(at, at + 50)]
            client.produce_many("t", values, keys=keys, headers=headers, priority=at // 50 % 10)
        expected = rows(broker)
        assert [row["offset"] for row in expected] == [*range(4000)]
        before = client.stats()["tidelog_fetched_bytes_total"]
        assert rows(broker, segmentDir=str(tmp_path / "data")) == expected
        sent = client.stats()["tidelog_fetched_bytes_total"] - before
        before = client.stats()["tidelog_fetched_bytes_total"]
        assert rows(broker, segmentDir=str(tmp_path / "nowhere")) == expected
        assert sent < 100_000 < client.stats()["tidelog_fetched_bytes_total"] - before


@pytest.mark.process
def test_the_folder_of_another_broker_is_not_read(tmp_path: Path) -> None:
    """Topics of two brokers have the same numbers: the first batch tells them apart."""
    store(tmp_path / "other", VALUES, batches=300)
    (tmp_path / "own").mkdir()
    with broker_process(tmp_path / "own") as broker, Client(broker.url) as client:
        client.topics.create("t", partitions=1, segment_bytes=65_536)
        client.produce_many("t", [b"mine"] * 1200)
        found = rows(broker, segmentDir=str(tmp_path / "other"))
        assert {row["value"] for row in found} == {b"mine"}
        assert len(found) == 1200
