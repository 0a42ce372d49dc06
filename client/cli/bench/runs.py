"""The benchmarks from their beginning to their figures."""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..options import OutputFormat
from ..output import StandardOutput
from ..progress import progress
from ..session import connected
from .account import Faults
from .crew import Crew
from .load import Sending, read_back, shares_of
from .payload import Payloads
from .queueing import Queueing, bench_group
from .reading import Follower, Reading
from .report import Conditions, Measured, show
from .topic import BenchTopic, bench_topic

if TYPE_CHECKING:
    from ...blocking.client import Client

LONE_MESSAGES = 1_000
"""Acknowledged one after the other."""

EACH_ONCE = (
    "every message acknowledged once, and settled by the group's account: none lost, repeated, altered or misplaced"
)

FILL_BATCH = 1_000
"""Messages of a call that only fills the topic."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be measured, and where."""

    url: str | None
    timeout_s: float
    topic: str | None
    partitions: int | None
    keep: bool
    messages: int
    size: int
    batch: int
    callers: int
    durability: str | None
    run: bytes

    @contextmanager
    def opened(self) -> Generator[tuple[Client, BenchTopic]]:
        """Give a client and the topic."""
        with connected(self.url, self.timeout_s) as client:
            client.ping()
            with bench_topic(client, self.topic, self.partitions, self.keep) as topic:
                yield client, topic

    def conditions(self, topic: BenchTopic, mode: str, durability: str) -> Conditions:
        """Return what the figures hold for."""
        batch = self.batch if mode in ("many", "messages") else None
        return Conditions(topic.name, len(topic.ends), mode, self.messages, self.size, batch, self.callers, durability)


def run_produce(plan: Plan, mode: str, output: OutputFormat) -> None:
    """Measure sending."""
    out = StandardOutput()
    with plan.opened() as (client, topic):
        sending = _sending(plan, client, topic, plan.callers, plan.batch, plan.durability)
        crew = Crew(plan.callers)
        with progress(f"producing to {topic.name}", plan.messages) as advance:
            crew.run({"many": sending.many, "send": sending.send, "single": sending.single}[mode], advance)
        faults = _read_back(plan, client, topic, sending)
    measured = Measured("produce", plan.messages, crew.seconds, crew.took_ns)
    show(out, plan.conditions(topic, mode, sending.promised), [measured], faults, output)


def run_consume(plan: Plan, mode: str, output: OutputFormat) -> None:
    """Measure reading."""
    out = StandardOutput()
    with plan.opened() as (client, topic):
        sending = _sending(plan, client, topic, 1, FILL_BATCH, None)
        with progress(f"producing to {topic.name}", plan.messages) as advance:
            Crew(1).run(sending.many, advance)
        reading = Reading(client, topic, plan.batch, plan.timeout_s)
        crew = Crew(plan.callers)
        with progress(f"consuming {topic.name}", plan.messages * plan.callers) as advance:
            crew.run(reading.messages if mode == "messages" else reading.batches, advance)
        faults = reading.compare(sending.payloads, sending.places)
    measured = Measured("consume", plan.messages * plan.callers, crew.seconds, crew.took_ns)
    show(out, plan.conditions(topic, mode, sending.promised), [measured], faults, output)


def run_latency(plan: Plan, output: OutputFormat) -> None:
    """Measure round trips: to the receipt, and to a follower."""
    out = StandardOutput()
    with plan.opened() as (client, topic):
        sending = _sending(plan, client, topic, plan.callers, 1, plan.durability)
        follower = Follower(client, topic)
        crew = Crew(plan.callers)
        try:
            with progress(f"producing to {topic.name}", plan.messages) as advance:
                crew.run(sending.single, advance)
            follower.wait_for(plan.messages, plan.timeout_s)
        finally:
            follower.close()
        faults = _read_back(plan, client, topic, sending)
    delivered = array("q")
    for came_ns, message in follower.came:
        sender = sending.payloads.sender_of(message.value)
        if sender is not None:
            delivered.append(came_ns - crew.begun_ns(*sender))
    measured = [
        Measured("acknowledge", plan.messages, crew.seconds, crew.took_ns),
        Measured("deliver", len(delivered), crew.seconds, delivered),
    ]
    show(out, plan.conditions(topic, "single", sending.promised), measured, faults, output)


def run_queue(plan: Plan, output: OutputFormat) -> None:
    """Measure a queue group: each message acknowledged on its own, and then one alone."""
    out = StandardOutput()
    lone_messages = min(plan.messages, LONE_MESSAGES)
    with plan.opened() as (client, topic), bench_group(client, topic) as group:
        sending = _fill(plan, client, topic)
        queueing = Queueing(client, topic, group, plan.messages, plan.batch, plan.timeout_s)
        crew = Crew(plan.callers)
        with progress(f"consuming {topic.name}", plan.messages) as advance:
            crew.run(queueing.each, advance)
        faults = queueing.compare(sending.payloads, sending.places)
        few = replace(plan, messages=lone_messages, run=secrets.token_bytes(len(plan.run)))
        sending = _fill(few, client, topic)
        alone, lone = Crew(1), Queueing(client, topic, group, lone_messages, 1, plan.timeout_s)
        with progress(f"acknowledging in {topic.name}", lone_messages) as advance:
            alone.run(lone.lone, advance)
        faults = faults + lone.compare(sending.payloads, sending.places)
        if not faults.any:
            lone.check_settled()
    measured = [
        Measured("consume", plan.messages, queueing.seconds, crew.took_ns),
        Measured("acknowledge", lone_messages, alone.seconds, alone.took_ns),
    ]
    show(out, plan.conditions(topic, "messages", sending.promised), measured, faults, output, EACH_ONCE)


def _fill(plan: Plan, client: Client, topic: BenchTopic) -> Sending:
    sending = _sending(plan, client, topic, 1, FILL_BATCH, plan.durability)
    with progress(f"producing to {topic.name}", plan.messages) as advance:
        Crew(1).run(sending.many, advance)
    return sending


def _read_back(plan: Plan, client: Client, topic: BenchTopic, sending: Sending) -> Faults:
    with progress(f"reading back {topic.name}", plan.messages) as advance:
        return read_back(client, topic, sending, plan.timeout_s, advance)


def _sending(
    plan: Plan, client: Client, topic: BenchTopic, callers: int, batch: int, durability: str | None
) -> Sending:
    shares = shares_of(plan.messages, callers)
    return Sending.of(client, topic, Payloads(plan.run, plan.size), shares, batch, durability)
