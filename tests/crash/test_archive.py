"""A real broker killed while it archives and while archived messages are read, and a store that goes away."""

from __future__ import annotations

import random
import socket
import threading
import time
from pathlib import Path

import pytest
from tests.helpers.archiving_process import SMALL, archiving_broker, fill, until_archived, values_of
from tests.helpers.s3_server import BUCKET, s3_server

from tidelog import Client, TimedOutError
from tidelog.broker.archive.entry import decode_entry
from tidelog.broker.storage.sealed import checksum_of

pytestmark = [pytest.mark.process, pytest.mark.crash]

KILLS = 3
MOST_KILLS = 30
"""A busy machine sends as slowly as it archives: it may take some until one comes in between."""


def whole_entries(store: Path) -> int:
    """Check that every entry names a whole object; return how many there are."""
    entries = sorted(store.rglob("*.json"))
    for path in entries:
        entry = decode_entry(path.read_bytes(), path.name)
        assert checksum_of(iter([(store / entry.object).read_bytes()])) == entry.checksum
    return len(entries)


def test_a_broker_killed_while_it_archives_loses_nothing(tmp_path: Path) -> None:
    """Over several kills every acknowledged message is in the archive or the log, once and in order."""
    rng = random.Random(11)
    sent: list[bytes] = []
    interrupted = kills = 0
    with archiving_broker(tmp_path) as broker:
        with Client(broker.url) as client:
            client.topics.create("orders", partitions=1, **SMALL)
        while kills < KILLS or not interrupted:
            assert kills < MOST_KILLS, "no kill came before the archive had everything"
            with Client(broker.url) as client:
                sent += fill(client, "orders", 300, first=len(sent))
            time.sleep(kills % KILLS * rng.random() * 0.05)
            broker.kill()
            kills += 1
            interrupted += whole_entries(tmp_path / "store") < (len(sent) - 1) // 60
            broker.start()
        with Client(broker.url) as client:
            until_archived(client, "orders", len(sent) - 60)
            with client.replay("orders", start=0, end=len(sent), include_archived=True) as replay:
                messages = [*replay.messages()]
            assert [message.value for message in messages] == sent
            assert [message.offset for message in messages] == list(range(len(sent)))
            assert all(client.archive.verify(one) is None for one in client.topics.archived("orders"))


def test_a_replay_of_archived_messages_goes_on_over_a_kill(tmp_path: Path) -> None:
    """A broker that dies under a replay and comes back finishes it: every message once, from archive and log."""
    with archiving_broker(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1, **SMALL)
        values = fill(client, "orders", 2_000)
        until_archived(client, "orders", 1_900)
        found: list[bytes | None] = []
        with client.replay("orders", start=0, end=2_000, include_archived=True) as replay:
            for batch in replay:
                found += [message.value for message in batch.messages()]
                if len(found) == 1_000:
                    broker.kill()
                    threading.Timer(0.2, broker.start).start()
        assert found == values
        assert broker.starts == 2


def test_a_store_that_goes_away_and_comes_back(tmp_path: Path) -> None:
    """While S3 is away the broker serves, keeps its segments, and says why; afterwards it archives and lets them go."""
    with (
        s3_server() as s3,
        archiving_broker(tmp_path, f"s3://{BUCKET}/prefix", s3.options) as broker,
        Client(broker.url) as client,
    ):
        client.topics.create("orders", partitions=1, **SMALL)
        fill(client, "orders", 200)
        until_archived(client, "orders", 180)
        s3.stop()
        fill(client, "orders", 200, first=200)
        deadline = time.monotonic() + 20
        while not client.topics.describe("orders").partitions[0].archive_error:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        while not (partition := client.topics.describe("orders").partitions[0]).held_segments:
            assert time.monotonic() < deadline, partition
            time.sleep(0.05)
        start = partition.start_offset
        assert partition.archive_error is not None
        assert partition.archive_error.startswith("ARCHIVE_UNAVAILABLE: expected s3://tidelog/prefix to answer")
        health = client.health()
        assert not health.ok
        assert "orders/0: not archived: ARCHIVE_UNAVAILABLE" in health.problems[0]
        assert client.stats()["tidelog_archive_errors_total"] > 0
        assert [m.value for m in client.replay("orders", start=start, end=400).messages()] == values_of(
            start, 400 - start
        )
        s3.start()
        until_archived(client, "orders", 360)
        assert client.health().ok
        with client.replay("orders", start=0, end=400, include_archived=True) as replay:
            assert [message.value for message in replay.messages()] == values_of(0, 400)
        assert client.topics.archived("orders")[0].url.startswith(f"s3://{BUCKET}/prefix/")


def test_a_stop_does_not_wait_for_a_silent_store(tmp_path: Path) -> None:
    """A broker whose store takes connections and says nothing still ends cleanly at once, and loses nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {"endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}", "allow_http": "true"}
        options |= {"access_key_id": "x", "secret_access_key": "y"}
        with archiving_broker(tmp_path, "s3://bucket", options, request_timeout="1m") as broker:
            with Client(broker.url) as client:
                client.topics.create("orders", partitions=1, **SMALL)
                values = fill(client, "orders", 200)
                silent.accept()  # it has begun to ask
                with pytest.raises(TimedOutError):
                    client.replay("orders", include_archived=True, timeout=0.5).ranges()
            begun = time.monotonic()
            assert broker.stop() == 0
            assert time.monotonic() - begun < 10
            broker.start()
            with Client(broker.url) as client:
                assert [m.value for m in client.replay("orders", start=0, end=200).messages()] == values
