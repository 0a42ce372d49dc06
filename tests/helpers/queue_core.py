"""A broker's core with its queue groups at work, asked in frames (`frame_door`), on a virtual clock and any `Files`.

Delivery logs are made with segments and snapshots so small that a test of some seconds goes through many.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from unittest.mock import patch

from tidelog.broker.clock import VirtualClock
from tidelog.broker.dead_letters.desk import DeadLetterDesk
from tidelog.broker.flow import Flow
from tidelog.broker.handlers import Context, handle
from tidelog.broker.metrics import Metrics, Values
from tidelog.broker.queues import queues
from tidelog.broker.queues.delivery_log import delivery_settings
from tidelog.broker.storage.files import Files, MemoryFiles
from tidelog.broker.storage.settings import LogSettings
from tidelog.broker.topics import TopicDefaults
from tidelog.broker.turns import Pace
from tidelog.protocol.messages import (
    BrokerLimits,
    MessageState,
    MessageStates,
    MessageStatesReply,
    SettleReply,
    Settling,
)
from tidelog.protocol.messages.groups import BackoffInfo, GroupSettings, GroupStart

from .broker_core import DEFAULTS, SECOND, Core, batch
from .faulty_files import FaultyFiles
from .frame_door import FrameDoor
from .queue_history import QueueEvent
from .queue_member import Held, Notebook, QueueMember

KIB = 1 << 10
MIB = 1 << 20
LIMITS = BrokerLimits(MIB, MIB, MIB, MIB, 8, 60_000_000, 1)


class QueueCore(Core):
    """One process of a broker with queue groups."""

    def __init__(
        self,
        files: Files | None = None,
        *,
        clock: VirtualClock | None = None,
        defaults: TopicDefaults = DEFAULTS,
        max_unsynced_bytes: int = 1 << 28,
    ) -> None:
        with patch.object(queues, "delivery_settings", small_settings):
            super().__init__(files, clock=clock, defaults=defaults, max_unsynced_bytes=max_unsynced_bytes)
        self.context = Context(
            topics=self.topics,
            groups=self.groups,
            queues=self.queues,
            dead_letters=DeadLetterDesk(self.services, self.topics, self.groups, self.queues),
            group_details=self.queues,
            time=self.time,
            timers=self.timers,
            offload=self.workers,
            metrics=Metrics(),
            gauges=_nothing,
            limits=LIMITS,
            node_id="node-1",
            version="1",
            auto_create=False,
        )
        self.now_us: Callable[[], int] = self.clock.wall_us
        """The time of connections, by which members count."""

    def door(self) -> FrameDoor:
        """Return a connection that has said Hello."""
        return FrameDoor(lambda door, message, bulk: handle(self.context, door, message, bulk), self.now_us)

    def next_process(self, files: Files, downtime_us: int = SECOND) -> QueueCore:
        """Start again on these files, some time later."""
        clock = VirtualClock(self.clock.wall_us() + downtime_us)
        limit = self.commit.max_unsynced_bytes
        return QueueCore(files, clock=clock, defaults=self.defaults, max_unsynced_bytes=limit)

    def states(self, topic_id: int, offset: int, partition: int = 0) -> dict[str, MessageState]:
        """Return group -> what it makes of a message."""
        call = self.door().ask(MessageStates(topic_id, partition, offset))
        self.settle()
        reply = call.message()
        assert isinstance(reply, MessageStatesReply)
        return {state.group: state for state in reply.states}


def small_settings(retention_us: int | None, max_unsynced_bytes: int) -> LogSettings:
    """Return the settings of delivery logs that roll and are frozen every few requests."""
    return dataclasses.replace(
        delivery_settings(retention_us, max_unsynced_bytes),
        segment_bytes=48 * KIB,
        snapshot_interval_bytes=8 * KIB,
        snapshot_min_interval_us=0,
    )


def filled(count: int = 10, size: int = 1) -> tuple[QueueCore, FaultyFiles]:
    """Return a core with a topic of one partition and some messages in one batch, and its files."""
    files = FaultyFiles(MemoryFiles())
    core = QueueCore(files)
    core.create("orders", 1)
    core.produce(core.topic("orders").partition(0), batch(*[b"%d" % number * size for number in range(count)]))
    return core, files


def settings(*, visibility_s: int = 30, max_attempts: int = 4, backoff_s: int = 1) -> GroupSettings:
    """Return settings of a group without chance in them."""
    backoff = BackoffInfo("constant", backoff_s * SECOND, backoff_s * SECOND, jitter_percent=0)
    return GroupSettings(visibility_timeout_us=visibility_s * SECOND, max_attempts=max_attempts, backoff=backoff)


def member_of(
    core: QueueCore,
    book: Notebook,
    number: int,
    *,
    group: str = "g",
    start: str = "earliest",
    given: GroupSettings | None = None,
) -> QueueMember:
    """Return a member that has joined a group."""
    member = QueueMember(book, group, number, core.topic(book.topic).id)
    member.connect(core.door())
    call = member.join(GroupStart(start), given)
    core.settle()
    member.joined(call)
    return member


def take(core: QueueCore, member: QueueMember, count: int) -> dict[int, int]:
    """Let a member acquire up to so many; returns offset -> attempts before this one, of what it holds now."""
    call = member.acquire(count)
    core.settle()
    assert not call.is_pending
    call.message()
    member.harvest()
    return {offset: held.earlier.get(offset, 0) for held in member.held.values() for offset in held.left}


def settle(core: QueueCore, member: QueueMember, what: Settling, offsets: Sequence[int], delay_us: int = -1) -> None:
    """Let a member settle some of what it holds, and wait until that is answered."""
    for held in [*member.held.values()]:
        mine = [offset for offset in offsets if offset in held.left]
        if mine:
            member.settle([(held, what, mine, delay_us)])
    core.settle()
    member.harvest()
    assert not member.requests


def codes(core: QueueCore, member: QueueMember, held: Held, what: Settling, offsets: Sequence[int]) -> list[str | None]:
    """Let a member settle some of a lease; return the codes of the errors. What takes a time takes ten seconds."""
    request = member.settle([(held, what, offsets, 10 * SECOND if what is Settling.RENEW else -1)])
    core.settle()
    assert request.call is not None
    reply = request.call.message()
    assert isinstance(reply, SettleReply)
    member.harvest()
    return [None if result is None else result.error().code for result in reply.results]


def notebook(core: QueueCore, topic: str = "orders") -> tuple[Notebook, list[QueueEvent]]:
    """Return where members write, and what they wrote."""
    events: list[QueueEvent] = []
    return Notebook(topic, core.clock.wall_us, events.append), events


def _nothing(_pace: Pace) -> Flow[Values]:
    yield from ()
    return {}
