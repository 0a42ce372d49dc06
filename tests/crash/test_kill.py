"""A real broker killed under load, again and again: what drivers were told holds afterwards.

The drivers' own records (what they sent, what they were told) and a full reading at the end form one
history, which must keep every promise: nothing lost, invented, doubled, reordered or changed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.history import AnyEvent, Bounds, Fault, History, Invoke, Ok, Read, read_records, violations
from tests.helpers.payloads import payload
from tests.helpers.producing import PARTITIONS, ProducingProcess
from tests.helpers.proxy import Proxy, Rule

from tidelog.client.blocking.client import Client
from tidelog.client.errors import OutcomeUnknownError
from tidelog.client.message import Message
from tidelog.client.receipt import Receipt
from tidelog.protocol.api import Api

pytestmark = [pytest.mark.process, pytest.mark.crash]

TOPIC = "orders"
DRIVERS = 2
KILLS = 2


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60.0, every_s: float = 0.002) -> None:
    """Wait for something that another process does."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {timeout_s} s"
        threading.Event().wait(every_s)


def read_all(url: str) -> list[AnyEvent]:
    """Read every partition to its end: the bounds and every message."""
    events: list[AnyEvent] = []
    with Client(url) as client, client.replay(TOPIC) as replay:
        for partition, (start, end) in replay.ranges().items():
            events.append(Bounds(partition=f"{TOPIC}/{partition}", start=start, end=end))
        events += [as_read(message, final=True) for message in replay.messages()]
    return events


def close_partitions(url: str) -> list[AnyEvent]:
    """Wait until all that was acknowledged as written is shown too: a synced message behind it is."""
    events: list[AnyEvent] = []
    with Client(url) as client:
        for partition in range(PARTITIONS):
            name = f"closing{partition}"
            events.append(Invoke(at_ns=time.monotonic_ns(), operation=name, producer=name, first=0))
            offset = client.produce(TOPIC, payload(name, 0), partition=partition, durability="synced").offset
            assert offset is not None
            where = f"{TOPIC}/{partition}"
            events.append(Ok(at_ns=time.monotonic_ns(), operation=name, partition=where, offsets=[offset]))
    return events


def as_read(message: Message, *, final: bool) -> Read:
    """A message as an event."""
    return Read(
        at_ns=time.monotonic_ns(),
        partition=f"{TOPIC}/{message.partition}",
        offset=message.offset,
        value=message.value,
        key=None if message.key is None else message.key.decode(),
        priority=message.priority,
        final=final,
    )


class Watcher:
    """A consumer that reads along, over every restart, and notes what it is shown."""

    def __init__(self, url: str) -> None:
        self.seen: list[AnyEvent] = []
        self.error: BaseException | None = None
        self._client = Client(url)
        self._consumer = self._client.consumer(TOPIC, start="earliest", wait_for_topic=True)
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for message in self._consumer:
                self.seen.append(as_read(message, final=False))
        except BaseException as error:
            self.error = error

    def finish(self) -> list[AnyEvent]:
        """Stop, and return what was seen; raises what ended it before."""
        self._consumer.stop()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer did not stop"
        self._consumer.close()
        self._client.close()
        if self.error is not None:
            raise self.error
        return self.seen


def any_reached(drivers: list[ProducingProcess], goals: list[int]) -> bool:
    """Whether a driver has written down as much as its goal."""
    return any(driver.recorded_bytes() >= goal for driver, goal in zip(drivers, goals, strict=True))


def acknowledged(history: History) -> int:
    """How many messages drivers were told to be stored."""
    return sum(len(event.offsets) for event in history.events if isinstance(event, Ok))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("durability", ["synced", "written"])
def test_killed_under_load(tmp_path: Path, soak: int, durability: str) -> None:
    """A broker that is killed -9 at random moments loses, doubles, reorders and changes nothing it acknowledged.

    On the way every now and then a request, or its reply, is cut off.
    """
    rng = random.Random(7)
    faults: list[AnyEvent] = []
    cuts: list[Rule] = []
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path / "data"))
        proxy = stack.enter_context(Proxy(*broker.address))
        with Client(broker.url) as client:
            client.topics.create(TOPIC, partitions=PARTITIONS, durability=durability)
        drivers = [
            stack.enter_context(ProducingProcess(proxy.url, tmp_path / f"record{n}", TOPIC, f"driver{n}", n))
            for n in range(DRIVERS)
        ]
        watcher = Watcher(broker.url)
        for _ in range(KILLS * soak):
            cuts.append(proxy.cut(Api.PRODUCE, replies=rng.random() < 0.7, after=rng.randrange(10)))
            goals = [driver.recorded_bytes() + rng.randrange(5_000, 30_000) for driver in drivers]
            wait_until(partial(any_reached, drivers, goals), "progress of a driver")
            broker.kill()
            faults.append(Fault(kind="kill", at_ns=time.monotonic_ns()))
            broker.start()
        for driver in drivers:
            driver.finish()
        seen = watcher.finish()
        closing = close_partitions(broker.url)
        final = read_all(broker.url)
        assert broker.starts == KILLS * soak + 1
        assert broker.stop() == 0
    history = merged([driver.record for driver in drivers], [*faults, *seen, *closing], final)
    assert violations(history) == []
    assert len(history.faults) == KILLS * soak
    assert any(rule.fired for rule in cuts)
    assert acknowledged(history) > 100
    assert len(seen) > 100


def merged(records: list[Path], others: list[AnyEvent], final: list[AnyEvent]) -> History:
    """One history of what drivers wrote down, what else happened, and the final reading."""
    events = sorted([*read_records(records), *others], key=lambda event: event.at_ns)
    return History([*events, *final])


@pytest.mark.timeout(120)
def test_cut_between_request_and_reply(tmp_path: Path) -> None:
    """A batch whose reply was cut off is repeated by the client, stored once, and answered with its first offset."""
    with BrokerProcess(tmp_path / "data") as broker, Proxy(*broker.address) as proxy:
        with Client(proxy.url) as client:
            client.topics.create(TOPIC, partitions=1)
            assert client.produce(TOPIC, payload("p", 0)).offset == 0
            rule = proxy.cut(Api.PRODUCE, replies=True)
            receipt = client.produce(TOPIC, payload("p", 1))
            assert (rule.fired, proxy.connections, receipt.offset) == (1, 2, 1)
            assert client.produce(TOPIC, payload("p", 2)).offset == 2
        final = read_all(broker.url)
    invokes: list[AnyEvent] = [Invoke(operation=str(n), producer="p", first=n) for n in range(3)]
    oks: list[AnyEvent] = [Ok(operation=str(n), partition=f"{TOPIC}/0", offsets=[n]) for n in range(3)]
    assert violations(History([*invokes, *oks, *final])) == []


@pytest.mark.timeout(120)
@pytest.mark.parametrize("durability", ["synced", "written"])
def test_repeat_over_a_restart(tmp_path: Path, durability: str) -> None:
    """A batch that was stored, its reply lost and the broker killed, is answered with the same offset afterwards."""
    with BrokerProcess(tmp_path / "data") as broker, Proxy(*broker.address) as proxy:
        with Client(proxy.url) as client:
            client.topics.create(TOPIC, partitions=1)
            client.produce(TOPIC, payload("p", 0), durability=durability)
            rule = proxy.hold(Api.PRODUCE, replies=True)
            receipts: list[Receipt] = []
            thread = threading.Thread(
                target=lambda: receipts.append(client.produce(TOPIC, payload("p", 1), durability=durability))
            )
            thread.start()
            rule.wait_fired()  # it is stored, and the answer is in the proxy
            broker.kill()
            proxy.cut_all()
            proxy.heal()
            broker.start()
            thread.join(60)
            assert [receipt.offset for receipt in receipts] == [1]
        final = read_all(broker.url)
    assert [event.offset for event in final if isinstance(event, Read)] == [0, 1]


@pytest.mark.timeout(120)
def test_a_broker_that_stands_still(tmp_path: Path) -> None:
    """A call to a paused broker ends with its timeout, its outcome unknown; afterwards it is stored once at most."""
    with BrokerProcess(tmp_path / "data") as broker:
        with Client(broker.url) as client:
            client.topics.create(TOPIC, partitions=1)
            assert client.produce(TOPIC, payload("p", 0)).offset == 0
            broker.pause()
            with pytest.raises(OutcomeUnknownError):
                client.produce(TOPIC, payload("p", 1), timeout=0.5)
            broker.resume()
            assert client.produce(TOPIC, payload("p", 2)).offset in (1, 2)
        final = read_all(broker.url)
    invokes: list[AnyEvent] = [Invoke(operation=str(n), producer="p", first=n) for n in range(3)]
    assert violations(History([*invokes, Ok(operation="0", partition=f"{TOPIC}/0", offsets=[0]), *final])) == []


@pytest.mark.timeout(120)
def test_a_half_open_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a connection that loses everything a call without a limit asks, takes another, and is stored once."""
    monkeypatch.setattr("tidelog.client.blocking.session.QUIET_S", 0.3)
    monkeypatch.setattr("tidelog.client.core.vigil.ANSWER_S", 0.5)
    with BrokerProcess(tmp_path / "data") as broker, Proxy(*broker.address) as proxy, Client(proxy.url) as client:
        client.topics.create(TOPIC, partitions=1)
        assert client.produce(TOPIC, payload("p", 0)).offset == 0
        rules = [proxy.vanish(Api.PRODUCE, replies=False), proxy.vanish(Api.PRODUCE, replies=True)]
        assert client.produce(TOPIC, payload("p", 1), timeout=None).offset == 1
        assert client.produce(TOPIC, payload("p", 2), timeout=20).offset == 2
        assert [rule.fired for rule in rules] == [1, 1]
        assert proxy.connections == 3
    assert broker.starts == 1
