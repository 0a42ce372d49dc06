"""What the broker tells a reader that keeps its own offsets, without reading: that more is there, or less than was."""

from __future__ import annotations

from collections.abc import Mapping

from ...protocol.messages import Fetch, FetchPosition, FetchReply
from ..core.arguments import check_count
from ..core.deadline import Deadline
from ..core.record import to_partition
from .session import Session

MAX_WATCHED = 4_000
"""Partitions that one request may name: the broker takes 4,096."""

MAX_OFFSET = (1 << 62) - 1


async def wait_for_records(
    session: Session, offsets: Mapping[tuple[str, int], int], wait_s: float, deadline: Deadline
) -> None:
    """Return once the broker has something to say of these (topic, partition) offsets, or the time is over."""
    positions: list[FetchPosition] = []
    names: set[str] = set()
    version = 0
    for (name, partition), offset in [*offsets.items()][:MAX_WATCHED]:
        at = check_count("offsets", offset, 0, MAX_OFFSET)
        topic = await session.topic(name, deadline)
        positions.append(FetchPosition(topic.id, to_partition(partition), at, max_bytes=1))
        names.add(topic.name)
        version = max(version, topic.version)
    request = Fetch(positions, max_bytes=1, max_wait_us=round(wait_s * 1_000_000), metadata_version=version)
    reply = (await session.link.call(request, deadline)).message
    assert isinstance(reply, FetchReply)
    with session.lock:
        session.directory.seen(reply.metadata_version)
        if any(found.error is not None for found in reply.results):
            for name in names:  # one may be gone, or made again
                session.directory.forget(name)


async def check_position(
    session: Session, name: str, partition: int, epoch: int, offset: int, deadline: Deadline
) -> None:
    """Raise TruncatedError if a log has lost records before this offset since it was in this epoch."""
    at = check_count("offset", offset, 0, MAX_OFFSET)
    index, seen = to_partition(partition), check_count("epoch", epoch, 1)
    topic = await session.topic(name, deadline)
    request = Fetch([FetchPosition(topic.id, index, at, seen, max_bytes=1)], max_bytes=1)
    reply = (await session.link.call(request, deadline)).message
    assert isinstance(reply, FetchReply)
    for result in reply.results:
        if result.error is not None:
            with session.lock:
                session.directory.forget(topic.name)
            raise result.error.error()
