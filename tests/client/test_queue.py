"""Queues before a real broker, on every client: handing out, settling, what comes back and when."""

from __future__ import annotations

import pickle
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.queues import Stage, done, offsets, queue_broker, staged  # noqa: F401
from tidelog import Backoff, ConcurrentUseError, DetachedError, GroupSettingsError, LeaseLostError, UnknownTopicError
from tidelog.codecs import Json

pytestmark = pytest.mark.process


@staged
async def test_each_message_is_handed_out_once_and_acknowledged(stage: Stage) -> None:
    """A loop that acknowledges each of 2,500 messages sees them in order; the group never gets them again."""
    async with stage.client() as client:
        await stage.fill(client, 2500)
        seen: list[int] = []
        async with stage.queue(client) as queue:
            async for message in queue.messages(limit=2500):
                seen.append(message.offset)
                await done(message.ack())
        assert seen == list(range(2500))
        found = queue.statistics()
        assert (found.received, found.acknowledged, found.lost, found.unconfirmed) == (2500, 2500, 0, 0)
        async with stage.queue(client) as queue:
            assert await queue.receive(timeout=0.2) == []
        async with stage.queue(client, group=f"{stage.group}-other") as queue:
            assert offsets(await queue.receive(10, timeout=10)) != []


@staged
async def test_what_a_leased_message_says(stage: Stage) -> None:
    """All that a Message has, and its attempt, the last one, the error before, when its lease ends, its token."""
    async with stage.client() as client:
        await client.topics.create(stage.topic, partitions=1)
        await client.produce(stage.topic, b"v", key="k", headers={"h": "1"}, priority=7)
        async with stage.queue(client, visibility_timeout=30, max_attempts=2) as queue:
            (message,) = await queue.receive(timeout=10)
            assert (message.value, message.raw, message.key, message.priority) == (b"v", b"v", b"k", 7)
            assert message.headers["h"] == b"1"
            assert message.id == message.origin_id == f"{stage.topic}/0@0"
            assert (message.attempt, message.last_attempt, message.previous_error) == (1, False, None)
            left = message.lease_expires_at - datetime.now(UTC)
            assert timedelta(seconds=20) < left <= timedelta(seconds=31)
            try:
                raise ValueError("wrong \0 \ud800 thing")
            except ValueError:
                await done(message.nack(delay=0))
            (again,) = await queue.receive(timeout=10)
            assert (again.attempt, again.last_attempt) == (2, True)
            error = again.previous_error
            assert (error.kind, error.text) == ("ValueError", "wrong \\x00 \\ud800 thing")
            assert "test_what_a_leased_message_says" in error.traceback
            await done(again.nack("enough", wait=True))
            assert await queue.receive(timeout=0.2) == []


@staged
async def test_nack_waits_and_reject_ends(stage: Stage) -> None:
    """A delay is waited for, the message comes again; a rejected one does not; the others are not held up."""
    async with stage.client() as client:
        await stage.fill(client, 4)
        backoff = Backoff("constant", initial=0.3, jitter=0)
        async with stage.queue(client, max_in_flight=4, backoff=backoff) as queue:
            held = await queue.receive(4, timeout=10)
            while len(held) < 4:
                held += await queue.receive(4, timeout=10)
            await done(held[0].nack(delay=timedelta(seconds=0.6)))
            await done(held[1].nack("later"))
            await done(held[2].reject(RuntimeError("bad")))
            await done(held[3].ack())
            await queue.flush()
            assert await queue.receive(timeout=0.1) == []
            (first,) = await queue.receive(timeout=10)
            (second,) = await queue.receive(timeout=10)
            assert [first.offset, second.offset] == [1, 0]
            assert (first.previous_error.kind, first.previous_error.text) == ("", "later")
            await done(first.ack())
            await done(second.ack(wait=True))
            found = queue.statistics()
            assert (found.acknowledged, found.nacked, found.rejected) == (3, 2, 1)


@staged
async def test_times_outside_what_may_be_are_refused_at_the_call(stage: Stage) -> None:
    """ValueError or TypeError for that message alone: nothing is recorded, and it and its neighbours settle as ever."""
    async with stage.client() as client:
        await stage.fill(client, 3)
        async with stage.queue(client, max_in_flight=3) as queue:
            held = [message async for message in queue.messages(limit=3)]
            for delay in (timedelta.max, timedelta(days=366), 1e15, float("inf"), float("nan"), -1):
                with pytest.raises(ValueError, match=r"^delay: expected 0 "):
                    await done(held[0].nack(delay=delay))
                with pytest.raises(ValueError, match=r"^delay: expected 0 "):
                    await client.settle(held[0].lease_token, "nack", delay=delay)
            for duration in (0, timedelta(hours=13), 13 * 3600, float("inf")):
                with pytest.raises(ValueError, match=r"^duration: expected more than 0 and at most 43200 seconds"):
                    await done(held[0].extend(duration))
            with pytest.raises(TypeError, match=r"^delay: expected seconds or a timedelta"):
                await done(held[0].nack(delay="10s"))
            await done(held[0].ack(wait=True))
            await done(held[1].extend(timedelta(hours=12), wait=True))
            await done(held[1].nack(delay=timedelta(days=365), wait=True))
            await done(held[2].reject(wait=True))
            found = queue.statistics()
            assert (found.acknowledged, found.nacked, found.rejected, found.lost) == (1, 1, 1, 0)


@staged
async def test_what_is_said_after_the_block_is_told(stage: Stage) -> None:
    """The messages were given back when it was left: on_lease_lost hears that an ack or nack changed nothing."""
    lost: list[Any] = []
    async with stage.client() as client:
        await stage.fill(client, 2)
        async with stage.queue(client, max_in_flight=2, on_lease_lost=lost.append) as queue:
            held = [message async for message in queue.messages(limit=2)]
        await done(held[0].ack())
        await done(held[1].nack())
        await stage.world.eventually(lambda: len(lost) == 2)
        assert [type(report.error) for report in lost] == [LeaseLostError, LeaseLostError]
        assert queue.statistics().lost == 2


@staged
async def test_settling_out_of_order_and_twice(stage: Stage) -> None:
    """The same outcome again changes nothing and is no error; another one is LEASE_LOST for who waits, else counted."""
    async with stage.client() as client:
        await stage.fill(client, 10)
        async with stage.queue(client, max_in_flight=10) as queue:
            held = [message async for message in queue.messages(limit=10)]
            for at in (7, 3, 9, 0, 1, 2, 8, 3, 7):
                await done(held[at].ack())
            await done(held[3].ack(wait=True))
            await done(held[4].reject("no"))
            await done(held[4].reject("no", wait=True))
            with pytest.raises(LeaseLostError):
                await done(held[4].ack(wait=True))
            await done(held[9].nack())
            assert queue.statistics().lost == 2
            with pytest.raises(LeaseLostError, match="found 1 messages"):
                await queue.flush()
            await queue.flush()
            found = queue.statistics()
            assert (found.acknowledged, found.rejected, found.in_hand) == (7, 1, 2)


@staged
async def test_batches_are_settled_as_one(stage: Stage) -> None:
    """`batches()` hands out columns; `batch.ack()` settles what is not settled yet; a loop in between goes on there."""
    async with stage.client() as client:
        await stage.fill(client, 300)
        seen: list[int] = []
        async with stage.queue(client, max_in_flight=100) as queue:
            async for message in queue.messages(limit=5):
                seen.append(message.offset)
                await done(message.ack())
            async for batch in queue.batches(idle_timeout=0.5):
                assert list(batch.values) == [b"%d" % at for at in batch.offsets]
                seen += batch.offsets.tolist()
                await done(batch[0].reject("this one"))
                await done(batch.ack())
                part = batch[1:3]
                assert offsets(list(part)) == seen[-len(batch) :][1:3]
                with pytest.raises(TypeError, match="its messages can"):
                    pickle.dumps(batch)
        assert seen == list(range(300))
        found = queue.statistics()
        assert (found.acknowledged + found.rejected, found.lost) == (300, 0)
        assert found.rejected >= 3


@staged
async def test_a_bounded_loop_and_stop(stage: Stage) -> None:
    """`limit` and `idle_timeout` end a loop; `stop()` after the message in hand; what was fetched ahead goes back."""
    async with stage.client() as client:
        await stage.fill(client, 100)
        async with stage.queue(client, max_in_flight=50) as queue:
            seen = [message.offset async for message in queue.messages(limit=3)]
            async for message in queue:
                seen.append(message.offset)
                if len(seen) == 10:
                    queue.stop()
                    queue.stop()
            assert seen == list(range(10))
            assert await queue.receive() == []
        async with stage.queue(client) as queue:
            again = [(message.offset, message.attempt) async for message in queue.messages(idle_timeout=0.5)]
        assert sorted(again) == [(at, 1) for at in range(100)]


@staged
async def test_a_poll_that_was_given_up_is_withdrawn(stage: Stage) -> None:
    """Case 27: after a poll that timed out, the next message goes to whoever polls then, at once and as attempt 1."""
    async with stage.client() as client:
        await stage.fill(client, 0)
        async with stage.queue(client) as first, stage.queue(client) as second:
            for queue in (first, second, first):
                assert await first.receive(timeout=0.1) == []
                assert await second.receive(timeout=0.1) == []
                await client.produce(stage.topic, b"x", partition=0)
                begun = queue.now()
                (message,) = await queue.receive(timeout=10)
                assert queue.now() - begun < 1
                assert message.attempt == 1
                await done(message.ack(wait=True))


@staged
async def test_what_is_held_is_renewed_and_else_is_lost(stage: Stage) -> None:
    """With auto_extend leases outlive their visibility timeout, in hand and buffered; without it they are lost, which
    waiting forms raise, and the others count and tell."""
    lost: list[Any] = []
    async with stage.client() as client:
        await stage.fill(client, 20)
        async with stage.queue(client, visibility_timeout=1, max_in_flight=10) as queue:
            (first,) = await queue.receive(timeout=10)
            (more,) = await queue.receive(timeout=10)
            async with stage.queue(client, auto_extend=False, max_in_flight=10, on_lease_lost=lost.append) as other:
                (given,) = await other.receive(timeout=10)
                assert given.offset == 10
                await _pass(stage, 2)
                with pytest.raises(LeaseLostError):
                    await done(given.ack(wait=True))
                assert other.statistics().lost == 1
                assert [(each.topic, each.partition, each.offsets) for each in lost] == [(stage.topic, 0, [10])]
            await done(first.ack(wait=True))
            await done(more.ack(wait=True))
            assert offsets(await queue.receive(8, timeout=10)) == [2, 3, 4, 5, 6, 7, 8, 9]
            assert queue.statistics().renewals >= 2
            assert (queue.statistics().lost, queue.statistics().expired) == (0, 0)


async def _pass(stage: Stage, seconds: float) -> None:
    """Let time pass, with the loop running."""
    async with stage.client() as client, client.consumer(stage.topic, start="latest") as consumer:
        await consumer.receive(timeout=seconds)


@staged
async def test_settling_by_token_from_elsewhere(stage: Stage) -> None:
    """A pickled message is data with its token; by that another client settles it, and only once."""
    async with stage.client() as client, stage.client() as other:
        await stage.fill(client, 5)
        async with stage.queue(client, max_in_flight=5) as queue:
            held = [message async for message in queue.messages(limit=5)]
            copies = pickle.loads(pickle.dumps(held))
            assert [(copy.offset, copy.value, copy.attempt) for copy in copies] == [
                (at, b"%d" % at, 1) for at in range(5)
            ]
            for settle in (copies[0].ack, copies[0].nack, copies[0].reject, copies[0].extend):
                for options in ({}, {"wait": True}):
                    with pytest.raises(DetachedError, match=r"found a copy that was pickled.*client\.settle") as told:
                        settle(**options)
            assert (told.value.code, told.value.number, told.value.retriable) == ("DETACHED", 115, False)
            tokens = [copy.lease_token for copy in copies]
            assert tokens == [message.lease_token for message in held]
            await other.settle(tokens[0], "ack")
            await other.settle(tokens[0], "ack")
            await other.settle(tokens[1], "reject", error="no")
            await other.settle(tokens[2], "nack", delay=0)
            await other.settle(tokens[3], "extend", duration=60)
            for how in ("ack", "nack"):
                with pytest.raises(LeaseLostError):
                    await other.settle(tokens[1], how)
            for wrong in ("", "x" * 50, tokens[0][:-1] + ("A" if tokens[0][-1] != "A" else "B")):
                with pytest.raises(ValueError, match="token: expected a message's lease_token"):
                    await other.settle(wrong, "ack")
            with pytest.raises(TypeError, match="delay: expected nothing with 'ack'"):
                await other.settle(tokens[4], "ack", delay=3)
            for message in held[3:]:
                await done(message.ack())
            (again,) = await queue.receive(timeout=10)
            assert (again.offset, again.attempt) == (2, 2)
            await done(again.ack())
            await queue.flush()


@staged
async def test_a_settle_of_many_survives_one_that_was_settled_elsewhere(stage: Stage) -> None:
    """All of a range but the one message is acknowledged; that one is reported lost."""
    async with stage.client() as client:
        await stage.fill(client, 100)
        async with stage.queue(client, max_in_flight=100) as queue:
            held = [message async for message in queue.messages(limit=100)]
            await client.settle(held[37].lease_token, "reject")
            for message in held:
                await done(message.ack())
            with pytest.raises(LeaseLostError, match="found 1 message"):
                await queue.flush()
            assert (queue.statistics().acknowledged, queue.statistics().lost) == (99, 1)


@staged
async def test_a_codec_decodes_values(stage: Stage) -> None:
    """With a codec of the client or of the call the value is decoded when it is asked for, `raw` are the bytes."""
    async with stage.client() as plain, stage.client(codec=Json()) as client:
        await plain.topics.create(stage.topic, partitions=1)
        await plain.produce_many(stage.topic, [b'{"a":1}', b"[2]"])
        async with stage.queue(client, max_in_flight=2) as queue:
            first, second = [message async for message in queue.messages(limit=2)]
            assert (first.value, first.raw, second.value) == ({"a": 1}, b'{"a":1}', [2])
            assert pickle.loads(pickle.dumps(first)).value == {"a": 1}
            await done(first.ack())
        async with stage.queue(plain, codec=Json()) as queue:
            (again,) = await queue.receive(timeout=10)
            assert (again.value, again.attempt) == ([2], 1)
        async with stage.queue(client, codec=None) as queue:
            (again,) = await queue.receive(timeout=10)
            assert again.value == b"[2]"


@staged
async def test_settings_kinds_and_topics_are_checked(stage: Stage) -> None:
    """A group is made with its settings, and must be matched; unknown topics are an error, or are waited for."""
    async with stage.client() as client:
        with pytest.raises(UnknownTopicError):
            await stage.queue(client).receive(timeout=5)
        await stage.fill(client, 1)
        async with stage.queue(client, max_attempts=2) as queue:
            assert offsets(await queue.receive(timeout=10)) == [0]
        with pytest.raises(GroupSettingsError):
            await stage.queue(client, max_attempts=3).receive(timeout=10)
        async with stage.queue(client) as queue:
            assert offsets(await queue.receive(timeout=10)) == [0]
        for wrong, why in (
            ({"visibility_timeout": 50_000}, "seconds, not milliseconds"),
            ({"max_attempts": 0}, "max_attempts: expected a whole number from 1"),
            ({"max_in_flight": 0}, "max_in_flight: expected a whole number from 1"),
        ):
            with pytest.raises(ValueError, match=why):
                stage.queue(client, **wrong)
        with pytest.raises(TypeError, match=r"backoff: expected a tidelog\.Backoff"):
            stage.queue(client, backoff={"kind": "linear"})
        with pytest.raises(TypeError, match="a queue cannot be pickled"):
            pickle.dumps(getattr(stage.queue(client), "_target", stage.queue(client)))


@staged
async def test_a_topic_that_is_waited_for_and_a_pattern(stage: Stage) -> None:
    """A queue that waits for its topic takes the first message; a pattern takes topics that are made later too."""
    async with stage.client() as client:
        waiting = stage.queue(client, wait_for_topic=True)
        pattern = client.queue(re.compile(f"{stage.topic}.*"), f"{stage.group}-pattern")

        async def take(queue: Any) -> list[bytes | None]:
            async with queue:
                found = await queue.receive(timeout=20)
                for message in found:
                    await done(message.ack())
                return [message.value for message in found]

        async def make() -> None:
            await client.topics.create(stage.topic, partitions=1)
            await client.produce(stage.topic, b"0")

        assert (await stage.world.at_once(lambda: take(waiting), lambda: take(pattern), make))[:2] == [[b"0"], [b"0"]]
        pattern = client.queue(re.compile(f"{stage.topic}.*"), f"{stage.group}-pattern")
        async with pattern:
            assert await pattern.receive(timeout=0.1) == []
            await client.topics.create(f"{stage.topic}-later", partitions=1)
            await client.produce(f"{stage.topic}-later", b"1")
            assert [message.value for message in await pattern.receive(timeout=20)] == [b"1"]


@staged
async def test_one_iterates_and_the_others_are_refused(stage: Stage) -> None:
    """A second thread or task that takes messages gets ConcurrentUseError; the first goes on."""
    async with stage.client() as client:
        await stage.fill(client, 0)
        async with stage.queue(client) as queue:
            refused: list[str] = []

            async def take() -> list[Any]:
                try:
                    return await queue.receive(timeout=20)
                except ConcurrentUseError as error:
                    refused.append(str(error))
                    await client.produce(stage.topic, b"0")
                    return []

            found = await stage.world.at_once(take, take)
            assert refused == ["two threads or tasks take messages from one queue; give each its own"]
            assert sorted(map(len, found)) == [0, 1]
