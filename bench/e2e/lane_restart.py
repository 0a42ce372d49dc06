"""A restart over single-message batches in alternating priorities: how long until it serves, and what it takes for it.

By requests, as `queue_holes`: what is leased, settled and handed out first is known to the message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tidelog import Client
from tidelog.protocol.batch import iterate_headers
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
from tidelog.protocol.messages.groups import GroupStart
from tidelog.protocol.offset_ranges import unpack_ranges

from ..conditions import Conditions
from ..errors import VerificationError
from .broker import BrokerProcess
from .single_batches import AT_ONCE, PRIORITIES, VALUE_BYTES, SingleBatches, fill, place_name
from .topic import TOPIC, create_topics

GROUP = "workers"
GIB = 1 << 30
CONSUMED_SHARE = 20
MOST_CONSUMED = 100_000
"""Messages acknowledged before the restarts: a twentieth, and no more than takes some seconds."""

FIRST_REPLY = 1_000
REPLY_BYTES = 4 << 20
TAIL_BYTES = 128 << 20
"""Appended at full speed until kill -9: snapshots are at least a second apart, so most of it has to be read again."""

ANSWER_SECONDS = 60.0


@dataclass(slots=True)
class _State:
    """What the broker must know of the topic and of the group."""

    topic_id: int
    end: int = 0
    settled: int = 0
    """Messages of the highest lane that are acknowledged, the first ones."""
    leased: int = 0
    """Those behind them that members hold, who are gone."""

    def next_offsets(self, count: int) -> list[int]:
        """Return where the next messages of the highest lane are."""
        first = self.settled + self.leased
        return [place * len(PRIORITIES) for place in range(first, first + count)]

    def available(self) -> dict[int, int]:
        """Return priority -> how much is available of it."""
        each = self.end // len(PRIORITIES)
        taken = self.settled + self.leased
        return {priority: each - taken * (priority == max(PRIORITIES)) for priority in PRIORITIES}


class _Member:
    """A member of the group on a connection of its own."""

    def __init__(self, client: Client, topic_id: int, number: int) -> None:
        self._client, self._topic_id, self._number = client, topic_id, number
        self._link = client.open_session().link
        self._settles = 0
        request = JoinGroup(f"default/{GROUP}", [topic_id], number, GroupStart("earliest"))
        joined = self._link.call(request, client.deadline(ANSWER_SECONDS)).message
        assert isinstance(joined, JoinGroupReply)
        self._group: GroupInfo = joined.group

    def acquire(self, count: int) -> tuple[AcquireReply, list[tuple[int, int, bytes]]]:
        """Return what is handed out, and offset, priority and name of each of its batches."""
        request = Acquire(
            self._group.id,
            self._group.generation,
            self._number,
            [self._topic_id],
            max_records=count,
            max_bytes=REPLY_BYTES,
            max_wait_us=int(ANSWER_SECONDS / 2 * 1e6),
        )
        reply = self._link.call(request, self._client.deadline(ANSWER_SECONDS))
        assert isinstance(reply.message, AcquireReply)
        bulk = bytes(reply.bulk)
        found: list[tuple[int, int, bytes]] = []
        for at, header in iterate_headers(bulk):
            value = bulk[at + header.batch_length - VALUE_BYTES : at + header.batch_length]
            found.append((header.base_offset, header.priority, value[: len(place_name(0))]))
        return reply.message, found

    def acknowledge(self, reply: AcquireReply) -> None:
        """Settle all that was handed out. Raises VerificationError when it is refused."""
        self._settles += 1
        items = [SettleItem(self._topic_id, one.partition, one.lease, Settling.ACCEPT) for one in reply.grants]
        request = Settle(self._group.id, self._group.generation, self._number, self._settles, items)
        answer = self._link.call(request, self._client.deadline(ANSWER_SECONDS)).message
        assert isinstance(answer, SettleReply)
        if answer.results != [None] * len(items):
            raise VerificationError(f"expected settles to be done, found {answer.results}")


def lane_restart(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Fill a topic, consume a part, and time the start after a stop and the one after kill -9."""
    batches = SingleBatches()
    size = round(conditions.gib * GIB)
    with BrokerProcess("--durability", conditions.durability) as broker:
        with Client(broker.url) as client:
            create_topics(client)
        broker.stop()
        empty = _start(broker)
        with Client(broker.url) as client:
            state = _State(client.topics.describe(TOPIC).id)
            state.end = fill(client, state.topic_id, batches, 0, size)
            _consume(client, state)
        after_stop = _time_start(broker, broker.stop, state, 2)
        with Client(broker.url) as client:
            state.end = fill(client, state.topic_id, batches, state.end, min(TAIL_BYTES, size))
        after_kill = _time_start(broker, broker.kill, state, 3)
    yield "lane_restart_empty_serving", empty
    for name, times in (("stop", after_stop), ("kill", after_kill)):
        yield f"lane_restart_{name}_serving", times[0]
        yield f"lane_restart_{name}_acquire", times[1]
        yield f"lane_restart_{name}_memory", times[2]


def _start(broker: BrokerProcess) -> float:
    """Return the seconds from the start of the process until it serves."""
    began = time.perf_counter()
    broker.start()
    return time.perf_counter() - began


def _consume(client: Client, state: _State) -> None:
    """Acknowledge a part of the highest lane."""
    member = _Member(client, state.topic_id, 1)
    wanted = min(state.end // CONSUMED_SHARE, MOST_CONSUMED)
    while state.settled < wanted:
        reply, found = member.acquire(min(AT_ONCE, wanted - state.settled))
        count = _check_first(state, reply, found)
        member.acknowledge(reply)
        state.settled += count


def _time_start(
    broker: BrokerProcess, end: Callable[[], None], state: _State, number: int
) -> tuple[float, float, float]:
    """End the broker and start it; return the seconds until it serves and until an acquire is answered, and its peak of
    memory in MB. Raises VerificationError unless what is handed out first, and its account of the group, are right."""
    end()
    began = time.perf_counter()
    serving = _start(broker)
    with Client(broker.url) as client:
        reply, found = _Member(client, state.topic_id, number).acquire(FIRST_REPLY)
        elapsed = time.perf_counter() - began
        memory = broker.peak_bytes() / 1e6
        state.leased += _check_first(state, reply, found)
        _check_account(client, state)
    return serving, elapsed, memory


def _check_first(state: _State, reply: AcquireReply, found: list[tuple[int, int, bytes]]) -> int:
    """Return how many were handed out. Raises VerificationError unless they are the next of the highest lane."""
    ranges = [bounds for grant in reply.grants for bounds in unpack_ranges(grant.ranges).tolist()]
    offsets = [offset for start, end in ranges for offset in range(start, end)]
    expected = state.next_offsets(len(offsets))
    if not offsets or offsets != expected:
        raise VerificationError(f"expected offsets {expected[:3]} and so on, found {offsets[:3]}")
    if found != [(offset, max(PRIORITIES), place_name(offset)) for offset in offsets]:
        raise VerificationError(f"expected batches of priority {max(PRIORITIES)}, found {found[:3]}")
    return len(offsets)


def _check_account(client: Client, state: _State) -> None:
    """Raise VerificationError unless the broker counts what is stored, settled, leased and available in each lane."""
    (topic,) = client.groups.describe(GROUP).topics
    (found,) = topic.partitions
    counted = (found.end_offset, found.leased, topic.backlog)
    if counted != (state.end, state.leased, state.end - state.settled):
        raise VerificationError(f"expected {state}, found {found}")
    available = {lane.priority: lane.available for lane in topic.lanes}
    if available != state.available():
        raise VerificationError(f"expected {state.available()} by priority, found {available}")
