"""A bit that rots on a real disk, seen from a client: reported with its range, passed over on request, never data."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.payloads import payload
from tests.helpers.stored_data import flip

from tidelog.client.blocking.client import Client
from tidelog.client.errors import CorruptError
from tidelog.protocol.segment_header import SEGMENT_HEADER_BYTES

pytestmark = [pytest.mark.process, pytest.mark.crash]

MESSAGES = 40
ROTTEN = 23


def rot(data_dir: Path, value: bytes) -> None:
    """Flip a bit of a stored value, in its segment's file."""
    (segment,) = data_dir.glob("partitions/*/messages/*.log")
    position = segment.read_bytes().index(value) + len(value) - 1
    with segment.open("r+b") as file:
        file.seek(position)
        file.write(bytes([value[-1] ^ 1]))


def offsets_read(client: Client, on_corrupt: str) -> list[int]:
    """Every offset a bounded reader is given."""
    with client.consumer("orders", start="earliest", end=MESSAGES, on_corrupt=on_corrupt) as consumer:
        return [message.offset for message in consumer]


def check_one_is_missing(client: Client) -> None:
    """All others are served; the one is passed over, or raised with its range, as the reader likes."""
    assert offsets_read(client, "skip") == [offset for offset in range(MESSAGES) if offset != ROTTEN]
    with pytest.raises(CorruptError) as caught:
        offsets_read(client, "raise")
    details = caught.value.details
    assert (details["start"], details["end"], details["next"]) == (ROTTEN, ROTTEN + 1, ROTTEN + 1)


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "stopped"])
def test_one_rotten_bit(tmp_path: Path, is_running: bool) -> None:
    """The one message it is in is CORRUPT with its range, all others are served, and so it stays over a restart."""
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1)
        for number in range(MESSAGES):
            assert client.produce("orders", payload("p", number)).offset == number
        if not is_running:
            broker.kill()
        rot(tmp_path / "data", payload("p", ROTTEN))
        if not is_running:
            broker.start()
        check_one_is_missing(client)
        assert client.produce("orders", b"more").offset == MESSAGES
        broker.restart()
        check_one_is_missing(client)


def problem_of(client: Client) -> str | None:
    """Why the group gives no leases."""
    problem = client.groups.describe("g").topics[0].partitions[0].problem
    return None if problem is None else problem.partition(":")[0]


def test_one_rotten_bit_of_deliveries(tmp_path: Path) -> None:
    """A group at work does not feel it; from the next start on it leases nothing, as what was acknowledged is not known
    any more, and says so; messages are read, and a reset begins anew."""
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.url) as client:
        client.topics.create("orders", partitions=1)
        client.produce_many("orders", [payload("p", number) for number in range(MESSAGES)])
        with client.queue("orders", group="g") as queue:
            for number, message in enumerate(queue.messages(limit=20)):
                message.ack(wait=True)
                if number == 9:
                    (segment,) = (tmp_path / "data").glob("partitions/*/delivery/*.log")
                    flip(segment, SEGMENT_HEADER_BYTES + 200)
        assert problem_of(client) is None
        broker.restart()
        assert problem_of(client) == "GROUP_DEGRADED"
        with client.queue("orders", group="g") as queue:
            assert queue.receive(timeout=0.3) == []
            client.groups.reset("g", to="earliest")
            assert [message.offset for message in queue.receive()] == [0]
        assert offsets_read(client, "raise") == [*range(MESSAGES)]
        assert problem_of(client) is None
