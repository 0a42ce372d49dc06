"""`tidelog bench` against a real broker: figures, what it verifies, and what it leaves behind."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from typing import cast

import pytest
from tests.helpers.command_line import CommandLine

from tidelog.client.blocking.client import Client
from tidelog.client.receipt import ReceiptBatch

pytestmark = pytest.mark.process

FIGURES = ["calls", "seconds", "messages_per_s", "mb_per_s", "p50_us", "p90_us", "p99_us", "max_us"]
FAULTS = ["lost", "repeated", "reordered", "altered", "misplaced"]
KEYS = ["topic", "partitions", "mode", "messages", "size", "batch", "callers", "durability", "measured"]

RUNS = [
    ("produce", [], {"mode": "many", "batch": 1000, "callers": 1, "calls": 2}),
    ("produce", ["--batch", "100", "--callers", "3"], {"mode": "many", "batch": 100, "callers": 3, "calls": 21}),
    ("produce", ["--mode", "single", "--callers", "2"], {"mode": "single", "batch": None, "callers": 2, "calls": 2000}),
    ("produce", ["--mode", "send", "--callers", "2"], {"mode": "send", "batch": None, "callers": 2, "calls": 2000}),
    ("produce", ["--durability", "written", "--partitions", "3"], {"durability": "written", "partitions": 3}),
    ("consume", [], {"mode": "messages", "batch": 1000, "callers": 1}),
    ("consume", ["--callers", "2", "--partitions", "2"], {"callers": 2, "partitions": 2}),
    ("consume", ["--mode", "batches"], {"mode": "batches", "batch": None}),
]


def topics(tidelog: CommandLine) -> set[str]:
    """The names of all topics."""
    return {json.loads(line)["name"] for line in tidelog.run("topics", "list", "--output", "json").lines}


@pytest.mark.parametrize(("verb", "flags", "expected"), RUNS, ids=[" ".join([verb, *flags]) for verb, flags, _ in RUNS])
def test_a_run_says_its_figures(tidelog: CommandLine, verb: str, flags: list[str], expected: dict[str, object]) -> None:
    """Each way of measuring ends with a line of figures under the same names, no fault, and no topic left."""
    before = topics(tidelog)
    line = tidelog.run("bench", verb, "--messages", "2000", *flags, "--output", "json").out
    found = cast("dict[str, object]", json.loads(line))
    assert list(found) == [*KEYS, *FIGURES, *FAULTS]
    assert str(found["topic"]).startswith("tidelog-bench-")
    assert found["measured"] == verb
    assert (found["messages"], found["size"]) == (2000, 100)
    assert {name: found[name] for name in expected} == expected
    assert [found[name] for name in FAULTS] == [0] * 5
    assert cast(int, found["p50_us"]) <= cast(int, found["p99_us"]) <= cast(int, found["max_us"])
    assert topics(tidelog) == before


def test_latency_is_measured_to_the_receipt_and_to_the_reader(tidelog: CommandLine) -> None:
    """`bench latency` has one line for acknowledgements and one for deliveries, each of every message."""
    run = tidelog.run("bench", "latency", "--messages", "50", "--callers", "2", "--output", "json")
    lines = [cast("dict[str, object]", json.loads(line)) for line in run.lines]
    assert [(each["measured"], each["calls"]) for each in lines] == [("acknowledge", 50), ("deliver", 50)]
    assert all(cast(int, each["max_us"]) > 0 for each in lines)


def test_people_get_a_table(tidelog: CommandLine) -> None:
    """Without --output json the figures are a table, with what they hold for and what was verified."""
    lines = tidelog.run_process("bench", "produce", "--messages", "500", "--size", "1KiB").out.decode().splitlines()
    assert lines[0] == "500 messages of 1KiB, many of 1000, 1 caller, synced, 1 partition"
    assert lines[2].split("  ")[0] == "WHAT"
    assert re.match(r"produce +1 +\d+\.\d{3} +\d+ +\d+\.\d ", lines[3])
    assert lines[5].startswith("every reply verified, every message read back")


def test_a_topic_of_the_users_is_left_as_it_is(tidelog: CommandLine, topic: str) -> None:
    """A topic that was there is measured in and never deleted; what it held before does not disturb."""
    tidelog.run("produce", topic, stdin=b"mine\n")
    for verb in ("produce", "consume", "latency"):
        tidelog.run("bench", verb, "--topic", topic, "--messages", "100")
    lines = tidelog.run("consume", topic).out
    assert lines.startswith(b"mine\n")
    described = json.loads(tidelog.run("topics", "describe", topic, "--output", "json").out)
    assert described["partitions"][0]["end_offset"] == 301
    error = tidelog.run("bench", "produce", "--topic", topic, "--partitions", "2", code=2).error
    assert f"expected no --partitions: {topic} exists with 1" in error


def test_a_named_topic_is_made_and_kept_only_when_asked_for(tidelog: CommandLine) -> None:
    """A topic made under a given name is deleted again, or stays with --keep."""
    tidelog.run("bench", "produce", "--topic", "bench-gone", "--messages", "10")
    assert "bench-gone" not in topics(tidelog)
    tidelog.run("bench", "produce", "--topic", "bench-kept", "--messages", "10", "--keep")
    assert "bench-kept" in topics(tidelog)
    tidelog.run("topics", "delete", "bench-kept", "--yes")


def holds(tidelog: CommandLine, name: str) -> int:
    """How many messages a topic has, 0 where there is none."""
    found = map(json.loads, tidelog.run("topics", "list", "--output", "json").lines)
    return next((topic["messages"] for topic in found if topic["name"] == name), 0)


@pytest.mark.parametrize("mode", ["many", "send", "single"])
def test_ctrl_c_ends_a_run_and_removes_its_topic(tidelog: CommandLine, mode: str) -> None:
    """Ctrl-C ends with 130, without a word, and leaves no topic behind."""
    before = topics(tidelog)
    batch = ("--batch", "1") if mode == "many" else ()
    flags = (
        *batch,
        "--messages",
        "2000000",
        "--size",
        "20",
        "--mode",
        mode,
        "--callers",
        "4",
        "--topic",
        "bench-stopped",
    )
    with tidelog.start("bench", "produce", *flags) as process:
        while not holds(tidelog, "bench-stopped"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, b"", b"")
    assert topics(tidelog) == before


def test_no_broker_is_said_at_once(tidelog: CommandLine) -> None:
    """Without a broker a benchmark is one line, as every command."""
    for verb in ("produce", "consume", "latency"):
        error = tidelog.run("bench", verb, "--url", "127.0.0.1:1", code=1).error
        assert error.startswith("tidelog: CANNOT_CONNECT: ")


def test_a_size_the_topic_refuses_is_said(tidelog: CommandLine) -> None:
    """A refusal of the broker ends the run with its own words, and the topic goes all the same."""
    tidelog.run("topics", "create", "bench-small", "--set", "max_message_bytes=64")
    error = tidelog.run("bench", "produce", "--topic", "bench-small", "--messages", "5", code=1).error
    assert error.startswith("tidelog: MESSAGE_TOO_LARGE: ")
    tidelog.run("topics", "delete", "bench-small", "--yes")


@pytest.mark.parametrize(
    ("harm", "count"), [("twice", "20 repeated"), ("elsewhere", "20 lost"), ("backwards", "20 misplaced")]
)
def test_a_fault_is_no_figure(
    tidelog: CommandLine, monkeypatch: pytest.MonkeyPatch, topic: str, harm: str, count: str
) -> None:
    """A run in which messages are stored twice, lost, or not where they are said to be, ends with 1 and no figure."""
    honest = Client.produce_many

    def produce_many(self: Client, name: str, values: Sequence[bytes], *, durability: str | None) -> ReceiptBatch:
        if harm == "elsewhere":
            return honest(self, topic, values, durability=durability)
        receipts = honest(self, name, values[::-1] if harm == "backwards" else values, durability=durability)
        if harm == "twice":
            honest(self, name, values, durability=durability)
        return receipts

    monkeypatch.setattr(Client, "produce_many", produce_many)
    run = tidelog.run("bench", "produce", "--messages", "20", "--timeout", "1s", code=1)
    assert run.out == b""
    assert run.error.startswith("tidelog: VERIFICATION_FAILED: ")
    assert count in run.error
