"""What can be seen of the configuration of dedup ids; see `config_effects`."""

from __future__ import annotations

from tests.helpers.broker_core import batch
from tests.helpers.config_effects import details, metric, produced
from tests.helpers.running_broker import RunningBroker


async def sent_twice(running: RunningBroker) -> object:
    """How often a message is stored that is sent twice under one dedup id."""
    peer = await running.greeted()
    topic_id = await running.topic(peer)
    for _ in range(2):
        await produced(peer, topic_id, bytes(batch(b"x", ids=[b"a"])))
    return (await details(peer, topic_id)).end_offset


async def ids_kept(running: RunningBroker) -> object:
    """How many of three dedup ids a partition remembers."""
    peer = await running.greeted()
    await produced(peer, await running.topic(peer), bytes(batch(b"x", b"y", b"z", ids=[b"a", b"b", b"c"])))
    return await metric(peer, "tidelog_dedup_ids")
