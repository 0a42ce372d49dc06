"""A broker for tests as a whole: how soon it is up, what it shows, who reaches it, and that nothing of it stays."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from functools import partial

import pytest
import trio

from tests.embedded.test_embedded import in_a_child
from tidelog import ForkedError
from tidelog.testing import Broker

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)


def test_it_is_up_in_no_time() -> None:
    """In under 50 ms, once its modules are loaded: the best of five, as other tests run beside this one."""
    with Broker():
        pass
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        with Broker():
            best = min(best, time.perf_counter() - began)
    assert best < 0.05


def test_a_naive_start_is_refused() -> None:
    """As every other time without a zone is."""
    with pytest.raises((ValueError, TypeError), match="start"):
        Broker(start=datetime(2025, 1, 1))


def test_what_is_configured_counts_wherever_it_stands() -> None:
    """What a test says of idle clients goes before the virtual clock's own word, by `config` and by section; what is no
    section, or no Faults, is refused where it is given."""
    for broker in (Broker(config={"broker": {"idle_timeout": "1m"}}), Broker(broker={"idle_timeout": "1m"})):
        assert broker._config.broker.idle_timeout_us == 60_000_000
        assert broker._config.broker.hello_timeout_us == 36_500 * 86_400_000_000
    with pytest.raises(TypeError, match="broker"):
        Broker(broker=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="faults: expected Faults, found 'x'"):
        Broker(faults="x")  # type: ignore[arg-type]


def test_a_port_for_subprocesses() -> None:
    """They go by the machine's clock, the broker by its own."""
    script = "import sys, tidelog; print(tidelog.Client(sys.argv[1]).produce('t', b'x', partition=0).timestamp)"
    with Broker(start=NEW_YEAR, listen=True) as broker:
        command = [sys.executable, "-c", script, broker.url]
        found = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (found.stdout, found.stderr) == ("2025-01-01 00:00:00+00:00\n", "")
        assert [message.append_time for message in broker.messages("t")] == [NEW_YEAR]


def test_what_there_is_to_look_at() -> None:
    """Messages in the order they came over all partitions; nothing waits for its time yet; no dead letters."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        for value in range(5):
            client.produce("t", b"%d" % value, partition=value % 3)
            broker.clock.advance(seconds=1)
        assert [message.value for message in broker.messages("t")] == [b"0", b"1", b"2", b"3", b"4"]
        assert broker.pending("t") == []
        assert broker.dead_letters("t") == []


def test_the_environment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test is the same wherever it runs."""
    monkeypatch.setenv("TIDELOG_TOPICS__PARTITIONS", "3")
    with Broker() as broker, broker.client() as client:
        client.produce("t", b"x")
        assert len(client.topics.describe("t").partitions) == 6


def test_a_closed_one_lets_nobody_hang() -> None:
    """A wait that is under way when the broker is closed ends with why."""
    caught: list[BaseException] = []
    with Broker(start=NEW_YEAR) as broker:
        client = broker.client()
        client.topics.create("t", partitions=1)

        def work() -> None:
            try:
                client.consumer("t").receive()
            except Exception as error:
                caught.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        broker.clock.advance()
    thread.join(30)
    assert not thread.is_alive()
    assert [type(error).__name__ for error in caught] == ["ClosedError"]


def test_a_loop_at_its_end_refuses_and_does_not_break(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a client's wait asks of it in that instant is a ConnectionError there, and the broker closes cleanly."""

    def closed(*_arguments: object) -> None:
        raise RuntimeError("Nursery is closed to new arrivals")

    async def nothing() -> None:
        pass

    with Broker(start=NEW_YEAR) as broker:
        embedded = broker._embedded
        assert embedded is not None
        with monkeypatch.context() as patched:
            patched.setattr(trio.lowlevel, "spawn_system_task", closed)
            with pytest.raises(ConnectionError, match="the broker is closed"):
                embedded.call(nothing)
        embedded.call(nothing)


A_HUNDRED = """
import gc, threading
from pathlib import Path
from tidelog.testing import Broker

def once():
    with Broker() as broker, broker.client() as client, client.producer() as producer:
        producer.send("t", b"x")
        broker.clock.advance(minutes=1)
        assert len(broker.messages("t")) == 1

def count():
    gc.collect()
    ours = [each for each in threading.enumerate() if each.name.startswith("tidelog")]
    return len(ours), len(list(Path("/proc/self/fd").iterdir()))

for _ in range(5):
    once()
before = count()
for _ in range(100):
    once()
assert count() == before, (before, count())
"""


def test_a_hundred_leave_nothing_behind() -> None:
    """One after the other, with clients, a producer and a reader: threads and descriptors are what they were. In a
    process of its own, where nothing that other tests left is closed meanwhile."""
    subprocess.run([sys.executable, "-c", A_HUNDRED], check=True, timeout=100)


def test_a_forked_child_is_told() -> None:
    """It does not hang on a clock that nobody moves there."""
    with Broker(start=NEW_YEAR) as broker, broker.client() as client:
        client.produce("t", b"x")

        def check() -> None:
            for use in (client.ping, broker.client, partial(client.produce, "t", b"x")):
                with pytest.raises(ForkedError):
                    use()
            with Broker() as other, other.client() as fresh:
                assert fresh.produce("t", b"x", partition=0).offset == 0

        assert in_a_child(check) == 0
        assert client.ping().node_id == "node-1"
