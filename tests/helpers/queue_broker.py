"""What tests ask of a real broker about queue groups in raw frames: make them, move them, say what became of messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import msgspec

from tidelog import Client
from tidelog.protocol.delivery_states import DeliveryState
from tidelog.protocol.messages import (
    DescribeGroups,
    GroupMessages,
    JoinGroup,
    JoinGroupReply,
    Message,
    MessageStates,
    MessageStatesReply,
    Metadata,
    MetadataReply,
    ResetGroup,
)
from tidelog.protocol.messages.groups import BackoffInfo, GroupSettings, GroupStart

from .broker_process import BrokerProcess
from .history import Bounds
from .payloads import payload
from .queue_history import Final, Grouped, Moved, Published, QueueEvent, message_of

OPEN = (
    DeliveryState.AVAILABLE,
    DeliveryState.SUSPECT,
    DeliveryState.LEASED,
    DeliveryState.WAITING,
    DeliveryState.DEAD_LETTERING,
)


def queue_settings(*, visibility_s: float, max_attempts: int, backoff_s: float) -> GroupSettings:
    """Return settings of a group without chance in them."""
    backoff_us = int(backoff_s * 1e6)
    return GroupSettings(
        visibility_timeout_us=int(visibility_s * 1e6),
        max_attempts=max_attempts,
        backoff=BackoffInfo("constant", backoff_us, backoff_us, jitter_percent=0),
    )


class QueueBroker:
    """A real broker and one topic on it, as its groups see them."""

    def __init__(self, broker: BrokerProcess, topic: str, partitions: int = 1) -> None:
        self.broker = broker
        self.topic = topic
        self.events: list[QueueEvent] = []
        self.sequences: dict[str, int] = {}
        with Client(broker.url) as client:
            client.topics.create(topic, partitions=partitions)
        reply = self.ask(Metadata([f"default/{topic}"]))
        assert isinstance(reply, MetadataReply)
        self.topic_id = reply.topics[0].id

    def ask(self, message: Message) -> Message:
        """Ask over a connection of its own. Raises the error that is answered."""
        connection = self.broker.connect()
        try:
            reply = connection.ask(message)
        finally:
            connection.close()
        if reply.error is not None:
            raise reply.error
        assert reply.message is not None
        return reply.message

    def note(self, event: QueueEvent) -> None:
        """Add to the history, now."""
        self.events.append(stamped(event))

    def make_group(self, group: str, settings: GroupSettings) -> None:
        """Make a group that begins at the beginning."""
        assert settings.backoff is not None
        self.note(
            Grouped(group=group, max_attempts=settings.max_attempts or 4, backoff_us=[settings.backoff.initial_us])
        )
        member = int(time.monotonic_ns())
        reply = self.ask(JoinGroup(f"default/{group}", [self.topic_id], member, GroupStart("earliest"), settings))
        assert isinstance(reply, JoinGroupReply)

    def reset_group(self, group: str) -> None:
        """Let a group begin anew."""
        self.note(Moved(group=group, is_done=False))
        self.ask(ResetGroup(f"default/{group}", GroupStart("earliest")))
        self.note(Moved(group=group, is_done=True))

    def publish(
        self,
        client: Client,
        producer: str,
        count: int,
        *,
        partition: int | None = None,
        priorities: Sequence[int] | None = None,
    ) -> list[str]:
        """Publish the next messages of a producer; returns their names."""
        first = self.sequences.get(producer, 0)
        self.sequences[producer] = first + count
        values = [payload(producer, first + at, 40) for at in range(count)]
        began_ns = time.monotonic_ns()  # a worker may have it before the answer is here
        receipts = client.produce_many(self.topic, values, partition=partition, priority=priorities or 4)
        (where,) = {receipt.partition for receipt in receipts}
        names = [f"{producer}/{first + at}" for at in range(count)]
        offsets = receipts.offsets.tolist()
        kept = None if priorities is None else [*priorities]
        where_to = f"{self.topic}/{where}"
        event = Published(messages=names, partition=where_to, offsets=offsets, priorities=kept)
        self.events.append(stamped(event, began_ns))
        return names

    def unsettled(self, groups: Sequence[str]) -> list[str]:
        """Return some of what is neither acknowledged nor rejected, by group."""
        states = [state.value for state in OPEN]
        replies = [self.ask(GroupMessages(f"default/{group}", states, limit=10)) for group in groups]
        return [
            f"{message.group} {message.partition}@{message.offset} {message.state}"
            for reply in replies
            for message in reply.messages  # pyright: ignore
        ]

    def wait_until_settled(self, groups: Sequence[str], timeout_s: float = 60) -> None:
        """Wait until every message is acknowledged or rejected in every group; when nothing moves for so long, say what
        is not, and why."""
        before, deadline = [""], 0.0
        while left := self.unsettled(groups):
            if left != before:
                before, deadline = left, time.monotonic() + timeout_s
            if time.monotonic() >= deadline:
                described = self.ask(DescribeGroups([f"default/{group}" for group in groups], details=True))
                raise AssertionError(f"not settled within {timeout_s} s: {left}; {described}")
            threading.Event().wait(0.1)

    def finals(self, groups: Sequence[str]) -> list[Final]:
        """Ask what every message is in every group; notes the bounds of the log too."""
        found: list[Final] = []
        connection = self.broker.connect()
        with Client(self.broker.url) as client, client.replay(self.topic) as replay:
            for partition, (start, end) in replay.ranges().items():
                self.note(Bounds(partition=f"{self.topic}/{partition}", start=start, end=end))
            messages = [(each.partition, each.offset, each.value) for each in replay.messages()]
        for partition, offset, value in messages:
            reply = connection.ask(MessageStates(self.topic_id, partition, offset)).message
            assert isinstance(reply, MessageStatesReply)
            for state in reply.states:
                if state.group in groups:
                    final = Final(
                        group=state.group,
                        message=message_of(value),
                        partition=f"{self.topic}/{partition}",
                        offset=offset,
                        state=state.state,
                        attempts=state.attempts,
                    )
                    found.append(final)
        connection.close()
        return found


def stamped(event: QueueEvent, at_ns: int = 0) -> QueueEvent:
    """Return an event as of now, or of a time."""
    return msgspec.structs.replace(event, at_ns=at_ns or time.monotonic_ns())
