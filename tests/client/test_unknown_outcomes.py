"""Connections cut between request and reply at every point of a call, before a real broker: what the caller is told is
what reading back shows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World
from tests.client.test_real_broker import run
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.proxy import Proxy
from tidelog import Client, OutcomeUnknownError, TidelogError, UnknownTopicError
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process

VALUES = [b"%d" % at + b"x" * 60_000 for at in range(8)]
"""Four batches for `produce_many`."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for this module."""
    with broker_process(tmp_path_factory.mktemp("broker")) as running:
        yield running


def values(client: Client, name: str) -> list[bytes | None]:
    """Return everything that a topic holds."""
    return [message.value for message in client.replay(name).messages()]


def exists(client: Client, name: str) -> bool:
    """Return whether there is such a topic."""
    try:
        client.topics.describe(name)
    except UnknownTopicError:
        return False
    return True


@dataclass(frozen=True)
class Door:
    """A call that changes something: what it sends in turn, and what is there when all, or nothing, of it was done."""

    call: Callable[[Any, str, float], Awaitable[object]]
    sends: tuple[Api, ...]
    state: Callable[[Client, str], object]
    before: object
    after: object


DOORS = {
    "produce": Door(
        lambda client, name, timeout: client.produce(name, b"v", timeout=timeout),
        (Api.HELLO, Api.METADATA, Api.INIT_PRODUCER, Api.PRODUCE),
        values,
        [],
        [b"v"],
    ),
    "produce_many": Door(
        lambda client, name, timeout: client.produce_many(name, VALUES, timeout=timeout),
        (Api.HELLO, Api.METADATA, Api.INIT_PRODUCER, Api.PRODUCE),
        values,
        [],
        VALUES,
    ),
    "create": Door(
        lambda client, name, timeout: client.topics.create(name + "-made", partitions=3, timeout=timeout),
        (Api.HELLO, Api.CREATE_TOPIC),
        lambda client, name: exists(client, name + "-made"),
        False,
        True,
    ),
    "set": Door(
        lambda client, name, timeout: client.topics.set(name, partitions=2, retention="3d", timeout=timeout),
        (Api.HELLO, Api.ALTER_TOPIC),
        lambda client, name: len(client.topics.describe(name).partitions),
        1,
        2,
    ),
    "reopen": Door(
        lambda client, name, timeout: client.topics.reopen(name, timeout=timeout),
        (Api.HELLO, Api.REOPEN_TOPIC),
        lambda client, name: None,
        None,
        None,
    ),
    "delete": Door(
        lambda client, name, timeout: client.topics.delete(name, timeout=timeout),
        (Api.HELLO, Api.DELETE_TOPIC),
        exists,
        True,
        False,
    ),
}

POINTS = [
    pytest.param(door, api, replies, id=f"{door}-{api.name}-{'reply' if replies else 'request'}".lower())
    for door in DOORS
    for api in DOORS[door].sends
    for replies in (False, True)
]


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize(("door", "api", "replies"), POINTS)
def test_cut_once(broker: BrokerProcess, flavour: str, door: str, api: Api, replies: bool) -> None:
    """A connection that is cut at one point of a call costs nothing: it is done, and done once."""
    name, what = f"once-{flavour}-{door}-{api.name}-{replies}", DOORS[door]
    with Client(broker.url) as direct, Proxy(*broker.address) as proxy:
        direct.topics.create(name, partitions=1)

        async def body(world: World) -> None:
            async with world.client(proxy.url) as client:
                if api is Api.HELLO:  # a first attempt would fail at once: it is the second that is cut
                    await client.ping()
                    proxy.cut_all()
                rule = proxy.cut(api, replies=replies)
                await what.call(client, name, 30)
                assert rule.fired == 1

        run(flavour, body)
        assert what.state(direct, name) == what.after


def cut_for_ever(broker: BrokerProcess, flavour: str, door: str, api: Api, replies: bool) -> None:
    """See `test_cut_for_ever`, on one client."""
    name, what = f"ever-{flavour}-{door}-{api.name}-{replies}", DOORS[door]
    with Client(broker.url) as direct, Proxy(*broker.address) as proxy:
        direct.topics.create(name, partitions=1)
        caught: list[TidelogError] = []

        async def body(world: World) -> None:
            async with world.client(proxy.url) as client:
                if api is not Api.HELLO:
                    await client.ping()
                rule = proxy.cut(api, replies=replies, times=None)
                with pytest.raises(TidelogError) as raised:
                    await what.call(client, name, 0.4)
                caught.append(raised.value)
                rule.wait_fired()  # on a busy disk the answer that is cut comes after the timeout

        run(flavour, body)
        was_sent = api is what.sends[-1]
        assert isinstance(caught[0], OutcomeUnknownError) is was_sent, repr(caught[0])
        assert caught[0].details.get("stored", "unknown") == ("unknown" if was_sent else False)
        assert what.state(direct, name) in ([what.before, what.after] if was_sent and replies else [what.before])


@pytest.mark.parametrize(("door", "api", "replies"), POINTS)
def test_cut_for_ever(broker: BrokerProcess, door: str, api: Api, replies: bool) -> None:
    """At the timeout the outcome is unknown if the call itself was ever sent, and else `stored` is False; and so it is.

    The three clients wait for their timeouts at the same time.
    """
    with ThreadPoolExecutor(len(FLAVOURS)) as pool:
        for each in [pool.submit(cut_for_ever, broker, flavour, door, api, replies) for flavour in FLAVOURS]:
            each.result()


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_what_was_answered_before_the_end_is_counted(broker: BrokerProcess, flavour: str) -> None:
    """Of a list some of whose batches were acknowledged before the broker was out of reach the error has the count, and
    what is stored begins with those."""
    name = f"counted-{flavour}"
    many = [b"%d" % at + b"x" * 60_000 for at in range(80)]
    with Client(broker.url) as direct, Proxy(*broker.address) as proxy:
        direct.topics.create(name, partitions=1)

        async def body(world: World) -> None:
            async with world.client(proxy.url) as client:
                await client.ping()
                rule = proxy.vanish(Api.PRODUCE, replies=True, after=5)  # a reset would lose what came before it too
                with pytest.raises(OutcomeUnknownError) as raised:
                    await client.produce_many(name, many, timeout=1)
                rule.wait_fired()
                acknowledged = raised.value.details["acknowledged"]
                stored = values(direct, name)
                assert 0 < acknowledged <= len(stored)
                assert stored == many[: len(stored)]

        run(flavour, body)
