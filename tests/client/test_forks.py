"""Forks before a real broker: the child has a connection of its own, and the parent never notices."""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Iterator
from itertools import islice

import pytest

from tests.client.flavours import eventually
from tests.client.test_process import in_child
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog import Client, Consumer, ForkedError, Replay
from tidelog.protocol.api import Api
from tidelog.protocol.batch import BatchHeader

pytestmark = [
    pytest.mark.process,
    pytest.mark.usefixtures("children_find_the_tests"),
    pytest.mark.filterwarnings("ignore:This process:DeprecationWarning"),
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


def test_a_fork_while_a_call_is_in_flight(broker: BrokerProcess) -> None:
    """A thread of the parent waits for its receipt; the child uses and ends its client; the receipt comes all the same."""
    with Proxy(*broker.address) as proxy, Client(proxy.url) as client:
        client.topics.create("in-flight", partitions=1)
        client.produce("in-flight", b"parent 0")
        rule = proxy.hold(Api.PRODUCE, replies=True)
        offsets: list[int | None] = []
        thread = threading.Thread(target=lambda: offsets.append(client.produce("in-flight", b"parent 1").offset))
        thread.start()
        rule.wait_fired()

        def child() -> None:
            assert client.produce("in-flight", b"child").offset == 2
            client.close()

        in_child(child)
        assert proxy.connections == 2
        rule.release()
        thread.join(30)
        assert offsets == [1]
        assert client.produce("in-flight", b"parent 2").offset == 3
        assert proxy.connections == 2
        values = [message.value for message in client.replay("in-flight").messages()]
        assert values == [b"parent 0", b"parent 1", b"child", b"parent 2"]


def test_a_fork_in_the_middle_of_a_replay(broker: BrokerProcess) -> None:
    """The child is refused and may make its own; the parent reads on from where it was, over the same connection."""
    with Proxy(*broker.address) as proxy, Client(proxy.url) as client:
        client.topics.create("middle", partitions=1)
        values = [b"%d" % at for at in range(1000)]
        for first in range(0, 1000, 10):
            client.produce_many("middle", values[first : first + 10])
        replay = client.replay("middle")
        messages = replay.messages()
        assert [message.value for message in islice(messages, 25)] == values[:25]

        def child() -> None:
            with pytest.raises(ForkedError, match="replay was opened before a fork; make a new one in the child"):
                deque(messages)  # what was handed out before may still be there; nothing more is
            with pytest.raises(ForkedError):
                replay.ranges()
            assert [message.value for message in client.replay("middle").messages()] == values

        before = proxy.connections
        in_child(child)
        assert proxy.connections == before + 1
        assert [message.value for message in messages] == values[25:]
        assert proxy.connections == before + 1


def test_what_a_child_inherits_and_drops_is_left_alone(broker: BrokerProcess) -> None:
    """Readers that the child lets go, also when a thread of the parent was in the middle of them, are the parent's."""
    client = Client(broker.url)
    client.topics.create("dropped", partitions=1)
    client.produce_many("dropped", [b"0", b"1"])
    readers: dict[str, Consumer | Replay] = {"consumer": client.consumer("dropped"), "replay": client.replay("dropped")}
    consumer = readers["consumer"]
    assert isinstance(consumer, Consumer)
    first = next(iter(consumer))
    links = [client._sessions.sender().session.link, consumer._reader._line.link]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        """Be a thread that was reading when the process forked."""
        assert links[1] is not None
        with links[0]._lock, links[1]._lock:
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    del consumer

    def child() -> None:
        links.clear()
        readers.clear()
        gc.collect()
        client.close()

    in_child(child)
    done.set()
    thread.join(10)
    consumer = readers["consumer"]
    assert isinstance(consumer, Consumer)
    assert (first.value, next(iter(consumer)).value) == (b"0", b"1")
    assert client.produce("dropped", b"2").offset == 2
    assert next(iter(consumer)).value == b"2"
    client.close()


def work(client: Client, worker: int) -> None:
    """In a worker: produce with the client that was inherited or came in a pickle."""
    for at in range(20):
        client.produce("pool", b"%d-%d" % (worker, at))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing(broker: BrokerProcess, method: str) -> None:
    """Several workers and their parent produce at once with what was one client: each under a producer id of its own."""
    context = multiprocessing.get_context(method)
    with Client(broker.url) as client:
        client.topics.create("pool", partitions=1, exist_ok=True)
        start = client.produce("pool", b"first").offset
        workers = [context.Process(target=work, args=(client, worker)) for worker in range(3)]
        for worker in workers:
            worker.start()
        work(client, 9)
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
        found = [message for message in client.replay("pool").messages() if message.offset > (start or 0)]
        by_worker = {
            number: [m.value for m in found if (m.value or b"").startswith(number)] for number in (b"0-", b"9-")
        }
        assert len(found) == 80
        assert by_worker == {number: [number + b"%d" % at for at in range(20)] for number in by_worker}
        assert {message.offset for message in found} == set(range((start or 0) + 1, (start or 0) + 81))


def test_a_child_has_a_producer_id_of_its_own(broker: BrokerProcess) -> None:
    """Parent, child and grandchild write in turn: three producers, each with its own sequence, nothing taken for a
    repeat of another's."""
    with Client(broker.url) as client:
        client.topics.create("ids", partitions=1)

        def write(name: bytes) -> None:
            for at in range(2):
                client.produce("ids", name + b"%d" % at)

        def child() -> None:
            write(b"child ")
            in_child(lambda: write(b"grandchild "))
            write(b"child again ")

        write(b"parent ")
        in_child(child)
        write(b"parent again ")
        batches = list(client.replay("ids"))
        headers: list[BatchHeader] = [batch._records.header for batch in batches]
        ids = [header.producer_id for header in headers]
        assert [batch.values[0] for batch in batches][::2] == [
            b"parent 0",
            b"child 0",
            b"grandchild 0",
            b"child again 0",
            b"parent again 0",
        ]
        assert len(set(ids)) == 3
        assert ids[0] == ids[1] == ids[8] == ids[9]
        assert ids[2] == ids[3] == ids[6] == ids[7]
        assert [header.base_sequence for header in headers] == [0, 1, 0, 1, 0, 1, 2, 3, 2, 3]


def test_a_child_that_ends_by_itself_says_nothing(broker: BrokerProcess) -> None:
    """A child that leaves by sys.exit, with everything still open, neither hangs nor ends the parent's connections."""
    with Client(broker.url) as client:
        client.topics.create("leaves", partitions=1)
        client.produce("leaves", b"0")
        with client.consumer("leaves") as consumer:
            assert next(iter(consumer)).value == b"0"
            child = multiprocessing.get_context("fork").Process(target=client.produce, args=("leaves", b"1"))
            child.start()
            child.join(30)
            assert child.exitcode == 0
            eventually(lambda: client.topics.describe("leaves").partitions[0].end_offset == 2)
            assert next(iter(consumer)).value == b"1"
            client.produce("leaves", b"2")
            assert next(iter(consumer)).value == b"2"
            assert os.getpid() != child.pid
