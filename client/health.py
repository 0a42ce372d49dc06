"""What the broker says about itself."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from ..protocol.messages import MetadataReply
from ..protocol.topic_name import short_name


class Pong(msgspec.Struct, frozen=True):
    """The answer to a ping."""

    address: str
    broker_version: str
    node_id: str
    server_time: datetime
    round_trip: timedelta


class Health(msgspec.Struct, frozen=True):
    """Whether every partition takes writes, is undamaged and is archived as it should be; `problems` has one line for
    each that is not."""

    ok: bool
    pong: Pong
    topics: int
    partitions: int
    problems: list[str]


def problems_of(reply: MetadataReply) -> list[str]:
    """Return one line for each partition that is fenced, damaged, or not archived as it should be."""
    problems: list[str] = []
    for topic in reply.topics:
        for partition in topic.partitions:
            where = f"{short_name(topic.name)}/{partition.index}"
            if partition.fenced:
                problems.append(f"{where}: a sync failed, it takes no writes until `topics reopen`")
            problems += [f"{where}: offsets {start} to {end} are damaged" for start, end in partition.damaged]
            if partition.archive_error is not None:
                error = partition.archive_error.error()
                held = f"; {partition.held_segments} segments wait past their retention"
                problems.append(
                    f"{where}: not archived: {error.code}: {error.message}{held if partition.held_segments else ''}"
                )
    return problems
