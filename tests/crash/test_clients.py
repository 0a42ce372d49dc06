"""One client shared by many threads or tasks, before a real broker that is killed, stopped and cut off under it.

Calls, producers, consumers and replays go through one proxy at once, on the blocking client, asyncio and trio. What they
were told and shown, and a full reading at the end, form one history, which must keep every promise.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.client.flavours import FLAVOURS, World
from tests.client.test_real_broker import run
from tests.client.test_silence import impatient
from tests.crash.test_kill import PARTITIONS, TOPIC, as_read, close_partitions, read_all, wait_until
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.history import AnyEvent, Durability, Fault, History, Invoke, Ok, violations
from tests.helpers.payloads import payload
from tests.helpers.proxy import Proxy, Rule

from tidelog import Client, DeliveryReport
from tidelog.protocol.api import Api

pytestmark = [pytest.mark.process, pytest.mark.crash]

CALLERS = 8
PRODUCERS = 2
CONSUMERS = 2
BETWEEN = 30
"""Operations that are acknowledged between one fault and the next."""

DURABILITIES: tuple[Durability, ...] = ("synced", "written")


class Storm:
    """What the callers do and note down, and what is done to them."""

    def __init__(self, world: World, broker: BrokerProcess, proxy: Proxy, seed: int) -> None:
        self.events: list[AnyEvent] = []
        self.rules: list[Rule] = []
        self.acknowledged = self.shown = self.replays = 0
        self.is_stopping = False
        self._world, self._broker, self._proxy = world, broker, proxy
        self._chance = random.Random(seed)
        self._readers: list[Any] = []

    async def blow(self, client: Any, name: str) -> None:
        """Run everything at once until the last fault is over."""
        consumers = [client.consumer(TOPIC, start="earliest") for _ in range(CONSUMERS)]
        callers = [partial(self._produce, client, f"{name}-{at}", self._chance.random()) for at in range(CALLERS)]
        callers += [partial(self._gather, client, f"{name}-p{at}", self._chance.random()) for at in range(PRODUCERS)]
        others = [partial(self._replay, client), partial(self._trouble, consumers)]
        await self._world.at_once(*callers, *[partial(self._watch, each) for each in consumers], *others)
        for consumer in consumers:
            await consumer.close()
        self.is_stopping = False

    async def _produce(self, client: Any, name: str, seed: float) -> None:
        chance, first = random.Random(seed), 0
        while not self.is_stopping:
            count = chance.choice((1, 1, 1, 2, 30))
            key = chance.choice((None, "k0", "k1"))
            invoke = Invoke(
                at_ns=time.monotonic_ns(),
                operation=f"{name}-{first}",
                producer=name,
                first=first,
                count=count,
                key=key,
                priority=chance.choice((4, 4, 9)),
                durability=chance.choice(DURABILITIES),
            )
            self.events.append(invoke)
            values = [payload(name, first + at, chance.choice((20, 300))) for at in range(count)]
            where = chance.randrange(PARTITIONS) if key is None else None
            how = {"priority": invoke.priority, "partition": where, "durability": invoke.durability}
            if count == 1:
                receipts = [await client.produce(TOPIC, values[0], key=key, **how)]
            else:
                receipts = list(await client.produce_many(TOPIC, values, keys=[key] * count if key else None, **how))
            (partition,) = {receipt.partition for receipt in receipts}
            offsets = [receipt.offset for receipt in receipts]
            told = Ok(
                at_ns=time.monotonic_ns(),
                operation=invoke.operation,
                partition=f"{TOPIC}/{partition}",
                offsets=offsets,
            )
            self.events.append(told)
            self.acknowledged += 1
            first += count

    async def _gather(self, client: Any, name: str, seed: float) -> None:
        """Send through a producer, which gathers batches and keeps several on their way."""
        chance, sent = random.Random(seed), 0
        async with client.producer(linger=0.002, on_delivery=self._delivered) as producer:
            while not self.is_stopping:
                for _ in range(chance.choice((1, 5, 30))):
                    key, priority = chance.choice((None, "k0")), chance.choice((4, 4, 4, 9))
                    operation = f"{name}-{sent}"
                    self.events.append(
                        Invoke(
                            at_ns=time.monotonic_ns(),
                            operation=operation,
                            producer=name,
                            first=sent,
                            key=key,
                            priority=priority,
                        )
                    )
                    value = payload(name, sent, chance.choice((20, 300)))
                    await producer.send(TOPIC, value, key=key, priority=priority, tag=operation)
                    sent += 1
                await producer.flush()
                self.acknowledged += 1

    def _delivered(self, report: DeliveryReport) -> None:
        assert report.receipts is not None, report
        for tag, receipt in zip(report.tags, report.receipts, strict=True):
            self.events.append(
                Ok(
                    at_ns=time.monotonic_ns(),
                    operation=str(tag),
                    partition=f"{TOPIC}/{receipt.partition}",
                    offsets=[receipt.offset or 0],
                )
            )

    async def _watch(self, consumer: Any) -> None:
        following: dict[int, int] = {}
        async for message in consumer:
            assert message.offset == following.setdefault(message.partition, message.offset), "skipped or went back"
            following[message.partition] += 1
            self.events.append(as_read(message, final=False))
            self.shown += 1

    async def _replay(self, client: Any) -> None:
        while not self.is_stopping:
            async with client.replay(TOPIC) as replay:
                ranges = await replay.ranges()
                found = [message async for message in replay.messages()]
            assert len(found) == sum(end - start for start, end in ranges.values())
            self.events += [as_read(message, final=False) for message in found[-50:]]
            self.replays += 1

    async def _trouble(self, consumers: list[Any]) -> None:
        try:
            faults: list[Callable[[], object]] = [self._cut, self._kill, self._hole, self._pause]
            self._chance.shuffle(faults)
            for fault in faults:
                await self._world.elsewhere(partial(self._wait_for_progress, fault.__name__))
                await self._world.elsewhere(fault)
            await self._world.elsewhere(partial(self._wait_for_progress, "the end"))
        finally:
            self.is_stopping = True
            for consumer in consumers:
                consumer.stop()

    def _wait_for_progress(self, what: str) -> None:
        goals = self.acknowledged + BETWEEN, self.shown + BETWEEN, self.replays + 1
        wait_until(
            lambda: self.acknowledged >= goals[0] and self.shown >= goals[1] and self.replays >= goals[2],
            f"progress before {what}, beyond {goals}",
        )

    def _kill(self) -> None:
        self._broker.kill()
        self.events.append(Fault(kind="kill", at_ns=time.monotonic_ns()))
        self._broker.start()

    def _cut(self) -> None:
        self.rules += [
            self._proxy.cut(api, replies=self._chance.random() < 0.7, after=self._chance.randrange(5))
            for api in (Api.PRODUCE, Api.FETCH, Api.PRODUCE, Api.LIST_OFFSETS)
        ]

    def _hole(self) -> None:
        self._proxy.black_hole()

    def _pause(self) -> None:
        self._broker.pause()
        threading.Event().wait(0.5)  # nothing can be seen of time that passes for a process that stands still
        self._broker.resume()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_shared_client_in_a_storm(tmp_path: Path, soak: int, flavour: str) -> None:
    """Kills, cuts between request and reply, black holes and stops under many callers of one client, its consumers and
    its replays: nothing acknowledged or shown is lost, doubled, changed or out of order, and no call fails."""
    history: list[AnyEvent] = []
    with (
        BrokerProcess(tmp_path / "data") as broker,
        Proxy(*broker.address) as proxy,
        impatient(quiet_s=0.5, answer_s=1),
    ):
        with Client(broker.url) as direct:
            direct.topics.create(TOPIC, partitions=PARTITIONS)

        async def body(world: World) -> None:
            async with world.client(proxy.url, timeout=60) as client:
                for number in range(soak):
                    storm = Storm(world, broker, proxy, seed=number)
                    await storm.blow(client, f"round{number}")
                    history.extend(storm.events)
                    assert any(rule.fired for rule in storm.rules)

        run(flavour, body)
        history += close_partitions(broker.url)
        final = read_all(broker.url)
        assert broker.starts == soak + 1
        assert broker.stop() == 0
    whole = History([*sorted(history, key=lambda event: event.at_ns), *final])
    assert violations(whole) == []
    assert sum(isinstance(event, Invoke) for event in history) == sum(isinstance(event, Ok) for event in history)
