"""A stream while its topics, its broker or its own options change: what is new, lost, away, and read again."""

from __future__ import annotations

import json
import logging
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.spark.stream_query import Query, fill
from tidelog import Client, StorageError, TimedOutError, UnknownPartitionError, UnknownTopicError
from tidelog.spark.errors import DataLossError
from tidelog.spark.options import Selection
from tidelog.spark.planning import available_places

pytestmark = pytest.mark.process


def test_what_turns_up_later_is_read_from_its_beginning(broker: BrokerProcess, client: Client) -> None:
    """New partitions, and new topics that a pattern matches, though the stream itself began at the end."""
    query = Query(broker.url, None, subscribePattern="later-.*")
    assert query.step() == []  # nothing matches, and that is logged
    client.topics.create("later-a", partitions=1)
    fill(client, "later-a", 2)
    assert query.step() == [(0, 0), (0, 1)]
    client.topics.set("later-a", partitions=2)
    fill(client, "later-a", 3, partition=1)
    client.topics.create("changes-other", partitions=1)
    query.restart(maxOffsetsPerTrigger="2")
    assert query.step() == [(1, 0), (1, 1)]
    assert query.step() == [(1, 2)]
    assert query.step() is None
    assert [*json.loads(query.log[-1])] == ["later-a", "@topics", "@epochs"]


def test_a_topic_made_again_is_lost_data(
    broker: BrokerProcess, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Never the other topic's records as if they were the next: an error, or a new beginning and a warning; the same
    for a batch that was logged before, and for a topic that is gone."""
    client.topics.create("s-again", partitions=1)
    fill(client, "s-again", 10)
    query = Query(broker.url, "s-again", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query.step()
    client.topics.delete("s-again")
    with pytest.raises(DataLossError, match="s-again: the topic was deleted, and what was not read of it is gone"):
        query.step()
    with pytest.raises(DataLossError, match="s-again/0: offsets 0 to 4: the topic was deleted; failOnDataLoss=false"):
        query.again()
    client.topics.create("s-again", partitions=1)
    fill(client, "s-again", 20)
    with pytest.raises(DataLossError, match="s-again: the topic was deleted and made again"):
        query.step()
    with pytest.raises(DataLossError, match="s-again/0: offsets 0 to 4: the topic was deleted and made again"):
        query.again()
    query.restart(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, logger="tidelog.spark"):
        assert query.again() == []
        assert query.step() == [(0, at) for at in range(4)]
        assert query.step() == [(0, at) for at in range(4, 8)]
    assert caplog.text.count("going on with what is there") == 2
    client.topics.delete("s-again")
    assert query.step() == []
    assert json.loads(query.log[-1]) == {"@topics": {}}
    assert query.step() is None
    client.topics.create("s-again", partitions=1)
    fill(client, "s-again", 1)
    assert query.step() == [(0, 0)]
    assert query.step() is None


def test_a_topic_of_a_pattern_that_is_gone(broker: BrokerProcess, client: Client) -> None:
    """Is lost data too: it is asked for by name, as being missing from a list proves nothing."""
    client.topics.create("gone-a", partitions=1)
    client.topics.create("gone-b", partitions=1)
    query = Query(broker.url, None, subscribePattern="gone-.")
    query.step()
    client.topics.delete("gone-a")
    with pytest.raises(DataLossError, match="gone-a: the topic was deleted"):
        query.step()
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="gone-a: the topic was deleted"):
        query.step()


def test_what_retention_removes_before_it_is_read_is_lost_data(broker: BrokerProcess, client: Client) -> None:
    """An error with the offsets, or passed over: the new beginning is logged, and a logged batch reads what is
    left."""
    client.topics.create("s-short", partitions=1, segment_bytes=65_536)
    query = Query(broker.url, "s-short", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    for _ in range(20):
        client.produce_many("s-short", [b"x" * 100] * 100, partition=0)
    query.step()
    client.topics.set("s-short", retention_bytes=80_000)
    deadline = time.monotonic() + 30
    while (start := client.topics.describe("s-short").partitions[0].start_offset) <= 100:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(DataLossError, match=f"s-short/0: offsets 100 to {start} were removed by retention"):
        query.step()
    with pytest.raises(DataLossError, match="s-short/0: offsets 0 to 100 were removed by retention"):
        query.again()
    query.restart(failOnDataLoss="false")
    assert query.again() == []
    rows = query.step()
    assert rows
    assert [offset for _, offset in rows] == [*range(rows[0][1], rows[0][1] + 100)]
    assert rows[0][1] >= start
    assert query.again() == rows


def test_a_restart_with_other_options_reads_the_logged_batch_again(broker: BrokerProcess, client: Client) -> None:
    """The same rows, whatever limit, start or topic it is given now; what is not named any more is left after it."""
    client.topics.create("s-one", partitions=2)
    client.topics.create("s-two", partitions=1)
    fill(client, "s-one", 10)
    fill(client, "s-one", 10, partition=1)
    query = Query(broker.url, "s-one", startingOffsets="earliest", maxOffsetsPerTrigger="6")
    first = query.step()
    assert first == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    query.restart(maxOffsetsPerTrigger="3", startingOffsets="latest", minPartitions="4")
    assert sorted(query.again()) == first
    query.restart(subscribe="s-two")
    assert sorted(query.again()) == first
    assert query.step() == []
    assert [*json.loads(query.log[-1])] == ["s-two", "@topics", "@epochs", "@from"]


def test_assigned_partitions(broker: BrokerProcess, client: Client) -> None:
    """Only those that are named, which have to be there; more of the same topic turn up without anything lost."""
    client.topics.create("s-assigned", partitions=3)
    for partition in range(3):
        fill(client, "s-assigned", 2, partition=partition)
    query = Query(broker.url, None, assign='{"s-assigned": [0, 2]}', startingOffsets="earliest")
    assert query.step() == [(0, 0), (0, 1), (2, 0), (2, 1)]
    query.restart(assign='{"s-assigned": [0, 1, 2]}')
    assert query.step() == [(1, 0), (1, 1)]
    query.restart(assign='{"s-assigned": [0, 5]}')
    with pytest.raises(UnknownPartitionError, match="assign: expected partitions that exist, found s-assigned/5"):
        query.step()


def test_a_topic_that_never_was_there(broker: BrokerProcess, client: Client) -> None:
    """Is an error that suggests one."""
    client.topics.create("s-streamed", partitions=1)
    with pytest.raises(UnknownTopicError, match="s-streamed"):
        Query(broker.url, "streamde").step()
    with pytest.raises(UnknownTopicError):
        Query(broker.url, "streamed,nothing").step()


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker that the test may kill."""
    with broker_process(tmp_path) as running:
        yield running


def test_a_broker_that_is_killed_between_batches_and_while_waiting(own_broker: BrokerProcess) -> None:
    """Looking, waiting and planning go on when it is back; no record is missing or double."""
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1)
        fill(client, "t", 10)
        query = Query(own_broker.url, "t", startingOffsets="earliest", maxOffsetsPerTrigger="6")
        assert query.step() == [(0, at) for at in range(6)]
        own_broker.kill()
        threading.Timer(0.5, own_broker.start).start()
        assert query.step() == [(0, at) for at in range(6, 10)]
        query.restart(maxWaitMs="10s")
        result: list[list[tuple[int, int]] | None] = []
        waiting = threading.Thread(target=lambda: result.append(query.step()))
        waiting.start()
        time.sleep(0.2)
        own_broker.kill()
        own_broker.start()
        fill(client, "t", 5)
        waiting.join(30)
        rows = result[0] or []
        while len(rows) < 5:  # the records of one call may come as one batch or more
            rows += query.step() or []
        assert rows == [(0, at) for at in range(10, 15)]


def test_a_broker_that_stays_away_or_hangs_is_named(own_broker: BrokerProcess) -> None:
    """With the partitions that were asked for, after fetchTimeoutMs; a reader that never met it waits as long."""
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=5)
    query = Query(own_broker.url, "t", fetchTimeoutMs="400", startingOffsets="earliest")
    query.step()
    wanted = rf"t/0, t/1, t/2 and 2 more: expected an answer about its offsets from 127.0.0.1:{own_broker.port} within"
    own_broker.pause()
    try:
        with pytest.raises(TimedOutError, match=wanted):
            query.step()
    finally:
        own_broker.resume()
    own_broker.kill()
    began = time.monotonic()
    with pytest.raises(TimedOutError, match=wanted + " fetchTimeoutMs=400, found: "):
        query.step()
    assert 0.2 < time.monotonic() - began < 5
    stranger = Query(f"tidelog://127.0.0.1:{own_broker.port}/default", "t", fetchTimeoutMs="300")
    with pytest.raises(TimedOutError, match=r"^t: expected an answer about its offsets from .* within"):
        stranger.step()


def test_a_partition_that_cannot_be_served_is_not_an_empty_one(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """It stays where it was while the others go on, and goes on itself once it is back; a stream does not begin
    without it, and neither does a batch read."""
    place, aside = tmp_path / "data/partitions/1-1/messages", tmp_path / "aside"
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=2)
        fill(client, "t", 2)
        fill(client, "t", 4, partition=1)
        query = Query(own_broker.url, "t", startingOffsets="earliest", maxOffsetsPerTrigger="3")
        assert query.step() == [(0, 0), (1, 0), (1, 1)]
        own_broker.kill()
        place.rename(aside)
        own_broker.start()
        assert query.step() == [(0, 1)]
        assert json.loads(query.log[-1])["t"] == {"0": 2, "1": 2}
        assert query.step() is None
        query.restart()
        query.reader.prepareForTriggerAvailableNow()
        assert query.step() is None
        for begin in (
            Query(own_broker.url, "t").step,
            Query(own_broker.url, "t", startingOffsets="earliest").step,
            lambda: available_places(client, Selection(topics=("t",))),
        ):
            with pytest.raises(StorageError, match=r"^t/1: expected the records of a partition in .* they are gone"):
                begin()
        only = Query(own_broker.url, None, assign='{"t": [0]}', startingOffsets="earliest")
        assert only.step() == [(0, 0), (0, 1)]
        aside.rename(place)
        assert client.topics.reopen("t") == [1]
        query.restart()
        assert query.step() == [(1, 2), (1, 3)]


def test_topics_of_a_namespace(broker: BrokerProcess, client: Client) -> None:
    """The url's namespace is that of names without one; losses are told by the full name."""
    client.topics.create("shop/s-orders", partitions=1)
    fill(client, "shop/s-orders", 2)
    query = Query(f"{broker.url}/shop", "s-orders", startingOffsets="earliest", maxWaitMs="20")
    assert query.step() == [(0, 0), (0, 1)]
    assert query.step() is None
    assert json.loads(query.log[0])["shop/s-orders"] == {"0": 2}
    client.topics.delete("shop/s-orders")
    with pytest.raises(DataLossError, match="shop/s-orders: the topic was deleted"):
        query.step()


def test_a_log_that_lost_its_end_and_grew_again(own_broker: BrokerProcess, tmp_path: Path) -> None:
    """Other records have the offsets that were read: told by the log's epoch, also by a stream that was away
    meanwhile, for what it read and for a batch that it logged; a log that lost nothing is asked once a start."""
    log, before = tmp_path / "data/partitions/1-0/messages", tmp_path / "before"
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1)
        fill(client, "t", 10)
        own_broker.kill()
        shutil.copytree(log, before)
        own_broker.start()
        query = Query(own_broker.url, "t", startingOffsets="earliest", maxOffsetsPerTrigger="8")
        fill(client, "t", 5)
        assert query.step() == [(0, at) for at in range(8)]
        own_broker.kill()
        own_broker.start()
        assert query.step() == [(0, at) for at in range(8, 15)]
        assert query.step() is None
        own_broker.kill()
        shutil.rmtree(log)
        before.rename(log)
        own_broker.start()
        fill(client, "t", 20)
        query.restart()
        with pytest.raises(DataLossError, match="t/0: read up to offset 15, and its log lost what was behind 10"):
            query.step()
        with pytest.raises(DataLossError, match="t/0: offsets 10 to 15 are lost: its log ends at 10 since"):
            query.again()
        query.restart(failOnDataLoss="false", maxOffsetsPerTrigger="100")
        assert query.again() == [(0, 8), (0, 9)]
        assert query.step() == [(0, at) for at in range(10, 30)]
        assert query.again() == [(0, at) for at in range(10, 30)]
        assert query.step() is None


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_log_that_loses_its_end_between_the_plan_of_a_batch_and_its_tasks(
    own_broker: BrokerProcess, tmp_path: Path, fails: str
) -> None:
    """What has the offsets since is not what was planned: an error, or passed over, and read once, by the next batch."""
    log, before = tmp_path / "data/partitions/1-0/messages", tmp_path / "before"
    with Client(own_broker.url) as client:
        client.topics.create("t", partitions=1)
        fill(client, "t", 5)
        own_broker.kill()
        shutil.copytree(log, before)
        own_broker.start()
        fill(client, "t", 5)
        query = Query(own_broker.url, "t", startingOffsets="earliest", failOnDataLoss=fails)
        start = json.loads(json.dumps(query.reader.initialOffset()))
        end = json.loads(json.dumps(query.reader.latestOffset(start, query.reader.getDefaultReadLimit())))
        assert end["t"] == {"0": 10}
        query.log.append(json.dumps(end))
        tasks = query.reader.partitions(start, end)
        own_broker.kill()
        shutil.rmtree(log)
        before.rename(log)
        own_broker.start()
        fill(client, "t", 7)
        if fails == "true":
            with pytest.raises(DataLossError, match="found at offset 5: the log lost its end and has grown again"):
                [batch for task in tasks for batch in query.reader.read(task)]
            return
        read = [at for task in tasks for batch in query.reader.read(task) for at in batch.column(0).to_pylist()]
        assert read == [*range(5)]
        assert query.step() == [(0, at) for at in range(5, 12)]
        assert query.step() is None
