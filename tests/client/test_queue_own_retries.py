"""Messages with a retry policy of their own, in a queue."""

from __future__ import annotations

import pickle

import pytest

from tests.client.queues import Stage, done, queue_broker, staged  # noqa: F401
from tidelog import Retry

pytestmark = pytest.mark.process


@staged
async def test_the_last_attempt_is_that_of_the_message(stage: Stage) -> None:
    """One with `max_attempts` of its own goes by that, its neighbours by the group's; also pickled, and from a batch of
    which few are leased."""
    async with stage.client() as client:
        await client.topics.create(stage.topic, partitions=1)
        own: list[int | None] = [1, None, 3, *[None] * 20]
        async with client.producer(linger=0.2) as producer:
            for limit in own:
                await producer.send(stage.topic, b"v", retry=None if limit is None else Retry(max_attempts=limit))
        async with stage.queue(client, max_attempts=2, max_in_flight=len(own)) as queue:
            held = await queue.receive(len(own), timeout=10)
            while len(held) < len(own):
                held += await queue.receive(len(own), timeout=10)
            assert [message.last_attempt for message in held] == [True, *[False] * 22]
            assert [pickle.loads(pickle.dumps(message)).last_attempt for message in held[:2]] == [True, False]
            for message in held:
                await done(message.nack(delay=0) if message.offset < 3 else message.ack())
            again = await queue.receive(2, timeout=10)
            while len(again) < 2:
                again += await queue.receive(2, timeout=10)
            assert [(message.offset, message.last_attempt) for message in again] == [(1, True), (2, False)]
