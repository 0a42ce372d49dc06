"""The test that `dlq show --as-test` writes: which attempts it repeats, and that it is Python whatever is in a message."""

from __future__ import annotations

import ast
from datetime import UTC, datetime, timedelta

import pytest

from tidelog import AttemptHistory, Backoff, DeadLetter, DeadLetterAttempt, Failure, Message, Retry
from tidelog.client.cli.pytest_file import EXPIRED, UNKNOWN, earlier_attempts, written_test
from tidelog.client.headers import Headers

NOON = datetime(2025, 1, 14, 12, tzinfo=UTC)
HOSTILE = "\"\"\"\n'''\\{0}{letter_id}\x00\x1b[2J\u202e${HOME}"


def letter(
    attempts: int = 3,
    error: str | None = "boom",
    message: Message | None = None,
    reason: str = "rejected",
    retry: Retry | None = None,
) -> DeadLetter:
    """A dead letter that was given up at noon."""
    found = message or Message("orders.dlq", 0, 7, b"k", b"v", 0, 0)
    return DeadLetter(
        found, reason, error, "g", "orders", 2, 5, "orders/2@5", attempts, dead_lettered=NOON, retry=retry
    )


def attempt(minutes: int, outcome: str, number: int = 1, error: str | None = "x") -> DeadLetterAttempt:
    """One that ended so many minutes after noon."""
    failure = None if error is None else Failure("ValueError", error)
    return DeadLetterAttempt(outcome, number, NOON, NOON + timedelta(minutes=minutes), 0.0, failure)


def test_the_attempts_before_the_last_are_repeated() -> None:
    """Those that count, of this dead letter alone: none of before a redrive, and none of after it was given up."""
    history = AttemptHistory(
        [
            attempt(-9, "rejected", 1, "an earlier round"),
            attempt(-8, "redriven", 0, None),
            attempt(-7, "failed", 1, "one"),
            attempt(-6, "returned", 0, None),
            attempt(-5, "expired", 2, None),
            attempt(0, "rejected", 3, "three"),
            attempt(0, "dead-lettered", 0, None),
            attempt(1, "redriven", 0, None),
            attempt(2, "failed", 1, "a later round"),
        ]
    )
    assert earlier_attempts(letter(), history) == [("ValueError", "one"), EXPIRED]
    assert earlier_attempts(letter(attempts=1), history) == []


def test_what_is_not_known_any_more_failed_somehow() -> None:
    """The attempt is the same, whatever is left of the history."""
    assert earlier_attempts(letter(), None) == [UNKNOWN, UNKNOWN]
    kept = AttemptHistory([attempt(-1, "failed", 2, "two"), attempt(0, "rejected", 3)], is_complete=False)
    assert earlier_attempts(letter(), kept) == [UNKNOWN, ("ValueError", "two")]


@pytest.mark.parametrize(
    ("reason", "attempts", "limit"),
    [("max-attempts", 2, 2), ("expired", 3, 3), ("max-attempts", 9, 9), ("rejected", 2, 4), ("rejected", 9, 9)],
)
def test_the_limit_is_the_one_that_the_message_had(reason: str, attempts: int, limit: int) -> None:
    """Given up at its last attempt, that was the limit, whatever its group's is; refused before, it is the group's."""
    written = written_test(letter(attempts, reason=reason), None, None)
    assert f"            max_attempts={limit},\n" in written
    assert f"for the {attempts}. of {limit} times" in written


@pytest.mark.parametrize(
    ("reason", "attempts", "retry", "limit", "of_group"),
    [
        ("rejected", 2, Retry(9), 9, 4),
        ("rejected", 6, Retry(9), 9, 6),
        ("max-attempts", 9, Retry(9, Backoff("constant", initial=2.5, jitter=0)), 9, 9),
        ("max-attempts", 2, Retry(2), 2, 4),
        ("rejected", 2, Retry(None, Backoff("linear", initial=0.001)), 4, 4),
        ("max-attempts", 7, Retry(None, Backoff()), 7, 7),
    ],
)
def test_a_policy_of_its_own_is_the_messages_and_not_its_groups(
    reason: str, attempts: int, retry: Retry, limit: int, of_group: int
) -> None:
    """It is produced with the policy that it had, which goes before that of the group as it goes there."""
    written = written_test(letter(attempts, reason=reason, retry=retry), None, None)
    assert "from tidelog import Backoff, LeaseLostError, Retry\n" in written
    [policy] = [line.removeprefix("RETRY = ") for line in written.splitlines() if line.startswith("RETRY = ")]
    assert eval(policy, {"Retry": Retry, "Backoff": Backoff}) == retry
    assert "            retry=RETRY,\n" in written
    assert f"            max_attempts={of_group},\n" in written
    assert f"for the {attempts}. of {limit} times" in written


@pytest.mark.parametrize("value", [None, b"", b"x" * 1_000, HOSTILE.encode(), bytes(range(256)) * 3])
def test_it_is_python_whatever_a_message_holds(value: bytes | None) -> None:
    """Value, key, headers, errors: all of it literals, read back as they were."""
    headers = Headers([(HOSTILE, value), ("tidelog.dlq.group", b"g"), ("a", None), ("a", b"\xff")])
    message = Message("orders.dlq", 0, 7, value, value, -(1 << 62), 0, 9, headers)
    history = AttemptHistory([attempt(-1, "failed", 1, HOSTILE), attempt(0, "rejected", 2)])
    tree = ast.parse(written_test(letter(2, HOSTILE, message), history, None))
    found = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert ast.literal_eval(found["VALUE"]) == ast.literal_eval(found["KEY"]) == value
    assert ast.literal_eval(found["HEADERS"]) == [(HOSTILE, value), ("a", None), ("a", b"\xff")]
    assert ast.literal_eval(found["EARLIER_ATTEMPTS"]) == [("ValueError", HOSTILE)]
    assert ast.literal_eval(found["LAST_ERROR"]) == HOSTILE
    assert [ast.literal_eval(found[name]) for name in ("TOPIC", "GROUP", "PARTITION", "PRIORITY")] == [
        "orders",
        "g",
        2,
        9,
    ]
    assert isinstance(found["TIMESTAMP"], ast.Constant)
