"""A real broker killed while it removes from its archive, and a copied data directory beside its original."""

from __future__ import annotations

import random
import shutil
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.helpers.archiving_process import SMALL, archiving_broker, archiving_config, fill, until_archived, values_of
from tests.helpers.broker_process import BrokerProcess

from tidelog import ArchiveConflictError, Client, TidelogError

pytestmark = [pytest.mark.process, pytest.mark.crash]

KILLS = 3


def objects_without_an_entry(store: Path) -> list[Path]:
    """Return the segments in a store that no entry names."""
    named = {path.name[:20] for path in store.rglob("*.json")}
    return [path for path in store.rglob("*.log*") if path.name[:20] not in named]


def test_a_broker_killed_while_it_removes_leaves_what_is_listed_whole(tmp_path: Path) -> None:
    """After each kill every listed segment is intact, what is left has no hole, and the next removal takes the rest."""
    rng = random.Random(5)
    with archiving_broker(tmp_path) as broker:
        with Client(broker.url) as client:
            client.topics.create("orders", partitions=1, **SMALL)
            fill(client, "orders", 1_200)
            until_archived(client, "orders", 1_140)
        left: list[int] = []
        for _ in range(KILLS):
            with Client(broker.url) as client:
                middle = client.topics.archived("orders")
                before = middle[len(middle) // 2].last_append_time
                timer = threading.Timer(rng.random() * 0.02, broker.kill)
                timer.start()
                with suppress(TidelogError):
                    client.archive.expire("orders", before=before, timeout=2)
                timer.join()
            broker.start()
            with Client(broker.url) as client:
                found = client.topics.archived("orders")
                left.append(len(found))
                assert [one.base_offset for one in found[1:]] == [one.end_offset for one in found[:-1]]
                assert all(client.archive.verify(one) is None for one in found)
                first = found[0].base_offset
                with client.replay("orders", start=first, end=1_200, include_archived=True) as replay:
                    assert [message.value for message in replay.messages()] == values_of(first, 1_200 - first)
        assert left == sorted(left, reverse=True)
        with Client(broker.url) as client:
            # What retention had said to be gone may be there again after a kill: its files go later, in a worker.
            until_archived(client, "orders", 1_140)
            client.archive.expire("orders", before=datetime.now(UTC))
            assert client.topics.archived("orders") == []
        assert objects_without_an_entry(tmp_path / "store") == []


def test_a_copied_data_directory_removes_nothing_of_its_original(tmp_path: Path) -> None:
    """A copy that never saw the original's newer topic is refused to remove it; the original goes on as ever."""
    with archiving_broker(tmp_path) as broker:
        with Client(broker.url) as client:
            client.topics.create("orders", partitions=1, **SMALL)
            fill(client, "orders", 200)
            until_archived(client, "orders", 180)
        assert broker.stop() == 0
        shutil.copytree(tmp_path / "data", tmp_path / "copy")
        broker.start()
        config = archiving_config(tmp_path, f"file://{tmp_path}/store")
        with (
            BrokerProcess(tmp_path / "copy", arguments=["--config", str(config)]) as copy,
            Client(broker.url) as client,
            Client(copy.url) as other,
        ):
            client.topics.create("later", partitions=1, **SMALL)
            fill(client, "later", 200)
            until_archived(client, "later", 180)
            tried = other.archive.expire_deleted(dry_run=True)
            assert {one.topic for one in tried.listed} == {"later"}
            with pytest.raises(ArchiveConflictError, match="removes nothing from the archive of its original"):
                other.archive.expire_deleted(confirmed=tried)
            with pytest.raises(ArchiveConflictError):
                other.archive.expire("orders", before=datetime.now(UTC))
            with other.replay("orders", start=0, end=200, include_archived=True) as replay:
                assert [message.value for message in replay.messages()] == values_of(0, 200)
            assert len(client.topics.archived("later")) == 3
            assert client.archive.expire("orders", before=datetime.now(UTC)).segments == 3


def test_a_restart_sweeps_what_a_killed_copy_left(tmp_path: Path) -> None:
    """Files that a killed put wrote into are gone after the next start, and everything is archived."""
    with archiving_broker(tmp_path) as broker:
        with Client(broker.url) as client:
            client.topics.create("orders", partitions=1, **SMALL)
            fill(client, "orders", 200)
            until_archived(client, "orders", 180)
            place = Path(client.topics.archived("orders")[0].url.removeprefix("file://")).parent
        broker.kill()
        left = place / f"{180:020d}-{'0' * 32}.log#1"
        left.write_bytes(bytes(10_000))
        broker.start()
        deadline = time.monotonic() + 10
        while left.exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with Client(broker.url) as client, client.replay("orders", start=0, end=200, include_archived=True) as replay:
            assert [message.value for message in replay.messages()] == values_of(0, 200)
