"""How a producer ends: closed, dropped, pickled by mistake, or with its client."""

from __future__ import annotations

import pickle
import warnings

import pytest

from tests.client.flavours import World, everywhere
from tidelog import ClosedError


@everywhere
async def test_after_close_everything_raises_closed(world: World) -> None:
    """`send` and `flush` raise ClosedError, closing again does nothing; one that was never used closes too."""
    async with world.client() as client:
        unused = client.producer()
        await unused.flush()
        await unused.close()
        producer = client.producer()
        await producer.send("t", b"")
        await producer.close()
        await producer.close()
        for closed in (unused, producer):
            with pytest.raises(ClosedError):
                await closed.send("t", b"")
            with pytest.raises(ClosedError):
                await closed.flush()
    assert world.broker.store.values("t") == [b""]


@everywhere
async def test_a_producer_has_a_connection_of_its_own(world: World) -> None:
    """It goes on when its client is closed, and does not pickle."""
    async with world.client() as client:
        await client.ping()
        producer = client.producer()
        await producer.send("t", b"1")
    assert world.broker.accepted == 2
    await producer.send("t", b"2")
    await producer.close()
    assert world.broker.store.values("t") == [b"1", b"2"]
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(producer._target if world.flavour == "blocking" else producer)


@everywhere
async def test_a_dropped_producer_warns(world: World) -> None:
    """One that is not closed says so, and what it has taken is delivered all the same."""
    async with world.client() as client:
        producer = client.producer()
        await producer.send("t", b"taken")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if world.flavour == "blocking":
                producer._target = None
            del producer
            await world.eventually(lambda: bool(world.broker.store.topics) and len(world.broker.store.values("t")) == 1)
        assert [each.category for each in caught if "was not closed" in str(each.message)] == [ResourceWarning]
