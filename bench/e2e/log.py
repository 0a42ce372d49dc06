"""Figures of the log: `python -m bench.e2e.log [FIGURE ...]`. See bench/README.md for what each one times."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tidelog import Client

from .broker import BrokerProcess

WARM_UP_ROUND_TRIPS = 200
RESTART_LOG_BYTES = 1 << 30
LIST_LENGTH = 100_000
"""Messages given to one `produce_many`."""


class VerificationError(Exception):
    """What was read back is not what was sent."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a run is measured under."""

    messages: int
    size: int
    rounds: int
    durability: str


def unique_values(count: int, size: int, salt: int) -> list[bytes]:
    """Return values that name their place, so that a lost, repeated or moved one is seen."""
    filler = os.urandom(size)
    return [(b"%d:%d:" % (salt, index) + filler)[:size] for index in range(count)]


def verify(client: Client, topic: str, values: Sequence[bytes]) -> None:
    """Read the topic and compare every value in order. Raises VerificationError."""
    position = 0
    for batch in client.replay(topic, start="earliest"):
        found = list(batch.values)
        if found != list(values[position : position + len(found)]):
            raise VerificationError(f"values differ between offsets {position} and {position + len(found)}")
        position += len(found)
    if position != len(values):
        raise VerificationError(f"expected {len(values)} messages, read {position}")


def report(figure: str, samples: Sequence[float], unit: str, conditions: Conditions, digits: int = 0) -> None:
    """Print one figure as a JSON line."""
    shown = {
        "figure": figure,
        "value": round(statistics.median(samples), digits),
        "low": round(min(samples), digits),
        "high": round(max(samples), digits),
        "unit": unit,
        "rounds": len(samples),
        "size": conditions.size,
        "durability": conditions.durability,
    }
    print(json.dumps(shown), flush=True)


def round_trip(conditions: Conditions) -> None:
    """Time one `produce` at a time."""
    middles: list[float] = []
    tails: list[float] = []
    count = 2_000
    for number in range(conditions.rounds):
        with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
            client.topics.create("t", partitions=1)
            values = unique_values(count + WARM_UP_ROUND_TRIPS, conditions.size, number)
            times: list[float] = []
            for offset, value in enumerate(values):
                began = time.perf_counter()
                receipt = client.produce("t", value)
                times.append(time.perf_counter() - began)
                if receipt.offset != offset:
                    raise VerificationError(f"expected offset {offset}, found {receipt.offset}")
            times = sorted(times[WARM_UP_ROUND_TRIPS:])
            verify(client, "t", values)
            middles.append(times[count // 2] * 1e6)
            tails.append(times[count * 99 // 100] * 1e6)
    report("round_trip_p50", middles, "us", conditions)
    report("round_trip_p99", tails, "us", conditions)


def lists(values: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Cut values into the lists that `produce_many` is given."""
    return (values[at : at + LIST_LENGTH] for at in range(0, len(values), LIST_LENGTH))


def produce(conditions: Conditions) -> None:
    """Time `produce_many`."""
    rates: list[float] = []
    for number in range(conditions.rounds):
        values = unique_values(conditions.messages, conditions.size, number)
        with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
            client.topics.create("t", partitions=1)
            client.produce_many("t", [b"first"])
            began = time.perf_counter()
            for part in lists(values):
                client.produce_many("t", part)
            rates.append(len(values) / (time.perf_counter() - began))
            verify(client, "t", [b"first", *values])
    report("produce_lists", rates, "msg/s", conditions)
    report("produce_lists_bytes", [rate * conditions.size / 1e9 for rate in rates], "GB/s", conditions, 2)


def consume(conditions: Conditions) -> None:
    """Time `replay` by batch and by message."""
    by_batch: list[float] = []
    by_message: list[float] = []
    values = unique_values(conditions.messages, conditions.size, 0)
    with BrokerProcess("--durability", "written") as broker, Client(broker.url) as client:
        client.topics.create("t", partitions=1)
        for part in lists(values):
            client.produce_many("t", part)
        verify(client, "t", values)
        for _ in range(conditions.rounds):
            began, count = time.perf_counter(), 0
            for batch in client.replay("t", start="earliest"):
                count += len(batch.values)
            by_batch.append(count / (time.perf_counter() - began))
            began, size = time.perf_counter(), 0
            for message in client.replay("t", start="earliest").messages():
                size += len(message.value)
            by_message.append(count / (time.perf_counter() - began))
            if (count, size) != (len(values), sum(map(len, values))):
                raise VerificationError(f"expected {len(values)} messages, read {count} of {size} bytes")
    report("consume_batches", by_batch, "msg/s", conditions)
    report("consume_batches_bytes", [rate * conditions.size / 1e9 for rate in by_batch], "GB/s", conditions, 2)
    report("consume_messages", by_message, "msg/s", conditions)


def restart(conditions: Conditions) -> None:
    """Time a start after kill -9 with 1 GiB of log, and check that all of it is there."""
    times: list[float] = []
    size = 10_000
    values = unique_values(RESTART_LOG_BYTES // size, size, 0)
    with BrokerProcess("--durability", conditions.durability) as broker:
        with Client(broker.url) as client:
            client.topics.create("t", partitions=1)
            for at in range(0, len(values), 5_000):
                client.produce_many("t", values[at : at + 5_000])
        for _ in range(conditions.rounds):
            broker.kill()
            began = time.perf_counter()
            broker.start()
            with Client(broker.url) as client:
                client.ping()
                times.append(time.perf_counter() - began)
        with Client(broker.url) as client:
            verify(client, "t", values)
    report("restart_after_kill", times, "s", conditions, 2)


def idle(conditions: Conditions) -> None:
    """Measure a broker that nobody uses."""
    memory: list[float] = []
    busy: list[float] = []
    for _ in range(min(conditions.rounds, 3)):
        with BrokerProcess("--durability", conditions.durability) as broker:
            time.sleep(2)
            before, began = broker.cpu_seconds(), time.perf_counter()
            time.sleep(5)
            busy.append(100 * (broker.cpu_seconds() - before) / (time.perf_counter() - began))
            memory.append(broker.anonymous_bytes() / 1e6)
    report("idle_memory", memory, "MB", conditions, 1)
    report("idle_cpu", busy, "%", conditions, 2)


FIGURES: dict[str, Callable[[Conditions], None]] = {
    "round-trip": round_trip,
    "produce": produce,
    "consume": consume,
    "restart": restart,
    "idle": idle,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the figures asked for; 1 when what was read back differs from what was sent."""
    parser = argparse.ArgumentParser(prog="python -m bench.e2e.log", description=__doc__)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}; all when none is named")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of one value")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--durability", choices=["received", "written", "synced"], default="synced")
    options = parser.parse_args(arguments)
    unknown = set(options.figures) - set(FIGURES)
    if unknown:
        parser.error(f"expected figures of {', '.join(FIGURES)}, found {', '.join(sorted(unknown))}")
    conditions = Conditions(options.messages, options.size, options.rounds, options.durability)
    try:
        for name in options.figures or FIGURES:
            FIGURES[name](conditions)
    except VerificationError as error:
        print(f"no figure: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
