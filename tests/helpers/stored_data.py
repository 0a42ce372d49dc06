"""A small data directory as a stopped broker leaves it."""

from __future__ import annotations

from pathlib import Path

import trio

from tests.helpers.running_broker import running_broker
from tidelog.broker.storage.files import DiskFiles
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import Produce, ProduceReply

MESSAGES = "partitions/1-0/messages"
TIME_US = 1_700_000_000_000_000


def store(root: Path, values: list[bytes | None], *, batches: int, segment_bytes: int = 65_536) -> None:
    """Run a broker that stores so many batches of these values in partition 0 of topic `t`, and stop it."""

    async def run() -> None:
        async with running_broker(files=DiskFiles(root)) as running:
            peer = await running.greeted()
            topic_id = await running.topic(peer, settings={"segment_bytes": segment_bytes})
            for number in range(batches):
                keys = [b"k" if place % 2 else None for place in range(len(values))]
                batch = encode_batch(values, keys=keys, timestamp_us=TIME_US + number)
                reply = (await peer.ask(Produce(topic_id, 0), batch)).message
                assert isinstance(reply, ProduceReply)
                assert reply.results[0].error is None

    root.mkdir(exist_ok=True)
    trio.run(run)


def segments_of(root: Path, folder: str = MESSAGES) -> list[Path]:
    """The segments of a log, in order."""
    return sorted((root / folder).glob("*.log"))


def content_of(root: Path) -> dict[str, tuple[bytes, int]]:
    """Every file's bytes and time of change, to show that nothing changed."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file()]
    return {str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def flip(path: Path, position: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data[position : position + 1])
