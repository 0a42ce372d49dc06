"""A test that only looks until something is there: its clock stands still, and what it said before arrives all the same."""

from __future__ import annotations

import pytest

from tests.client.flavours import eventually
from tidelog.testing import Broker


@pytest.mark.parametrize("count", [1, 2, 30])
def test_acknowledgements_are_told(count: int) -> None:
    """Of several messages, each said by itself: the first is told at once, the others with its answer."""
    with Broker() as broker, broker.client() as client, broker.client() as other:
        client.topics.create("orders", partitions=1)
        client.produce_many("orders", [b"x"] * count)
        with client.queue("orders", group="g") as queue:
            began = broker.clock.now()
            for message in queue.receive(count):
                message.ack()
            eventually(lambda: other.groups.describe("g").topics[0].partitions[0].floor == count)
            assert broker.clock.now() == began


def test_messages_of_a_producer_are_sent() -> None:
    """Without a linger each goes out when it is given, however many are on their way."""
    with Broker() as broker, broker.client() as client, broker.client() as other:
        client.topics.create("orders", partitions=1)
        with client.producer(linger=0) as producer:
            began = broker.clock.now()
            for number in range(100):
                producer.send("orders", b"%d" % number)
            eventually(lambda: other.topics.describe("orders").partitions[0].end_offset == 100)
            assert broker.clock.now() == began
