"""A real broker process that archives, with small segments and little patience."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.broker_process import BrokerProcess
from tidelog.client.blocking.client import Client

SMALL = {"segment_bytes": 65_536, "retention_bytes": 0}
"""Settings of a topic of which only the active segment stays local."""


def archiving_config(folder: Path, url: str, options: Mapping[str, str] | None = None, **more: str) -> Path:
    """Write a configuration that archives at once and retains nothing that is archived."""
    path = folder / "archive.yaml"
    archive = {"url": url, "options": dict(options or {}), "interval": "50ms", "request_timeout": "1s"}
    archive |= {"max_backoff": "1s", **more}
    path.write_text(json.dumps({"archive": archive, "log": {"retention_check_interval": "50ms"}}))
    return path


@contextmanager
def archiving_broker(
    folder: Path, url: str | None = None, options: Mapping[str, str] | None = None, **more: str
) -> Iterator[BrokerProcess]:
    """Run a broker that archives into a folder beside its data, or elsewhere."""
    config = archiving_config(folder, url or f"file://{folder}/store", options, **more)
    with BrokerProcess(folder / "data", arguments=["--config", str(config)]) as broker:
        yield broker


def values_of(first: int, count: int) -> list[bytes]:
    """Return values that name themselves; sixty of them fill a segment."""
    return [b"%08d" % number + b"v" * 1_000 for number in range(first, first + count)]


def fill(client: Client, topic: str, count: int, first: int = 0) -> list[bytes]:
    """Produce values in batches of ten; returns them."""
    values = values_of(first, count)
    for start in range(0, count, 10):
        client.produce_many(topic, values[start : start + 10], partition=0)
    return values


def until_archived(client: Client, topic: str, offset: int, timeout_s: float = 30.0) -> None:
    """Return once retention has removed what lies below an offset, all of it archived."""
    deadline = time.monotonic() + timeout_s
    while (found := client.topics.describe(topic).partitions[0]).start_offset < offset:
        assert time.monotonic() < deadline, found
        time.sleep(0.02)
