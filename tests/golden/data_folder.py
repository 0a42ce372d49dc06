"""What is in `tests/golden/data_folder`, and how it was made.

The folder pins the format on disk: a later version must read it as it is. It was made once, by

    python -m tests.golden.data_folder

with a broker that was stopped cleanly after `BEFORE_STOP` (so that there are a snapshot, a sealed segment and its
indexes) and killed after `AFTER_RESTART` (so that there is a tail that no snapshot covers). Made anew it would differ
in times, seeds and epochs, so it is replaced only when the format's version changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.helpers.broker_process import BrokerProcess
from tidelog import Client

FOLDER = Path(__file__).parent / "data_folder"
TOPIC = "orders"
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Record:
    """One message as it was produced, all to partition 0."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    priority: int = 4
    timestamp_us: int = 1_767_323_045_678_901


BEFORE_STOP = [
    Record(b"o-1", b'{"total": 12}', (("source", b"web"), ("source", b"again"), ("empty", b""), ("null", None))),
    Record(None, b""),
    Record(b"", None, priority=9, timestamp_us=-1),
    Record("ключ🔑".encode(), bytes(range(256)) * 150, priority=0),
    Record(b"o-2", b"x" * 35_000),
]
AFTER_RESTART = [Record(b"o-3", b"past the snapshot", timestamp_us=4_102_444_800_000_000)]


def produce(client: Client, records: list[Record]) -> None:
    """Store each record as a batch of its own."""
    for record in records:
        client.produce_many(
            TOPIC,
            [record.value],
            keys=[record.key],
            headers=[list(record.headers)],
            priority=record.priority,
            timestamps=np.array([record.timestamp_us], dtype="datetime64[us]"),
            partition=0,
        )


def make(folder: Path) -> None:
    """Make the folder anew."""
    broker = BrokerProcess(folder, log=folder.with_suffix(".broker-log"))
    broker.start()
    with Client(broker.url) as client:
        client.topics.create(TOPIC, partitions=2, segment_bytes="64KiB", retention=None)
        produce(client, BEFORE_STOP)
    broker.stop()
    broker.start()
    with Client(broker.url) as client:
        produce(client, AFTER_RESTART)
    broker.kill()
    broker.log.unlink()
    (folder / "LOCK").unlink()
    for segment in folder.rglob("*.log"):
        cut_unwritten(segment)


def cut_unwritten(segment: Path) -> None:
    """Cut off the whole pages at a segment's end that were never written: a reader takes a file of any length."""
    data = segment.read_bytes().rstrip(b"\0")
    segment.write_bytes(data + bytes(-len(data) % PAGE_BYTES))


if __name__ == "__main__":
    make(FOLDER)
