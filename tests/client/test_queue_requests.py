"""How many requests a queue takes for what is said of messages one by one."""

from __future__ import annotations

import pytest

from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401

pytestmark = pytest.mark.process

SETTLE_REQUESTS = 'tidelog_requests_total{api="settle"}'


@staged
async def test_nacks_share_requests_as_acknowledgements_do(stage: Stage) -> None:
    """100 messages that are nacked one after the other take a few requests, not one each, and all come back."""
    async with stage.client() as client:
        await stage.fill(client, 100)
        async with stage.queue(client, max_in_flight=100) as queue:
            before = (await client.stats()).get(SETTLE_REQUESTS, 0)
            messages = await queue.receive(100, timeout=10)
            assert len(messages) == 100
            for message in messages:
                await done(message.nack("not yet", delay=0))
            await queue.flush()
            assert (await client.stats())[SETTLE_REQUESTS] - before < 20
            assert [message.attempt async for message in queue.messages(limit=100)] == [2] * 100
