"""How many requests a queue takes for what is said of messages one by one."""

from __future__ import annotations

import pytest

from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401

pytestmark = pytest.mark.process

SETTLE_REQUESTS = 'tidelog_requests_total{api="settle"}'


@staged
async def test_nacks_share_requests_as_acknowledgements_do(stage: Stage) -> None:
    """1,000 messages that are nacked one by one take fewer than 100 requests, and all come back."""
    async with stage.client() as client:
        await stage.fill(client, 1000)
        async with stage.queue(client, max_in_flight=1000) as queue:
            before = (await client.stats()).get(SETTLE_REQUESTS, 0)
            async for message in queue.messages(limit=1000):
                await done(message.nack("not yet", delay=0))
            await queue.flush()
            assert (await client.stats())[SETTLE_REQUESTS] - before < 100
            again = [message.attempt async for message in queue.messages(limit=1000)]
            assert again == [2] * 1000
