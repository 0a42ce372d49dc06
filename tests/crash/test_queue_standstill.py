"""The broker stands still (SIGSTOP) for longer than leases run: what members sent meanwhile was sent in time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.raw_peer import RawClient

from tidelog import Client
from tidelog.protocol.messages import (
    Acquire,
    AcquireReply,
    GroupSettings,
    JoinGroup,
    JoinGroupReply,
    LeaseRanges,
    MessageStates,
    MessageStatesReply,
    Metadata,
    MetadataReply,
    Settle,
    SettleItem,
    SettleReply,
    Settling,
)

pytestmark = [pytest.mark.process, pytest.mark.crash]

GROUPS = 8
LEASE_US = 1_000_000
STANDSTILL_S = 1.3


class Member:
    """A member of a group of its own, with one message that it was handed, at its limit."""

    def __init__(self, broker: BrokerProcess, topic_id: int, number: int) -> None:
        self.peer: RawClient = broker.connect()
        self.topic_id = topic_id
        settings = GroupSettings(visibility_timeout_us=LEASE_US, max_attempts=1)
        joined = self.peer.ask(JoinGroup(f"default/g{number}", [topic_id], 7, None, settings)).message
        assert isinstance(joined, JoinGroupReply)
        self.group = joined.group
        reply = self.peer.ask(Acquire(self.group.id, self.group.generation, 7, [topic_id], 1, max_wait_us=5_000_000))
        assert isinstance(reply.message, AcquireReply)
        (self.grant,) = reply.message.grants
        told = LeaseRanges(topic_id, 0, self.grant.lease, self.grant.ranges)
        self.peer.ask(Settle(self.group.id, self.group.generation, 7, 1, [], [told]))

    def settle(self, before: int) -> None:
        """Send so many other settles, of nothing, and that of the message."""
        for number in range(before):
            self.peer.send(Settle(self.group.id, self.group.generation, 7, 2 + number, []))
        item = SettleItem(self.topic_id, 0, self.grant.lease, Settling.ACCEPT, self.grant.ranges)
        self.peer.send(Settle(self.group.id, self.group.generation, 7, 2 + before, [item]))

    def result(self, before: int) -> str:
        """What that came to."""
        for _ in range(before):
            self.peer.reply()
        reply = self.peer.reply().message
        assert isinstance(reply, SettleReply)
        (result,) = reply.results
        return "OK" if result is None else result.error().code


@pytest.mark.parametrize("before", [0, 100])
def test_a_settle_that_was_sent_while_the_broker_stood_still_counts(tmp_path: Path, before: int) -> None:
    """Eight leases are over when the broker goes on, with what settles them in its sockets, behind other requests too:
    all are acknowledged, none is given up."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1)
        client.produce("orders", b"one")
        peer = broker.connect()
        metadata = peer.ask(Metadata(["default/orders"])).message
        assert isinstance(metadata, MetadataReply)
        topic_id = metadata.topics[0].id
        members = [Member(broker, topic_id, number) for number in range(GROUPS)]
        broker.pause()
        began = time.monotonic()
        for member in members:
            member.settle(before)
        time.sleep(STANDSTILL_S)
        broker.resume()
        assert time.monotonic() - began > LEASE_US / 1e6, "the leases are over"
        assert [member.result(before) for member in members] == ["OK"] * GROUPS
        states = peer.ask(MessageStates(topic_id, 0, 0)).message
        assert isinstance(states, MessageStatesReply)
        assert [state.state for state in states.states] == ["acknowledged"] * GROUPS
