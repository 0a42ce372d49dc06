"""Calls about dead letters that are wrong: refused by what is wrong with them, before anything is done."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from tidelog import Client, InvalidGroupError
from tidelog.testing import Broker

VERBS = ("list", "redrive", "purge")
NAIVE = datetime(2025, 1, 1)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a broker with one dead letter; no call here is to change anything."""
    with Broker(topics={"partitions": 1}) as broker, broker.client() as connected:
        connected.produce("orders", b"a", headers={"source": "web"})
        with connected.queue("orders", "g") as queue:
            [message] = queue.receive()
            message.reject("poison")
        broker.clock.advance(seconds=1)
        yield connected
        assert [letter.id for letter in broker.dead_letters("orders")] == ["orders.dlq/0@0"]


def call(client: Client, verb: str, topic: Any = "orders", **given: Any) -> None:
    """Make a call, and take all that it gives."""
    letters: Any = client.dead_letters
    found = getattr(letters, verb)(topic, **given)
    if verb == "list":
        list(found)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"headers": 3}, TypeError, "headers: expected a mapping or pairs, found int"),
        ({"headers": "source=web"}, TypeError, "headers: expected a mapping or pairs, found str"),
        ({"headers": ["source"]}, TypeError, "headers: expected pairs of a name and a value, found 'source'"),
        ({"headers": {3: b"web"}}, TypeError, "headers: expected a str as a header's name, found int"),
        ({"headers": {"source": 3}}, TypeError, "headers['source']: expected bytes, str or None, found int"),
        ({"key": 5}, TypeError, "key: expected bytes, str or None, found int"),
        ({"reason": "bored"}, ValueError, "reason: expected rejected, max-attempts, expired, found 'bored'"),
        ({"reason": 3}, TypeError, "reason: expected rejected, max-attempts, expired, found 3"),
        ({"error": b"x"}, TypeError, "error: expected text that an error contains, found b'x'"),
        ({"group": 3}, TypeError, "group: expected a name as a string, found 3"),
        ({"group": ""}, InvalidGroupError, "expected a group name"),
        ({"start": 3}, TypeError, "start: expected a datetime, found int"),
        ({"end": NAIVE}, ValueError, "end: expected a datetime with a time zone"),
        ({"limit": 0}, ValueError, "limit: expected a whole number of 1 or more, found 0"),
        ({"limit": -1}, ValueError, "limit: expected a whole number of 1 or more, found -1"),
        ({"limit": True}, TypeError, "limit: expected a whole number of 1 or more, found True"),
        ({"limit": 1.5}, TypeError, "limit: expected a whole number of 1 or more, found 1.5"),
        ({"timeout": -1}, ValueError, "timeout: expected 0 or more seconds, found -1"),
        ({"topic": 3}, TypeError, "topic: expected text such as orders, or the id orders.dlq/2@7, found 3"),
        ({"topic": b"orders"}, TypeError, "topic: expected text such as orders, or the id orders.dlq/2@7, found b'or"),
    ],
)
def test_what_chooses_is_checked_alike(client: Client, verb: str, given: Any, kind: type[Exception], said: str) -> None:
    """By all three verbs, in the words that other calls have for it."""
    with pytest.raises(kind) as raised:
        call(client, verb, **given)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"rate": math.inf}, ValueError, "rate: expected a finite number above 0, or None for no limit, found inf"),
        ({"rate": 10**400}, ValueError, "rate: expected a finite number above 0, or None for no limit, found 1000"),
        ({"rate": math.nan}, ValueError, "rate: expected a finite number above 0, or None for no limit, found nan"),
        ({"rate": -1}, ValueError, "rate: expected a finite number above 0, or None for no limit, found -1"),
        ({"rate": 0}, ValueError, "rate: expected a finite number above 0, or None for no limit, found 0"),
        ({"rate": True}, TypeError, "rate: expected how many a second, found True"),
        ({"rate": "10"}, TypeError, "rate: expected how many a second, found '10'"),
        ({"max_redrives": -1}, ValueError, "max_redrives: expected a whole number from 0 to 1000000, found -1"),
        ({"as_new": "no"}, TypeError, "as_new: expected True or False, found 'no'"),
        ({"dry_run": "no"}, TypeError, "dry_run: expected True or False, found 'no'"),
        ({"on_progress": 3}, TypeError, "on_progress: expected a function that takes how many, found 3"),
    ],
)
def test_how_to_redrive_is_checked(client: Client, given: Any, kind: type[Exception], said: str) -> None:
    """Before anything is brought back."""
    with pytest.raises(kind) as raised:
        call(client, "redrive", **given)
    assert str(raised.value).startswith(said)


def test_how_to_purge_is_checked(client: Client) -> None:
    """Before anything is given up."""
    with pytest.raises(TypeError, match="dry_run: expected True or False"):
        call(client, "purge", dry_run="no")
    with pytest.raises(TypeError, match="on_progress: expected a function"):
        call(client, "purge", on_progress=3)


@pytest.mark.parametrize("verb", ["get", "attempts"])
@pytest.mark.parametrize("wrong", [3, None, b"orders.dlq/0@0", ["orders.dlq/0@0"]])
def test_one_is_named_by_text(client: Client, verb: str, wrong: object) -> None:
    """What is no id, and no dead letter, is told from one that is not found."""
    with pytest.raises(TypeError) as raised:
        call(client, verb, wrong)
    assert str(raised.value) == f"letter_id: expected text such as orders.dlq/2@7, found {wrong!r}"


def test_a_group_without_a_name_is_no_group(client: Client) -> None:
    """It is not taken for the one that gave up."""
    with pytest.raises(InvalidGroupError):
        client.dead_letters.attempts("orders.dlq/0@0", group="")


@pytest.mark.parametrize("headers", [{"source": "web"}, [("source", b"web")]])
def test_headers_are_given_as_to_send(client: Client, headers: Any) -> None:
    """A mapping, or pairs."""
    assert [letter.id for letter in client.dead_letters.list("orders", headers=headers)] == ["orders.dlq/0@0"]
    assert client.dead_letters.purge("orders", headers=headers, dry_run=True).matched == 1
