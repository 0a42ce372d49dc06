"""What may be sent to another process, and arrives there as it was."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

import tidelog
from tests.client.fake_broker import FakeBroker
from tests.client.flavours import World, everywhere
from tidelog import (
    AsyncClient,
    Client,
    ClosedError,
    Consumer,
    Headers,
    Message,
    MessageBatch,
    Priority,
    Receipt,
    ReceiptBatch,
    TidelogError,
    protocol,
)
from tidelog.client.core.bounds import By, Moment
from tidelog.protocol import errors

CONTEXTS = ["fork", "spawn", "forkserver"]


pytestmark = pytest.mark.usefixtures("children_find_the_tests")


def all_errors(kind: type[TidelogError] = TidelogError) -> list[type[TidelogError]]:
    """Return the tree of errors that a client can meet; other tests may have loaded the broker's and commands' own."""
    below = [found for child in kind.__subclasses__() for found in all_errors(child)]
    return [each for each in [kind, *below] if each.__module__.startswith(f"{protocol.__name__}.")]


def shown(thing: Any) -> Any:
    """Return what another process sees of something: plain data."""
    if isinstance(thing, TidelogError):
        return (type(thing).__name__, str(thing), thing.code, thing.retriable, thing.details)
    if isinstance(thing, MessageBatch):
        columns = [thing.offsets.tolist(), list(thing.values), list(thing.keys), thing.timestamps.tolist()]
        return (repr(thing), columns, [list(headers.items()) for headers in thing.headers], list(thing))
    if isinstance(thing, ReceiptBatch):
        return (repr(thing), [*thing], thing.offsets.tolist())
    return (type(thing).__name__, repr(thing))


def sent_out(things: list[Any]) -> list[Any]:
    """In the child: return what it was given, and what it sees of it."""
    return [(thing, shown(thing)) for thing in things]


def things() -> list[Any]:
    """Return one of each thing that a user may hold."""
    with FakeBroker() as broker, Client(broker.url) as client:
        receipts = client.produce_many(
            "t",
            [b"a" * 100, None, b"", b"d"],
            keys=[b"k", None, b"", b"k"],
            headers=[{"h": "1"}, None, [("x", b"1"), ("x", None)], None],
        )
        client.produce("t", b"urgent", priority=Priority.HIGH)
        batches = list(client.replay("t"))
        messages = [message for batch in batches for message in batch]
        found: list[Any] = [*batches, batches[0][1:3], *messages, receipts, *receipts, Headers([("a", b"1")])]
        found += [client.topics.describe("t"), client.ping(), client.health(), client.stats(), Priority.LOW]
    found += [Receipt("t", 0, None, 7, "synced", schedule_id="t/0@s1"), Message("t", 1, 2, None, None, 3, 4)]
    found += [By.TIMESTAMP, Moment(5), datetime(2025, 1, 14, tzinfo=UTC), np.int64(5)]
    found += [kind("expected a, found b", stored=False, offset=7, name="t", none=None) for kind in all_errors()]
    return found


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_all_that_is_data_goes_to_a_child_and_back(context: str) -> None:
    """Messages, batches, receipts, headers, bounds, topics and every error: the child sees what the parent has."""
    given = things()
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(context)) as pool:
        returned = pool.submit(sent_out, given).result(60)
    assert len(returned) == len(given) > 60
    for thing, (back, seen) in zip(given, returned, strict=True):
        assert type(back) is type(thing)
        assert seen == shown(back) == shown(thing)


def test_every_error_of_the_package_is_among_them() -> None:
    """What `tidelog` exports as a client's error is in the tree, so that it was sent to a child above; those of a broker
    inside the program are in `tests/test_error_pickles.py`."""
    names = {getattr(tidelog, name) for name in tidelog.__all__ if name.endswith("Error")}
    exported = {error for error in names if not error.__module__.startswith("tidelog.broker.")}
    assert len(names) - len(exported) == 3
    assert exported <= set(all_errors())
    assert {getattr(errors, name) for name in errors.__all__ if isinstance(getattr(errors, name), type)} >= set(
        all_errors()
    )


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_batch_pickles_its_own_part_of_the_buffer(protocol: int) -> None:
    """A batch is views over a large reply: its pickle has its records, and not the rest of the reply."""
    with FakeBroker() as broker, Client(broker.url) as client:
        for _ in range(20):
            client.produce_many("t", [b"x" * 1000] * 100)
        batch = next(iter(client.replay("t")))
        data = pickle.dumps(batch, protocol)
        assert 100_000 < len(data) < 110_000
        assert list(pickle.loads(data)) == list(deepcopy(batch)) == list(batch)


def produced(client: Client, value: bytes) -> tuple[str, str]:
    """In the child: use a client that came in a pickle."""
    with client:
        return client.produce("t", value).id, client.address


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_client_goes_to_a_child_as_what_it_connects_to(context: str) -> None:
    """Also one that is in use: the child has connections of its own, the parent's goes on."""
    with FakeBroker() as broker, Client(broker.url) as client:
        client.produce("t", b"0")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(context)) as pool:
            assert pool.submit(produced, client, b"1").result(60) == ("t/0@1", client.address)
        assert client.produce("t", b"2").id == "t/0@2"
        assert broker.accepted == 2
        assert broker.store.values("t") == [b"0", b"1", b"2"]


def test_a_closed_client_stays_closed_in_a_pickle() -> None:
    """It was closed on purpose: its copy does not open again."""
    client = Client("localhost:1")
    client.close()
    with pytest.raises(ClosedError):
        pickle.loads(pickle.dumps(client)).ping()
    assert repr(pickle.loads(pickle.dumps(AsyncClient("localhost:1", timeout=7)))) == "<AsyncClient localhost:1>"


@everywhere
async def test_a_reader_is_not_data(world: World) -> None:
    """A consumer or replay has a place and a connection: a TypeError says what to do instead."""
    async with world.client() as client:
        await client.produce("t", b"0")
        made: list[Callable[[], Any]] = [lambda: client.consumer("t"), lambda: client.replay("t")]
        for make in made:
            reader = getattr(make(), "_target", None) or make()
            what = "consumer" if "onsumer" in type(reader).__name__ else "replay"
            for copy in (pickle.dumps, deepcopy):
                with pytest.raises(TypeError, match=f"a {what} cannot be pickled: make one in the other process"):
                    copy(reader)
            assert not isinstance(reader, Consumer) or not reader.close()
