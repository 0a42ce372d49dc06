"""Forks, signals, event loops that end: what a program does around its client."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.client.fake_broker import FakeBroker, Fault
from tidelog import AsyncClient, Client, ClosedError, ForkedError, WrongLoopError
from tidelog.protocol.api import Api
from tidelog.protocol.batch import BatchHeader

ROOT = Path(__file__).parent.parent.parent


def in_child(action: Callable[[], object]) -> None:
    """Run something in a forked child, and fail if it does."""
    pid = os.fork()
    if not pid:
        code = 1
        try:
            action()
            code = 0
        except BaseException as error:
            os.write(2, f"child: {error!r}\n".encode())
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_a_connection_and_a_producer_of_its_own() -> None:
    """Both go on after the fork; the child's messages carry another producer id, the parent's connection is untouched."""
    with FakeBroker() as broker, Client(broker.url) as client:
        client.produce("t", b"parent 0")

        def child() -> None:
            client.produce("t", b"child 0")
            client.produce("t", b"child 1")
            client.close()

        in_child(child)
        assert client.produce("t", b"parent 1").offset == 3
        assert broker.accepted == 2
        batches = [BatchHeader.read(batch) for batch in broker.store.topic("t").partitions[0].batches]
        assert batches[0].producer_id == batches[3].producer_id != batches[1].producer_id == batches[2].producer_id
        assert [batch.base_sequence for batch in batches] == [0, 0, 1, 1]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_fork_while_other_threads_are_in_calls() -> None:
    """The child does not wait for locks of threads it does not have."""
    with FakeBroker() as broker, Client(broker.url) as client:
        client.ping()
        rule = broker.when(Api.PING, Fault.HANG)

        def wait() -> None:
            with pytest.raises(ClosedError):
                client.ping()

        waiting = threading.Thread(target=wait)
        waiting.start()
        broker.wait_until(lambda: rule.fired == 1)
        lock = client._sessions.sender().session.lock
        with lock:
            in_child(lambda: client.produce("t", b"child", timeout=10))
        assert client.produce("t", b"parent").offset == 1
        client.close()
        waiting.join(10)
        assert not waiting.is_alive()


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_an_inherited_reader_is_refused() -> None:
    """A consumer or replay opened before the fork raises ForkedError in the child, and goes on in the parent."""
    with FakeBroker() as broker, Client(broker.url) as client:
        client.produce_many("t", [b"0", b"1"])
        consumer, replay, unused = client.consumer("t"), client.replay("t"), client.consumer("t", end="latest")
        assert next(iter(consumer)).value == b"0"
        assert replay.ranges() == {0: (0, 2)}

        def child() -> None:
            for read in (lambda: consumer.receive(), lambda: next(iter(replay))):
                with pytest.raises(ForkedError, match="before a fork"):
                    read()
            consumer.close()
            assert [message.value for message in unused] == [b"0", b"1"]

        in_child(child)
        assert next(iter(consumer)).value == b"1"
        assert [len(batch) for batch in replay] == [2]
        consumer.close()
        replay.close()


@pytest.mark.parametrize("call", ["ping", "receive"])
def test_ctrl_c_ends_a_wait_at_once_and_leaves_the_client_usable(call: str) -> None:
    """SIGINT in a blocking wait raises KeyboardInterrupt; the next call works over the same connection."""
    program = """
import sys, threading, os, signal
from tests.client.fake_broker import FakeBroker, Fault
from tests.client.flavours import eventually
from tidelog import Client
from tidelog.protocol.api import Api

with FakeBroker() as broker, Client(broker.url) as client:
    client.produce("t", b"0")
    consumer = client.consumer("t", start="latest")
    if sys.argv[1] == "receive":
        consumer.receive(timeout=0)
    accepted = broker.accepted
    rule = broker.when(Api.PING, Fault.HANG)

    def is_in_poll():
        with open(f"/proc/self/task/{os.getpid()}/syscall") as file:
            return file.read().split()[0] in ("7", "73", "271")

    def interrupt():
        eventually(is_in_poll)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        client.ping() if sys.argv[1] == "ping" else consumer.receive()
    except KeyboardInterrupt:
        print("interrupted")
    thread.join()
    client.produce("t", b"1")
    print([message.value for message in consumer.receive()] if sys.argv[1] == "receive" else client.get("t/0@1").value)
    print(broker.accepted - accepted)
"""
    run = subprocess.run(
        [sys.executable, "-c", program, call],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == ["interrupted", "[b'1']" if call == "receive" else "b'1'", "0"]


def test_ctrl_c_at_any_moment_loses_nothing() -> None:
    """Interrupted at arbitrary points, calls store each message at most once and later calls go on."""
    program = """
import os, signal, sys, threading, time
from tests.client.fake_broker import FakeBroker
from tidelog import Client

with FakeBroker() as broker, Client(broker.url) as client:
    client.produce("t", b"first")
    sent, acknowledged, interrupted, armed = 0, [], 0, [False]

    def strike(*_):
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, strike)
    signal.setitimer(signal.ITIMER_REAL, 0.003, 0.0017)
    while interrupted < 60:
        sent += 1
        try:
            armed[0] = True
            acknowledged.append((sent, client.produce("t", b"%d" % sent, timeout=10).offset))
            armed[0] = False
        except KeyboardInterrupt:
            interrupted += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
    last = client.produce("t", b"last", timeout=10)
    stored = broker.store.values("t")
    assert stored[last.offset] == b"last"
    assert len(set(stored)) == len(stored)
    assert all(stored[offset] == b"%d" % number for number, offset in acknowledged)
    print("fine", len(acknowledged) > 0)
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stdout.splitlines() == ["fine True"], run.stderr


def test_stop_from_a_signal_handler() -> None:
    """A handler that stops the consumer ends an idle loop, quietly."""
    program = """
import os, signal, threading
from tests.client.fake_broker import FakeBroker
from tidelog import Client

with FakeBroker() as broker, Client(broker.url) as client:
    client.produce("t", b"0")
    consumer = client.consumer("t")
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    for message in consumer:
        print(message.value)
        threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
    print(consumer.receive())
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == ["b'0'", "[]"]


def test_a_client_moves_to_another_loop_when_nothing_waits_in_the_first() -> None:
    """Made in one loop and used in the next, as in a test suite with a loop for each test: it opens a new connection."""
    with FakeBroker() as broker:
        client = AsyncClient(broker.url)
        for at in range(3):
            assert asyncio.run(_produce(client, b"%d" % at)) == at
        assert trio.run(_produce, client, b"3") == 3
        assert broker.accepted == 4
        trio.run(client.close)
        with pytest.raises(ClosedError):
            asyncio.run(_produce(client, b""))


async def _produce(client: AsyncClient, value: bytes) -> int | None:
    return (await client.produce("t", value)).offset


def test_a_client_in_use_in_one_loop_is_refused_in_another() -> None:
    """While a call waits in its loop, another loop gets WrongLoopError at once."""
    with FakeBroker() as broker:
        client = AsyncClient(broker.url)
        rule = broker.when(Api.PING, Fault.HANG)

        async def first() -> None:
            waiting = asyncio.create_task(client.ping())
            await asyncio.to_thread(broker.wait_until, lambda: rule.fired == 1)
            with pytest.raises(WrongLoopError, match="a client for each loop"):
                await asyncio.to_thread(trio.run, _produce, client, b"")
            await client.close()
            with pytest.raises(ClosedError):
                await waiting

        asyncio.run(first())


def test_a_consumer_stays_in_its_loop() -> None:
    """An AsyncConsumer opened in one loop is refused in another."""
    with FakeBroker() as broker:
        client = AsyncClient(broker.url)
        asyncio.run(_produce(client, b"0"))
        consumer = client.consumer("t")
        assert [message.value for message in asyncio.run(consumer.receive())] == [b"0"]
        with pytest.raises(WrongLoopError):
            trio.run(consumer.receive)
        asyncio.run(consumer.close())
        asyncio.run(client.close())


def test_the_blocking_client_works_inside_a_running_loop() -> None:
    """Called from a coroutine it blocks that loop, and works."""

    async def body() -> int | None:
        with FakeBroker() as broker, Client(broker.url) as client:
            return client.produce("t", b"").offset

    assert asyncio.run(body()) == 0
    assert signal.getsignal(signal.SIGINT) is not None
