"""The pytest file that `dlq show --as-test` writes: it gives a dead letter to its handler again.

Everything of the message stands in it as a literal, so it needs no broker but the one it starts, and can be kept. What
a producer or a consumer wrote goes through `repr`: nothing of it is code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...protocol.dead_letter_headers import Reason
from .times import format_time_us

if TYPE_CHECKING:
    from ..dead_letter import AttemptHistory, DeadLetter
    from ..group import GroupSettings

LINE_BYTES = 60
"""Of a payload on one line."""

DELIVERED = frozenset({"failed", "rejected", "expired", "acknowledged"})
"""How attempts end in which the handler had the message."""

LAST_ATTEMPT = frozenset({Reason.MAX_ATTEMPTS.value, Reason.EXPIRED.value})
"""Why messages are given up that have reached their limit."""

UNKNOWN = ("", "what failed is not known any more")
EXPIRED = ("", "its lease ended by itself")

DEFAULT_MAX_ATTEMPTS = 4
DEFAULT_VISIBILITY_TIMEOUT_S = 30.0
"""Of a group that is gone."""

Attempt = tuple[str, str]
"""The type of an exception, and what it said."""

_TEMPLATE = '''"""Gives the dead letter {letter_id} to its handler again.

{origin}
Written by `tidelog dlq show {letter_id} --as-test`: fill in the import, and run it with pytest.
"""

from contextlib import suppress
from datetime import datetime

from tidelog import {imports}
from tidelog.testing import Broker

from handlers import handle  # <- the function that takes the message

TOPIC = {topic}
GROUP = {group}
PARTITION = {partition}
KEY = {key}
VALUE = {value}
HEADERS = {headers}
PRIORITY = {priority}
TIMESTAMP = {timestamp}
RETRY = {retry}

EARLIER_ATTEMPTS = {earlier}
"""How they failed: the exception's type, and what it said."""

LAST_ERROR = {last_error}
"""How the attempt ended that is made here again."""


def failure(kind, text):
    """Return an exception of a type that need not be imported."""
    module, _, name = kind.rpartition(".")
    return type(name, (Exception,), {{"__module__": module or "builtins"}})(text) if kind else text


def test_the_handler_takes_the_dead_letter():
    """The handler settles the message that it gets as it got it last: for the {attempt}. of {max_attempts} times."""
    with Broker() as broker, broker.client() as client:
        client.topics.create(TOPIC, partitions=PARTITION + 1)
        client.groups.create(
            GROUP,
            TOPIC,
            max_attempts={group_max_attempts},
            visibility_timeout={visibility_timeout!r},
            backoff={backoff!r},
        )
        receipt = client.produce(
            TOPIC,
            VALUE,
            key=KEY,
            headers=HEADERS,
            priority=PRIORITY,
            partition=PARTITION,
            timestamp=TIMESTAMP,
            retry=RETRY,
        )
        with client.queue(TOPIC, group=GROUP) as queue:  # codec=..., where the consumer has one
            for kind, text in EARLIER_ATTEMPTS:
                [message] = queue.receive()
                message.nack(failure(kind, text), delay=0)
            [message] = queue.receive()
            assert message.attempt == {attempt}
            handle(message)
            queue.flush()
            if client.states(receipt.id)[0].state == "leased":
                with suppress(LeaseLostError):  # which says that the handler gave it back, and it came again
                    message.ack(wait=True)  # the handler left it to who calls it
        [state] = client.states(receipt.id)
        assert state.state == "acknowledged", state
'''


def written_test(letter: DeadLetter, history: AttemptHistory | None, settings: GroupSettings | None) -> str:
    """Return the file; `settings` are the group's, None where it is gone."""
    from ..retry import Backoff  # here, because --help can do without

    earlier = earlier_attempts(letter, history)
    attempt = len(earlier) + 1
    max_attempts = _max_attempts(letter, attempt, settings)
    return _TEMPLATE.format(
        letter_id=letter.id,
        origin=_origin(letter),
        topic=repr(letter.topic),
        group=repr(letter.group),
        partition=letter.partition,
        key=_bytes(letter.key),
        value=_bytes(letter.value),
        headers=_lines([f"({name!r}, {_bytes(value, ' ' * 8)})" for name, value in letter.headers.items()]),
        priority=letter.priority,
        timestamp=_timestamp(letter.message.timestamp_us),
        earlier=_lines([repr(one) for one in earlier]),
        last_error=repr(letter.error),
        retry="None  # as its group says" if letter.retry is None else repr(letter.retry),
        imports="Backoff, LeaseLostError" + ("" if letter.retry is None else ", Retry"),
        attempt=attempt,
        max_attempts=_own_max_attempts(letter) or max_attempts,
        group_max_attempts=max_attempts,
        visibility_timeout=DEFAULT_VISIBILITY_TIMEOUT_S if settings is None else settings.visibility_timeout,
        backoff=Backoff() if settings is None else settings.backoff,
    )


def earlier_attempts(letter: DeadLetter, history: AttemptHistory | None) -> list[Attempt]:
    """Return how the attempts failed that a message had before the one after which it was given up.

    What happened to it afterwards, or before it was redriven last, is not of this dead letter.
    """
    known: list[Attempt] = []
    for one in () if history is None else history:
        is_later = letter.dead_lettered is not None and one.ended is not None and one.ended > letter.dead_lettered
        if one.number and one.outcome in DELIVERED and not is_later:
            failure = one.failure
            known.append(
                EXPIRED if one.outcome == "expired" or failure is None else _attempt(failure.kind, failure.text)
            )
    wanted = max(letter.attempts, 1) - 1
    known = known[-wanted - 1 : -1] if wanted else []
    return [UNKNOWN] * (wanted - len(known)) + known


def _max_attempts(letter: DeadLetter, attempt: int, settings: GroupSettings | None) -> int:
    """Return the limit that the group had. A message without one of its own that was given up at its last attempt tells
    it; of another one the group's of today is the nearest."""
    if letter.reason in LAST_ATTEMPT and _own_max_attempts(letter) is None:
        return attempt
    return max(DEFAULT_MAX_ATTEMPTS if settings is None else settings.max_attempts, attempt)


def _own_max_attempts(letter: DeadLetter) -> int | None:
    return None if letter.retry is None else letter.retry.max_attempts


def _attempt(kind: str, text: str) -> Attempt:
    """Return a failure whose type may be the name of one; what may not stands in its text."""
    return ("", f"{kind}: {text}") if "\0" in kind else (kind, text)


def _origin(letter: DeadLetter) -> str:
    why = {
        Reason.REJECTED.value: "which refused it",
        Reason.MAX_ATTEMPTS.value: "at its last attempt",
        Reason.EXPIRED.value: "at its last attempt, whose lease ended by itself",
    }.get(letter.reason or "", "for a reason of a later version")
    times = "1 attempt" if letter.attempts == 1 else f"{letter.attempts} attempts"
    return f"Its message is {letter.original_id}, given up by group {letter.group} after {times}, {why}."


def _timestamp(time_us: int) -> str:
    text = format_time_us(time_us)
    return "None  # outside the years that Python knows" if text is None else f"datetime.fromisoformat({text!r})"


def _lines(entries: Sequence[str]) -> str:
    return "[\n" + "".join(f"    {entry},\n" for entry in entries) + "]" if entries else "[]"


def _bytes(data: bytes | None, indent: str = " " * 4) -> str:
    """Return bytes as a literal; long ones on several lines."""
    if data is None or len(data) <= LINE_BYTES:
        return repr(data)
    pieces = [data[at : at + LINE_BYTES] for at in range(0, len(data), LINE_BYTES)]
    return "(\n" + "".join(f"{indent}{piece!r}\n" for piece in pieces) + f"{indent[:-4]})"
