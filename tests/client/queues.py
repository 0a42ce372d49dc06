"""What tests of queues share: a real broker for a module, and calls that may be awaited or are done already."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.helpers.broker_process import BrokerProcess, broker_process

_names = itertools.count()


async def done(settled: Any) -> None:
    """Await what settling returned, where there is something to await."""
    if inspect.isawaitable(settled):
        await settled


class Stage:
    """A broker, and a topic of one partition and a group that no other test knows."""

    def __init__(self, world: World, broker: BrokerProcess) -> None:
        self.world = world
        self.broker = broker
        self.topic = f"t{next(_names)}"
        self.group = f"g-{self.topic}"

    def client(self, **options: Any) -> Any:
        """Return a client of the flavour."""
        return self.world.client(self.broker.url, **options)

    async def fill(self, client: Any, count: int, partitions: int = 1) -> None:
        """Make the topic with messages b"0", b"1" and so on."""
        await client.topics.create(self.topic, partitions=partitions, exist_ok=True)
        if count:
            await client.produce_many(self.topic, [b"%d" % at for at in range(count)])

    def queue(self, client: Any, **options: Any) -> Any:
        """Return a queue of the group."""
        return client.queue(self.topic, options.pop("group", self.group), **options)


def staged(test: Callable[[Stage], Any]) -> Callable[..., None]:
    """Run an async test body on the blocking client, asyncio and trio, on the module's broker (`queue_broker`)."""

    @pytest.mark.parametrize("flavour", FLAVOURS)
    def body(flavour: str, queue_broker: BrokerProcess) -> None:
        run(flavour, lambda world: test(Stage(world, queue_broker)))

    body.__doc__ = test.__doc__
    body.__name__ = body.__qualname__ = test.__name__
    return body


@pytest.fixture(scope="module")
def queue_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One real broker for a module."""
    folder: Path = tmp_path_factory.mktemp("queues")
    with broker_process(folder) as running:
        yield running


def offsets(messages: list[Any]) -> list[int]:
    """Return where messages are."""
    return [message.offset for message in messages]
