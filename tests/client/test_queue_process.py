"""Queues of real processes: workers that die, are stopped, paused and forked; brokers that are killed under them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, eventually, run
from tests.client.queues import Stage, done, queue_broker  # noqa: F401
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog import Client, ForkedError
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process

KILLED = """
import os, sys, tidelog
with tidelog.Client(sys.argv[1]) as client:
    with client.queue("jobs", "g", visibility_timeout=1, max_attempts=3, max_in_flight=10) as queue:
        for message in queue.messages(idle_timeout=3):
            print(message.offset, message.attempt, flush=True)
            if message.offset == 0:
                os._exit(9)
            message.ack()
"""


@contextmanager
def worker(script: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a process, and see to it that it is gone."""
    command = [sys.executable, "-c", script, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def test_a_message_that_kills_its_worker_goes_alone(tmp_path: Path) -> None:
    """Case 1: a worker dies in the handler of the first of ten messages, and is started until nothing is left: only
    that one is given up, after three attempts, and 1..9 are acknowledged."""
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        client.topics.create("jobs", partitions=1)
        client.produce_many("jobs", [b"%d" % at for at in range(10)])
        runs: list[list[str]] = []
        for _ in range(15):
            with worker(KILLED, broker.url) as process:
                out, _ = process.communicate(timeout=60)
            runs.append(out.splitlines())
            if process.returncode == 0 and not _unsettled(client):
                break
        assert runs[0] == ["0 1"]
        assert _unsettled(client) == []
        acknowledged = [line.split()[0] for lines in runs for line in lines if not line.startswith("0 ")]
        assert sorted(acknowledged, key=int) == [str(at) for at in range(1, 10)]
        assert [each.id for each in client.groups.messages("g", states=["dead-lettered"])] == ["jobs/0@0"]
        assert sum(line.startswith("0 ") for lines in runs for line in lines) in (3, 4)


def _unsettled(client: Client) -> list[str]:
    return [each.id for each in client.groups.messages("g")]


STOPPED = """
import sys, tidelog
with tidelog.Client(sys.argv[1]) as client, client.queue(sys.argv[2], sys.argv[3], max_in_flight=5) as queue:
    with tidelog.stop_on_signals(queue):
        for message in queue:
            print(message.offset, flush=True)
            if message.offset == 1:
                sys.stdin.readline()
            message.ack()
print("left")
"""

RUN = """
import sys, tidelog
def handle(message):
    print(message.offset, flush=True)
    if message.offset == 1:
        sys.stdin.readline()
with tidelog.Client(sys.argv[1]) as client, client.queue(sys.argv[2], sys.argv[3], max_in_flight=5) as queue:
    queue.run(handle)
print("left")
"""


@pytest.mark.parametrize("script", [STOPPED, RUN], ids=["loop", "run"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_the_message_in_hand(script: str, number: int, queue_broker: BrokerProcess) -> None:  # noqa: F811
    """It is acknowledged, the loop ends, and what was fetched ahead is available at once."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * 5)
        with worker(script, queue_broker.url, stage.topic, stage.group) as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["0\n", "1\n"]
            process.send_signal(number)
            time.sleep(0.1)
            out, _ = process.communicate("\n", timeout=20)
            assert (out, process.returncode) == ("left\n", 0)
        with client.queue(stage.topic, stage.group, max_in_flight=5) as queue:
            assert [(each.offset, each.attempt) for each in queue.messages(limit=3, idle_timeout=5)] == [
                (2, 1),
                (3, 1),
                (4, 1),
            ]


INTERRUPTED = """
import sys, time, tidelog
with tidelog.Client(sys.argv[1]) as client, client.queue(sys.argv[2], sys.argv[3], max_in_flight=5) as queue:
    for message in queue:
        if message.offset == 1:
            print("busy", flush=True)
            time.sleep(60)
        message.ack()
"""


def test_ctrl_c_in_a_handler_returns_everything(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """KeyboardInterrupt leaves the block: the message in hand is taken back, uncounted, and so is the rest."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * 5)
        with worker(INTERRUPTED, queue_broker.url, stage.topic, stage.group) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "busy\n"
            time.sleep(0.2)  # the hand-over is reported meanwhile
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == -signal.SIGINT
        with client.queue(stage.topic, stage.group, max_in_flight=5) as queue:
            found = [(each.offset, each.attempt) for each in queue.messages(limit=4, idle_timeout=5)]
            assert sorted(found) == [(1, 1), (2, 1), (3, 1), (4, 1)]


PAUSED = """
import sys, tidelog
lost = []
with tidelog.Client(sys.argv[1]) as client:
    queue = client.queue(sys.argv[2], sys.argv[3], max_in_flight=3, visibility_timeout=1, on_lease_lost=lost.append)
    held = list(queue.messages(limit=3))
    print("held", flush=True)
    sys.stdin.readline()
    for message in held:
        message.ack()
    try:
        queue.flush()
    except tidelog.LeaseLostError as error:
        print(error.code, queue.statistics().acknowledged, sum(len(each.offsets) for each in lost))
"""


def test_a_worker_that_stood_still_loses_its_leases(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """SIGSTOP for longer than the visibility timeout: its messages go to another, and its late settles change nothing
    and are told to it."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * 3)
        with worker(PAUSED, queue_broker.url, stage.topic, stage.group) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGSTOP)
            with client.queue(stage.topic, stage.group, max_in_flight=3) as queue:
                taken: dict[int, int] = {}
                for message in queue.messages(limit=3, idle_timeout=20):
                    taken[message.offset] = message.attempt
                    message.ack(wait=True)
                assert sorted(taken) == [0, 1, 2]
            process.send_signal(signal.SIGCONT)
            out, _ = process.communicate("\n", timeout=20)
            assert out == "LEASE_LOST 0 3\n"


def test_a_forked_child_is_refused(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """It can neither take nor settle what the parent has, by whatever form; the parent goes on undisturbed."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * 5)
        with client.queue(stage.topic, stage.group, max_in_flight=5) as queue:
            held = list(queue.messages(limit=3))
            held[0].ack(wait=True)
            read, write = os.pipe()
            child = os.fork()
            if not child:
                refused: list[str] = []
                for call in (queue.receive, queue.flush, held[1].ack, held[1].nack, lambda: held[1].ack(wait=True)):
                    try:
                        call()
                    except ForkedError:
                        refused.append("forked")
                    except BaseException as error:
                        refused.append(repr(error))
                try:
                    queue.close()
                    client.settle(held[2].lease_token, "ack")
                    refused.append("closed and settled by token")
                except BaseException as error:
                    refused.append(repr(error))
                os.write(write, json.dumps(refused).encode())
                os._exit(0)
            os.waitpid(child, 0)
            assert json.loads(os.read(read, 10_000)) == ["forked"] * 5 + ["closed and settled by token"]
            held[1].ack(wait=True)
            assert [message.offset for message in queue.receive(2, timeout=10)] == [3, 4]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_cut_connections_lose_and_double_nothing(flavour: str, queue_broker: BrokerProcess) -> None:  # noqa: F811
    """A proxy cuts between request and reply of settles and acquires, again and again: each message is acknowledged
    exactly once, and handed out once, since leases are kept over a reconnect."""

    async def body(world: World) -> None:
        stage = Stage(world, queue_broker)
        with Proxy(*queue_broker.address) as proxy:
            rules = [
                proxy.cut(api, replies=replies, after=after, times=1)
                for api in (Api.SETTLE, Api.ACQUIRE)
                for replies, after in ((True, 3), (False, 6), (True, 9), (True, 15))
            ]
            async with stage.client() as plain, world.client(proxy.url) as client:
                await stage.fill(plain, 400)
                seen: list[int] = []
                async with stage.queue(client, max_in_flight=10) as queue:
                    async for message in queue.messages(limit=400):
                        seen.append(message.offset)
                        await done(message.ack())
                    await queue.flush(30)
                assert sum(rule.fired for rule in rules) >= 6
                assert sorted(set(seen)) == list(range(400))
                assert len(seen) == 400
                assert (queue.statistics().acknowledged, queue.statistics().lost) == (400, 0)
                async with stage.queue(plain) as rest:
                    assert await rest.receive(timeout=0.2) == []

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_broker_that_is_killed_in_the_middle(flavour: str, tmp_path: Path) -> None:
    """kill -9 of the broker three times under a loop: it goes on by itself, everything ends acknowledged, and what was
    acknowledged durably never comes again."""
    durable: set[tuple[int, int]] = set()

    async def body(world: World, broker: BrokerProcess) -> None:
        async with world.client(broker.url) as client:
            await client.topics.create("t", partitions=2)
            await client.produce_many("t", [b"%d" % at for at in range(3000)])
            killer = threading.Thread(target=_kill_thrice, args=(broker,))
            killer.start()
            seen: dict[bytes, int] = {}
            async with client.queue("t", "g", max_in_flight=20, visibility_timeout=2) as queue:
                while len(seen) < 3000:
                    found = await queue.receive(50, timeout=40)
                    assert found, f"{len(seen)} of 3000 seen"
                    for message in found:
                        place = (message.partition, message.offset)
                        seen[message.value] = seen.get(message.value, 0) + 1
                        assert place not in durable
                        await done(message.ack())
                        if len(seen) % 50 == 0:
                            await done(message.ack(wait=True))
                            durable.add(place)
            await world.elsewhere(killer.join)
            assert sorted(map(int, seen)) == list(range(3000))
            async with client.queue("t", "g") as rest:
                assert await rest.receive(timeout=1) == []

    with broker_process(tmp_path) as broker:
        run(flavour, lambda world: body(world, broker))
    assert len(durable) >= 50


def _kill_thrice(broker: BrokerProcess) -> None:
    for _ in range(3):
        time.sleep(0.3)
        broker.restart()


def test_a_queue_that_is_dropped_warns_and_its_leases_end(queue_broker: BrokerProcess) -> None:  # noqa: F811
    """Nothing keeps a queue that nobody refers to: it warns, its thread ends, and others get its messages."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * 3)
        before = _threads()
        queue: Any = client.queue(stage.topic, stage.group, max_in_flight=3, visibility_timeout=1)
        held = queue.receive(timeout=10)
        assert _threads() == before + 1
        with pytest.warns(ResourceWarning, match="was not closed"):
            del queue
        eventually(lambda: _threads() == before)
        with client.queue(stage.topic, stage.group, max_in_flight=3) as other:
            found: list[int] = []
            for message in other.messages(limit=3, idle_timeout=10):
                found.append(message.offset)
                message.ack()
            assert sorted(found) == [0, 1, 2]
        assert held[0].value == b"x"


def _threads() -> int:
    return sum(thread.name == "tidelog-queue" for thread in threading.enumerate())
