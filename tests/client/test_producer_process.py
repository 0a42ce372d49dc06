"""A producer in real processes: forks, signals, loops that end, a broker that is killed, one that never reads."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import trio

from tests.client.fake_broker import FakeBroker
from tests.client.test_process import in_child
from tests.helpers.broker_process import broker_process
from tests.helpers.proxy import Proxy
from tidelog import (
    AsyncClient,
    AsyncProducer,
    BufferFullError,
    Client,
    DeliveryReport,
    ForkedError,
    WrongLoopError,
)
from tidelog.client.blocking.session import Session
from tidelog.protocol.api import Api

ROOT = Path(__file__).parent.parent.parent


def run_program(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program against a fake broker of its own."""
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_an_inherited_producer_is_refused() -> None:
    """In the child it raises ForkedError and sends nothing; in the parent it goes on, and every message is there once."""
    with FakeBroker() as broker, Client(broker.url) as client, client.producer(linger=0.05) as producer:
        unused = client.producer()
        for at in range(10):
            producer.send("t", b"%d" % at)

        def child() -> None:
            for call in (lambda: producer.send("t", b"child"), producer.flush):
                with pytest.raises(ForkedError, match="before a fork"):
                    call()
            producer.close()
            with unused:
                unused.send("t", b"own")

        in_child(child)
        producer.send("t", b"10")
        producer.flush()
        assert sorted(broker.store.values("t"), key=lambda value: (value == b"own", len(value or b""), value)) == [
            *[b"%d" % at for at in range(11)],
            b"own",
        ]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_while_threads_send() -> None:
    """Children that are made at any moment do not hang, and the parent loses and repeats nothing."""
    with FakeBroker() as broker, Client(broker.url) as client, client.producer(batch_bytes=1_000) as producer:
        stop = threading.Event()
        sent = [0]

        def send() -> None:
            while not stop.is_set() and sent[0] < 50_000:
                producer.send("t", b"%06d" % sent[0])
                sent[0] += 1

        thread = threading.Thread(target=send)
        thread.start()
        while not sent[0]:
            time.sleep(0.001)
        for _ in range(10):

            def child() -> None:
                with pytest.raises(ForkedError):
                    producer.send("t", b"child")
                producer.close()

            in_child(child)
        stop.set()
        thread.join()
        producer.flush()
        assert broker.store.values("t") == [b"%06d" % at for at in range(sent[0])]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_first_send() -> None:
    """Another thread holds the producer's lock at that moment: the child does not wait for it, and has it as new."""
    with FakeBroker() as broker, Client(broker.url) as client, client.producer() as producer:
        make_session, is_inside, may_go_on = producer._make_session, threading.Event(), threading.Event()

        def make_slowly() -> Session:
            is_inside.set()
            assert may_go_on.wait(30)
            return make_session()

        producer._make_session = make_slowly
        thread = threading.Thread(target=lambda: producer.send("t", b"parent"))
        thread.start()
        assert is_inside.wait(10)

        def child() -> None:
            signal.alarm(10)
            producer._make_session = make_session
            producer.send("t", b"child")
            producer.close()

        in_child(child)
        may_go_on.set()
        thread.join()
        producer.flush()
        assert broker.store.values("t") == [b"child", b"parent"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_in_the_middle_of_a_first_read() -> None:
    """Another thread holds the reader's lock at that moment: in the child it was opened before the fork."""
    with FakeBroker() as broker, Client(broker.url) as client:
        client.produce("t", b"parent")
        consumer = client.consumer("t")
        reader, is_inside, may_go_on = consumer._reader, threading.Event(), threading.Event()
        lock = reader._turns._lock

        def hold() -> None:
            with lock:
                is_inside.set()
                assert may_go_on.wait(30)

        holder = threading.Thread(target=hold)
        holder.start()
        assert is_inside.wait(10)
        found: list[bytes | None] = []
        thread = threading.Thread(target=lambda: found.extend(each.value for each in consumer.receive(1, timeout=30)))
        thread.start()
        while reader._home is None:
            time.sleep(0.001)

        def child() -> None:
            signal.alarm(10)
            with pytest.raises(ForkedError):
                consumer.receive(1, timeout=5)
            consumer.close()

        in_child(child)
        may_go_on.set()
        holder.join()
        thread.join()
        consumer.close()
        assert found == [b"parent"]


def test_ctrl_c_at_any_moment_leaves_the_truth() -> None:
    """Interrupted at arbitrary points, sends and flushes store each taken message once, in order, and flush goes on."""
    run = run_program(
        """
import signal
from tests.client.fake_broker import FakeBroker
from tidelog import Client

with FakeBroker() as broker, Client(broker.url) as client, client.producer(batch_bytes=300, buffer_bytes=3000) as p:
    p.send("t", b"first")
    p.flush()
    sent, taken, interrupted, armed = 0, [], 0, [False]

    def strike(*_):
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.0013)
    while interrupted < 150:
        sent += 1
        try:
            armed[0] = True
            p.send("t", b"%06d" % sent, tag=sent if sent % 3 else None)
            taken.append(b"%06d" % sent)
            if sent % 50 == 0:
                p.flush()
            armed[0] = False
        except KeyboardInterrupt:
            interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    armed[0] = False
    p.flush(timeout=20)
    stored = broker.store.values("t")
    assert stored == sorted(stored, key=lambda value: (value != b"first", value))
    assert len(set(stored)) == len(stored)
    assert set(taken) <= set(stored), sorted(set(taken) - set(stored))
    assert p.statistics().buffered == 0
    print("fine", len(taken) > 100)
"""
    )
    assert run.stdout.splitlines() == ["fine True"], run.stderr


def test_a_program_that_ends_without_close_does_not_hang() -> None:
    """With messages that a broker never answers, and a callback: it warns and ends."""
    run = run_program(
        """
from tests.client.fake_broker import FakeBroker, Fault
from tidelog import Client
from tidelog.client.blocking.session import Session
from tidelog.protocol.api import Api

broker = FakeBroker()
broker.start()
broker.when(Api.PRODUCE, Fault.HANG, times=1000)
client = Client(broker.url)
producer = client.producer(on_delivery=print)
for at in range(10_000):
    producer.send("t", b"%d" % at)
print("ends")
"""
    )
    assert run.returncode == 0
    assert run.stdout.splitlines() == ["ends"]


def test_cancelling_every_task_of_asyncio_does_not_hang_the_producer() -> None:
    """Case 49: the background is cancelled with the others; the next message makes another, and nothing is lost."""

    async def body(broker: FakeBroker) -> None:
        async with AsyncClient(broker.url) as client:
            producer = client.producer()
            for at in range(5):
                await producer.send("t", b"%d" % at)
                others = asyncio.all_tasks() - {asyncio.current_task()}
                for task in others:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
            await producer.send("t", b"5")
            await asyncio.to_thread(broker.wait_until, lambda: len(broker.store.topics) == 1)
            await asyncio.wait_for(producer.close(), 10)
            assert broker.store.values("t") == [b"%d" % at for at in range(6)]

    with FakeBroker() as broker:
        asyncio.run(body(broker))


@pytest.mark.parametrize("second", ["asyncio", "trio"])
def test_a_producer_stays_in_its_loop(second: str) -> None:
    """Used in another event loop, at once or after the first has ended, it raises WrongLoopError and takes nothing."""

    async def first(client: AsyncClient) -> AsyncProducer:
        producer = client.producer(linger=1)
        await producer.send("t", b"first")
        await producer.send("t", b"second")

        async def elsewhere() -> None:
            with pytest.raises(WrongLoopError):
                await producer.send("t", b"elsewhere")
            with pytest.raises(WrongLoopError):
                await producer.flush()

        await asyncio.to_thread(trio.run if second == "trio" else lambda body: asyncio.run(body()), elsewhere)
        await producer.flush()
        return producer

    async def again(producer: AsyncProducer) -> None:
        with pytest.raises(WrongLoopError):
            await producer.send("t", b"later")

    with FakeBroker() as broker:
        producer = asyncio.run(first(AsyncClient(broker.url)))
        (trio.run if second == "trio" else lambda body, *args: asyncio.run(body(*args)))(again, producer)
        assert broker.store.values("t") == [b"first", b"second"]
        producer._is_closing = True  # nobody is left to close it


def test_a_broker_that_never_reads_fills_the_buffer_and_no_more() -> None:
    """Its socket takes what the kernel takes; then `send` waits and refuses, and memory stays bounded."""
    with FakeBroker() as broker, Client(broker.url) as client:
        producer = client.producer(buffer_bytes=8 << 20, max_block=0.2)
        producer.send("t", b"first")
        producer.flush()
        stuck, released = threading.Event(), threading.Event()
        broker._todo.append(lambda: (stuck.set(), released.wait(30)))
        broker._wake.send(b"x")
        assert stuck.wait(10)
        sent = 0
        value = b"x" * 10_000
        with pytest.raises(BufferFullError):  # noqa: PT012
            for _ in range(10_000):
                producer.send("t", value)
                sent += 1
        assert (8 << 20) - 200_000 <= sent * 10_000 <= 8 << 20
        released.set()
        producer.close()
        assert broker.store.values("t") == [b"first"] + [value] * sent


@pytest.mark.process
def test_cut_between_request_and_reply_each_message_is_stored_once(tmp_path: Path) -> None:
    """A proxy cuts replies and requests of a real broker's: all is stored once, in order."""
    with broker_process(tmp_path) as broker, Proxy("127.0.0.1", broker.port) as proxy:
        rules = [proxy.cut(Api.PRODUCE, replies=replies, after=after) for after in (2, 9) for replies in (True, False)]
        values = [b"%06d" % at + b"x" * 300 for at in range(4_000)]
        reports: list[DeliveryReport] = []
        with Client(proxy.url) as client, client.producer(batch_bytes=8_000, on_delivery=reports.append) as producer:
            for value in values:
                producer.send("t", value, partition=0)
        with Client(broker.url) as client, client.consumer("t", end="latest") as consumer:
            assert [message.value for message in consumer] == values
        offsets = [receipt.offset for report in reports for receipt in report.receipts or ()]
        assert offsets == list(range(4_000))
        assert all(rule.fired for rule in rules)


@pytest.mark.process
def test_a_broker_killed_under_a_producer_loses_repeats_and_reorders_nothing(tmp_path: Path) -> None:
    """kill -9 again and again while threads send at `synced`: what was reported is where it was reported."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("t", partitions=3)
        places: dict[tuple[int, int], object] = {}

        def report(told: DeliveryReport) -> None:
            assert told.error is None
            assert told.receipts is not None
            for tag, receipt in zip(told.tags, told.receipts, strict=True):
                places[receipt.partition, receipt.offset] = tag

        with client.producer(batch_bytes=4_000, on_delivery=report) as producer:
            stop = threading.Event()
            counts = [0, 0]

            def send(number: int) -> None:
                while not stop.is_set():
                    at = counts[number]
                    producer.send("t", b"%d-%06d" % (number, at), key=b"%d" % (at % 5), tag=(number, at))
                    counts[number] += 1
                    if at % 200 == 0:
                        time.sleep(0.001)

            threads = [threading.Thread(target=send, args=(number,)) for number in range(2)]
            for thread in threads:
                thread.start()
            for _ in range(3):
                before = len(places)
                for _ in range(1_000):
                    if len(places) > before + 2_000:
                        break
                    time.sleep(0.01)
                broker.restart()
            stop.set()
            for thread in threads:
                thread.join()
            producer.flush(timeout=60)
        check_places(client, places, counts)


def check_places(client: Client, places: dict[tuple[int, int], object], counts: list[int]) -> None:
    """Read everything back: each message once, where it was reported, in order for each sender and key."""
    last: dict[tuple[int, bytes], int] = {}
    found = 0
    with client.consumer("t", end="latest") as consumer:
        for message in consumer:
            number, at = map(int, (message.value or b"").split(b"-"))
            assert places[message.partition, message.offset] == (number, at)
            assert last.get((number, message.key or b""), -1) < at
            last[number, message.key or b""] = at
            found += 1
    assert found == len(places) == sum(counts)


def test_the_connection_of_a_closed_producer_is_closed() -> None:
    """After close no socket of it is left, and its thread ends."""
    before = {*threading.enumerate()}
    with FakeBroker() as broker, Client(broker.url) as client:
        with client.producer() as producer:
            producer.send("t", b"")
            link = producer._background.dispatcher.session.link  # type: ignore[union-attr]
            sock = link.current._socket  # type: ignore[union-attr]
            assert isinstance(sock, socket.socket)
        for _ in range(1_000):
            names = [thread.name for thread in {*threading.enumerate()} - before]
            if sock.fileno() == -1 and "tidelog-producer" not in names:
                return
            time.sleep(0.005)
        raise AssertionError(f"still there: {names}, {sock}")
