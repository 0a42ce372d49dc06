"""A queue group with every second message acknowledged: what the broker holds of it, and how fast it starts again.

By requests, not by a queue: its consumers never have so many messages in hand.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from tidelog import Client
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    GroupInfo,
    JoinGroup,
    JoinGroupReply,
    Settle,
    SettleItem,
    SettleReply,
    Settling,
)
from tidelog.protocol.offset_ranges import unpack_ranges

from ..conditions import Conditions
from ..errors import VerificationError
from ..values import unique_values
from .broker import BrokerProcess
from .topic import TOPIC, create_topics

GROUP = "holes"
MEMBER = 1
AT_ONCE = 50_000
"""Messages of one lease: what is settled of it makes ranges for half of them, which fit one request."""

LEAST_BYTES = 1_024
"""Of an answer: the records are not wanted. It always has at least one batch."""


def holes(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Acknowledge every second of twice as many messages, measure, kill the broker, and start it again."""
    count = 2 * conditions.messages
    values = unique_values(min(count, AT_ONCE), conditions.size, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker:
        with Client(broker.url) as client:
            create_topics(client)
            for _ in range(0, count, len(values)):
                client.produce_many(TOPIC, values)
            idle = broker.anonymous_bytes()
            settled = _acknowledge_every_second(client)
            _check(client, settled)
            memory = broker.anonymous_bytes()
        broker.kill()
        began = time.perf_counter()
        broker.start()
        with Client(broker.url) as client:
            client.groups.describe(GROUP)
            elapsed = time.perf_counter() - began
            _check(client, settled)
    yield "queue_holes_memory", memory / 1e6
    yield "queue_holes_growth", (memory - idle) / 1e6
    yield "queue_holes_restart", elapsed


def _acknowledge_every_second(client: Client) -> int:
    """Lease everything, acknowledge what has an even offset, give the rest back; return how many were acknowledged."""
    link, topic = client.open_session().link, client.topics.describe(TOPIC)
    joined = link.call(JoinGroup(GROUP_NAME, [topic.id], MEMBER), client.deadline(60)).message
    assert isinstance(joined, JoinGroupReply)
    number = settled = 0
    rest: list[SettleItem] = []
    while True:
        reply = link.call(_acquire(joined.group, topic.id), client.deadline(60)).message
        assert isinstance(reply, AcquireReply)
        if not reply.grants:
            break
        for grant in reply.grants:
            even, odd = _halves(grant.ranges)
            number += 1
            item = SettleItem(topic.id, grant.partition, grant.lease, Settling.ACCEPT, even.tobytes())
            _settle(client, joined.group, number, item)
            settled += len(even)
            if len(odd):
                rest.append(SettleItem(topic.id, grant.partition, grant.lease, Settling.RETURN))
    for item in rest:
        number += 1
        _settle(client, joined.group, number, item)
    return settled


GROUP_NAME = f"default/{GROUP}"


def _acquire(group: GroupInfo, topic_id: int) -> Acquire:
    return Acquire(group.id, group.generation, MEMBER, [topic_id], max_records=AT_ONCE, max_bytes=LEAST_BYTES)


def _halves(ranges: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Return the even and the odd offsets of packed ranges, each as a range of its own."""
    bounds = unpack_ranges(ranges)
    offsets = np.concatenate([np.arange(start, end, dtype="<i8") for start, end in bounds.tolist()])
    singles = np.stack([offsets, offsets + 1], axis=1)
    return singles[offsets % 2 == 0], singles[offsets % 2 == 1]


def _settle(client: Client, group: GroupInfo, number: int, item: SettleItem) -> None:
    request = Settle(group.id, group.generation, MEMBER, number, [item])
    reply = client.open_session().link.call(request, client.deadline(60)).message
    assert isinstance(reply, SettleReply)
    if reply.results != [None]:
        raise VerificationError(f"expected a settle to be done, found {reply.results}")


def _check(client: Client, settled: int) -> None:
    """Raise VerificationError unless the broker says the same of the group."""
    (topic,) = client.groups.describe(GROUP).topics
    (found,) = topic.partitions
    below = min(1, found.end_offset)  # offset 0 is settled, so the floor is behind it
    if (found.floor, found.settled, found.leased, topic.backlog) != (below, settled - below, 0, settled):
        raise VerificationError(f"expected {settled} of twice as many messages to be settled, found {found}")
