"""Retry policies on the command line and in JSON: what they mean, what is refused, and what is stored."""

from __future__ import annotations

import json

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine

from tidelog import Backoff, Client, Retry
from tidelog.client.cli.retry_text import format_backoff, parse_backoff, read_retry

LINEAR = (0, 2, 20, 2_000, 5_000, 600_000)


@pytest.mark.parametrize(
    ("text", "backoff", "full"),
    [
        ("exponential:1s:10m", Backoff(), "exponential:1s:10m:2:0.2"),
        ("linear:5s", Backoff("linear", initial=5), "linear:5s:10m:2:0.2"),
        ("constant:30m", Backoff("constant", initial=1800, max=1800), "constant:30m:30m:2:0.2"),
        ("exponential:250ms:1h:1.5:0", Backoff(initial=0.25, max=3600, multiplier=1.5, jitter=0), None),
    ],
)
def test_a_backoff_is_kind_initial_and_longest_wait(text: str, backoff: Backoff, full: str | None) -> None:
    """What is left out is the usual one, and never below the initial wait; written out it reads the same."""
    assert parse_backoff(text) == backoff
    assert format_backoff(backoff) == (full or text)
    assert parse_backoff(full or text) == backoff


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("fibonacci:1s", "expected a backoff such as exponential:1s:10m (KIND:INITIAL[:MAX], of kind exponential, "),
        ("linear", "expected a backoff such as exponential:1s:10m"),
        ("linear:1", "backoff.initial: expected a duration such as 250ms, 30s, 5m or 7d, found '1'"),
        ("linear:1s:", "backoff.max: expected a duration such as 250ms, 30s, 5m or 7d, found ''"),
        ("linear:1s:500ms", "backoff.initial: expected at most backoff.max=0.5 s, found 1.0"),
        ("exponential:1s:1m:1e3", "backoff.multiplier: expected a number, found '1e3'"),
        ("exponential:1s:1m:2:20", "backoff.jitter: expected 0 to 1, found 20.0"),
        ("exponential:1s:1m:2:0.2:7", "expected a backoff such as exponential:1s:10m"),
    ],
)
def test_what_is_no_backoff_is_refused(text: str, message: str) -> None:
    """The error shows the form, or names the part."""
    with pytest.raises(ValueError) as refusal:
        parse_backoff(text)
    assert str(refusal.value).startswith(message)


def test_json_says_a_policy_by_its_fields() -> None:
    """All of them may be left out; null is none."""
    whole = {"kind": "constant", "initial": "5s", "max": "5s", "multiplier": 2, "jitter": 0}
    assert read_retry({"max_attempts": 5, "backoff": whole}) == Retry(5, Backoff("constant", 5, 5, 2, 0))
    assert read_retry({"backoff": {"kind": "linear"}}) == Retry(backoff=Backoff("linear"))
    assert read_retry({}) == Retry()
    assert read_retry(None) is None


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (3, "retry: expected an object with max_attempts, backoff, found 3"),
        ({"attempts": 3}, "retry: expected the fields max_attempts, backoff, found 'attempts'"),
        ({"max_attempts": "3"}, "retry.max_attempts: expected a whole number from 1 to 65535, found '3'"),
        ({"max_attempts": 0}, "retry.max_attempts: expected a whole number from 1 to 65535, found 0"),
        ({"backoff": "linear:1s"}, "retry.backoff: expected an object with kind, initial, max, multiplier, jitter, "),
        ({"backoff": {"initial": 1}}, "retry.backoff.initial: expected a duration such as 1s, found 1"),
        ({"backoff": {"jitter": True}}, "backoff.jitter: expected a number from 0 to 1, found True"),
    ],
)
def test_json_that_is_no_policy_is_refused(found: object, message: str) -> None:
    """The error names the field."""
    with pytest.raises(ValueError) as refusal:
        read_retry(found)
    assert str(refusal.value).startswith(message)


def policies(broker: BrokerProcess, topic: str) -> list[tuple[int, ...]]:
    """Return what each message of a topic carries."""
    found: list[tuple[int, ...]] = []
    with Client(broker.url) as client:
        for batch in client.replay(topic, start="earliest", end="latest"):
            retries = batch._records.routing.retries
            found += [(0,) * 6] * len(batch) if retries is None else retries.tolist()
    return found


@pytest.mark.process
def test_flags_give_every_message_a_policy(tidelog: CommandLine, topic: str, shared_broker: BrokerProcess) -> None:
    """Attempts alone, a backoff alone, both, neither."""
    tidelog.run("produce", topic, "--max-attempts", "7", stdin=b"a\nb\n")
    tidelog.run("produce", topic, "--backoff", "linear:5s", stdin=b"c\n")
    tidelog.run("produce", topic, "--max-attempts", "1", "--backoff", "constant:5s:5s:2:0", stdin=b"d\n")
    tidelog.run("produce", topic, stdin=b"e\n")
    assert policies(shared_broker, topic) == [
        (7, 0, 0, 0, 0, 0),
        (7, 0, 0, 0, 0, 0),
        LINEAR,
        (1, 3, 255, 2_000, 5_000, 5_000),
        (0, 0, 0, 0, 0, 0),
    ]


@pytest.mark.process
def test_each_json_line_may_have_its_own(tidelog: CommandLine, topic: str, shared_broker: BrokerProcess) -> None:
    """A field goes before the flags, null is none, and a line without it has what the flags say."""
    lines = [
        {"value": "0", "retry": {"max_attempts": 3}},
        {"value": "1", "retry": None},
        {"value": "2"},
    ]
    source = "\n".join(map(json.dumps, lines)).encode()
    tidelog.run("produce", topic, "--input", "json", "--backoff", "linear:5s", stdin=source)
    assert policies(shared_broker, topic) == [(3, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0), LINEAR]


@pytest.mark.process
def test_wrong_policies_are_wrong_usage_or_name_their_line(tidelog: CommandLine, topic: str) -> None:
    """A flag is refused before a line is read; a line of JSON leaves those before it stored."""
    error = tidelog.run("produce", topic, "--max-attempts", "0", stdin=b"a\n", code=2).error
    assert error.startswith("tidelog: USAGE: produce: invalid value for '--max-attempts': expected a whole number")
    error = tidelog.run("produce", topic, "--backoff", "linear", stdin=b"a\n", code=2).error
    assert "invalid value for '--backoff': expected a backoff such as exponential:1s:10m" in error
    source = b'{"value": "a"}\n{"value": "b", "retry": {"max_attempts": 70000}}\n'
    error = tidelog.run("produce", topic, "--input", "json", stdin=source, code=1).error
    assert error == (
        "tidelog: INVALID_INPUT: line 2 of standard input: retry.max_attempts: expected a whole number from 1 to 65535,"
        " found 70000 (1 message was stored)"
    )
    assert tidelog.run("consume", topic).out == b"a\n"
