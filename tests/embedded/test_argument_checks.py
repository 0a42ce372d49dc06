"""What is given wrongly is refused where it is given: typed, by the argument's name, before anything is sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tidelog import InvalidGroupError, InvalidRequestError, InvalidTopicError, NotFoundError, UnknownTopicError
from tidelog.testing import Broker, Faults

NOWHERE = "tidelog://127.0.0.1:1"
"""Nothing listens there: what is sent raises CannotConnectError."""

BIG = 10**30


async def finished(found: object) -> None:
    """Wait for what an async client's call returns."""
    if inspect.isawaitable(found):
        await found


def plain(_message: object) -> None:
    """A handler."""


CALLS: dict[str, Callable[..., Any]] = {
    "groups.create": lambda client, **given: client.groups.create(**{"name": "g", "topics": "t", **given}),
    "groups.describe": lambda client, **given: client.groups.describe(**{"name": "g", **given}),
    "groups.list": lambda client, **given: client.groups.list(**given),
    "groups.set": lambda client, **given: client.groups.set(**{"name": "g", **given}),
    "groups.reset": lambda client, **given: client.groups.reset(**{"name": "g", "to": "earliest", **given}),
    "groups.delete": lambda client, **given: client.groups.delete(**{"name": "g", **given}),
    "groups.messages": lambda client, **given: client.groups.messages(**{"name": "g", **given}),
    "queue": lambda client, **given: client.queue(**{"topics": "t", "group": "g", **given}),
    "queue.batches": lambda client, **given: client.queue("t", "g").batches(**given),
    "queue.messages": lambda client, **given: client.queue("t", "g").messages(**given),
    "queue.receive": lambda client, **given: client.queue("t", "g").receive(**given),
    "queue.run": lambda client, **given: client.queue("t", "g").run(**{"handler": plain, **given}),
    "queue.flush": lambda client, **given: client.queue("t", "g").flush(**given),
    "queue.close": lambda client, **given: client.queue("t", "g").close(**given),
    "settle": lambda client, **given: client.settle(**{"token": "x", "how": "ack", **given}),
    "get": lambda client, **given: client.get(**{"message_id": "t/0@0", **given}),
    "produce": lambda client, **given: client.produce(**{"topic": "t", "value": b"", **given}),
}

TYPES: dict[str, dict[str, object]] = {
    "groups.create": {
        "topics": 5,
        "kind": 5,
        "start": 1.5,
        "visibility_timeout": "30s",
        "max_attempts": 1.5,
        "backoff": "constant",
        "max_in_flight": True,
        "dead_letter": "no",
        "exist_ok": 1,
        "timeout": "5",
    },
    "groups.describe": {"timeout": b"5"},
    "groups.list": {"names": 5, "timeout": True},
    "groups.set": {
        "visibility_timeout": "30s",
        "max_attempts": "4",
        "backoff": 5,
        "max_in_flight": 1.5,
        "dead_letter": 0,
        "reset": 5,
        "timeout": [],
    },
    "groups.reset": {"to": None, "partition": "0", "timeout": {}},
    "groups.delete": {"missing_ok": "yes", "timeout": "5"},
    "groups.messages": {"states": 5, "limit": "1", "timeout": "5"},
    "queue": {
        "topics": 5,
        "start": [],
        "visibility_timeout": "30s",
        "max_attempts": 1.5,
        "backoff": {},
        "max_in_flight": "none",
        "auto_extend": 1,
        "max_lease": "15m",
        "on_lease_lost": 5,
        "wait_for_topic": "yes",
        "codec": 5,
        "timeout": "5",
    },
    "queue.batches": {"idle_timeout": "5"},
    "queue.messages": {"limit": 1.5, "idle_timeout": "5"},
    "queue.receive": {"max_messages": None, "timeout": "5"},
    "queue.run": {"handler": 5, "concurrency": 1.5, "signals": "no"},
    "queue.flush": {"timeout": "5"},
    "queue.close": {"timeout": "5"},
    "settle": {"token": 5},
    "get": {"message_id": 5, "codec": 5, "timeout": "5"},
    "produce": {"headers": {3: b""}, "key": 5, "partition": 1.5, "priority": "high", "timeout": "5"},
}
"""A value of a wrong type for each argument: a TypeError that begins with its name."""

VALUES: dict[str, dict[str, object]] = {
    "groups.create": {
        "kind": "heap",
        "start": -1,
        "visibility_timeout": 0,
        "max_attempts": 0,
        "max_in_flight": 0,
        "timeout": -1,
    },
    "groups.reset": {"to": "now", "partition": -1, "timeout": float("nan")},
    "groups.messages": {"states": "done", "limit": 0, "timeout": -1},
    "queue": {"topics": [], "start": "now", "visibility_timeout": 30_000_000, "max_in_flight": 0, "max_lease": -1},
    "queue.messages": {"limit": -1, "idle_timeout": timedelta(-1)},
    "queue.receive": {"max_messages": 0, "timeout": float("nan")},
    "queue.run": {"concurrency": 0},
    "queue.flush": {"timeout": -1},
}
"""The same for a wrong value: a ValueError."""

NAMES: list[tuple[str, str, object, type[Exception]]] = [
    *[(call, "name", 5, TypeError) for call in CALLS if call.startswith("groups.") and call != "groups.list"],
    *[
        (call, "name", "a b", InvalidGroupError)
        for call in CALLS
        if call.startswith("groups.") and call != "groups.list"
    ],
    ("groups.list", "names", [5], TypeError),
    ("groups.create", "topics", [], InvalidGroupError),
    ("groups.create", "topics", ["a b"], InvalidTopicError),
    ("groups.create", "dead_letter_topic", 5, InvalidTopicError),
    ("groups.reset", "topic", 5, InvalidTopicError),
    ("groups.reset", "partition", BIG, ValueError),
    ("groups.messages", "topic", "a b", InvalidTopicError),
    ("queue", "group", 5, TypeError),
    ("queue", "topics", "a b", InvalidTopicError),
    ("settle", "token", "x", ValueError),
    ("get", "message_id", "t", InvalidRequestError),
    ("produce", "topic", 5, InvalidTopicError),
]
"""Names and ids have rules of their own."""

CASES = [
    *[(call, name, value, TypeError) for call, given in TYPES.items() for name, value in given.items()],
    *[(call, name, value, ValueError) for call, given in VALUES.items() for name, value in given.items()],
]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_arguments_are_checked_at_the_call(flavour: str) -> None:
    """Of every call of groups and queues, in every client: `expected ..., found ...`, and nothing was sent."""

    async def body(world: World) -> None:
        async with world.client(NOWHERE, timeout=1) as client:
            for call, name, value, error in [*CASES, *NAMES]:
                with pytest.raises(error) as raised:
                    await finished(CALLS[call](client, **{name: value}))
                where = f"{call}({name}={value!r}): {raised.value}"
                assert type(raised.value) is error, where
                assert "expected" in str(raised.value), where
                assert "found" in str(raised.value), where
                assert str(raised.value).startswith(name) or (call, name, value, error) in NAMES, where

    run(flavour, body)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_arguments_of_settles(flavour: str) -> None:
    """They are checked whether the settle is waited for or not, and leave the message as it was."""
    bad: list[tuple[str, dict[str, Any], type[Exception]]] = [
        ("ack", {"wait": 1}, TypeError),
        ("ack", {"wait": None}, TypeError),
        ("ack", {"timeout": "5"}, TypeError),
        ("nack", {"wait": "yes"}, TypeError),
        ("nack", {"timeout": -1}, ValueError),
        ("nack", {"delay": "5"}, TypeError),
        ("nack", {"error": 5}, TypeError),
        ("reject", {"wait": []}, TypeError),
        ("reject", {"timeout": True}, TypeError),
        ("reject", {"error": b"x"}, TypeError),
        ("extend", {"wait": 0}, TypeError),
        ("extend", {"timeout": float("nan")}, ValueError),
        ("extend", {"duration": 0}, ValueError),
    ]

    async def body(world: World) -> None:
        async with world.client(broker.url) as client, client.queue("t", "g") as queue:
            (message,) = await queue.receive()
            for call, given, error in bad:
                (name,) = given
                with pytest.raises(error, match=f"^{name}: expected .*, found "):
                    getattr(message, call)(**given)
            message.ack(timeout=5)
            await queue.flush()
            assert queue.statistics().acknowledged == 1

    with Broker() as broker, broker.client() as other:
        other.produce("t", b"x")
        run(flavour, body)


ADVANCES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"duration": 5}, TypeError, "duration: expected a timedelta, or days=, hours=, seconds= and so on, found 5"),
    ({"duration": "1d"}, TypeError, "duration: expected a timedelta, .* found '1d'"),
    ({"duration": ""}, TypeError, "duration: expected a timedelta, .* found ''"),
    ({"duration": 0}, TypeError, "duration: expected a timedelta, .* found 0"),
    ({"days": None}, TypeError, "days: expected a number, found None"),
    ({"hours": "1"}, TypeError, "hours: expected a number, found '1'"),
    ({"minutes": True}, TypeError, "minutes: expected a number, found True"),
    ({"seconds": timedelta(1)}, TypeError, "seconds: expected a number, found datetime"),
    ({"milliseconds": float("nan")}, ValueError, "expected a duration that a timedelta can hold, found"),
    ({"days": BIG}, ValueError, "expected a duration that a timedelta can hold, found"),
    ({"days": -1}, ValueError, "expected a duration of 0 or more, found -1 day, 0:00:00: time does not go back"),
]


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_arguments_of_the_clock(flavour: str) -> None:
    """How long time is to pass is a timedelta or numbers by unit; after what is neither it stands where it stood."""

    async def body(_world: World) -> None:
        for given, error, text in ADVANCES:
            advance: Callable[..., object] = (
                broker.clock.advance if flavour == "blocking" else broker.clock.async_advance
            )
            with pytest.raises(error, match=f"^{text}"):
                await finished(advance(**given))

    start = datetime(2025, 1, 1, tzinfo=UTC)
    with Broker(start=start) as broker:
        run(flavour, body)
        assert broker.clock.now() == start


def test_arguments_of_a_broker_for_tests() -> None:
    """Its settings, and the names of topics that it is asked for, one that is mistyped too."""
    makes: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: Broker(config=5), TypeError, "config: expected a mapping of sections, found 5"),  # type: ignore[arg-type]
        (lambda: Broker(config=""), TypeError, "config: expected a mapping of sections, found ''"),  # type: ignore[arg-type]
        (lambda: Broker(seed="7"), TypeError, "seed: expected a whole number, found '7'"),  # type: ignore[arg-type]
        (lambda: Broker(start="now"), TypeError, "start: expected a datetime, found str"),  # type: ignore[arg-type]
        (lambda: Broker(faults=0.5), TypeError, "faults: expected Faults, found 0.5"),  # type: ignore[arg-type]
        (lambda: Faults(lose_lease=2), ValueError, "lose_lease: expected a chance from 0 to 1, found 2"),
    ]
    for make, error, text in makes:
        with pytest.raises(error, match=f"^{text}"):
            make()
    with Broker() as broker, broker.client() as client:
        client.topics.create("orders", partitions=1)
        for ask in (broker.messages, broker.pending, broker.dead_letters):
            assert ask("orders") == []
            with pytest.raises(UnknownTopicError, match='did you mean "orders"'):
                ask("ordrs")
            with pytest.raises((InvalidTopicError, TypeError), match=r"expected .*, found 5"):
                ask(5)  # type: ignore[arg-type]


def test_an_empty_partition_says_so() -> None:
    """A message asked for by its id where there is none: no range of offsets that ends before it begins."""
    with Broker(topics={"partitions": 2}) as broker, broker.client() as client:
        client.produce("t", b"x", partition=1)
        with pytest.raises(NotFoundError) as raised:
            client.get("t/0@0")
        assert str(raised.value) == (
            "expected the offset of a message, found 0; the partition is empty: nothing more is there yet"
        )
        with pytest.raises(
            NotFoundError, match=r"^expected an offset from 0 to 0, found 1; nothing more is there yet$"
        ):
            client.get("t/1@1")
