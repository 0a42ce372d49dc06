"""`client.dead_letters` through every client: listed, explained, brought back, given up for good."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.client.flavours import FLAVOURS, World, run
from tests.client.queues import done
from tidelog import Failure, NotFoundError, RedriveLimitError, UnknownTopicError
from tidelog.testing import Broker

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
ONE = {"partitions": 1}


class Stage:
    """A broker on a virtual clock, and a client of one flavour."""

    def __init__(self, broker: Broker, client: Any, flavour: str) -> None:
        self.broker = broker
        self.flavour = flavour
        self.client = client
        self.letters = client.dead_letters

    async def reject(self, *values: bytes, group: str = "g", error: str = "poison", produce: bool = True) -> None:
        """Have a group refuse messages, produced to `orders` first, and wait for their copies."""
        if produce:
            for value in values:
                await self.client.produce("orders", value, key=b"k-" + value, headers={"is": value})
        async with self.client.queue("orders", group) as queue:
            for _ in values:
                [message] = await queue.receive()
                await done(message.reject(error))
            await queue.flush()
        await self.advance(milliseconds=1)

    async def advance(self, **how_long: float) -> None:
        """Let time pass, until all that is due by then is done."""
        clock = self.broker.clock
        if self.flavour == "blocking":
            clock.advance(**how_long)
        else:
            await clock.async_advance(**how_long)

    async def ids(self, **which: Any) -> list[str]:
        """Return the ids of pending dead letters."""
        return [letter.id async for letter in self.letters.list("orders", **which)]

    async def take(self, group: str = "g") -> list[bytes]:
        """Acknowledge all that a group can get; return the values."""
        values: list[bytes] = []
        async with self.client.queue("orders", group) as queue:
            while found := await queue.receive(100, timeout=1):
                for message in found:
                    values.append(message.value)
                    await done(message.ack())
            await queue.flush()
        return values


def staged(test: Callable[[Stage], Any]) -> Callable[..., None]:
    """Run an async test body on the blocking client, asyncio and trio."""

    @pytest.mark.parametrize("flavour", FLAVOURS)
    def body(flavour: str) -> None:
        async def on(world: World) -> None:
            async with world.client(broker.url) as client:
                await test(Stage(broker, client, flavour))

        with Broker(start=NEW_YEAR, topics=ONE) as broker:
            run(flavour, on)

    body.__doc__ = test.__doc__
    body.__name__ = body.__qualname__ = test.__name__
    return body


@staged
async def test_a_dead_letter_says_what_it_is_and_why(stage: Stage) -> None:
    """Key, value and the producer's headers are the message's own; reason, error, group, attempts and times say more."""
    await stage.reject(b"a", error="no such account")
    [letter] = [letter async for letter in stage.letters.list("orders")]
    assert (letter.id, letter.original_id, letter.group) == ("orders.dlq/0@0", "orders/0@0", "g")
    assert (letter.key, letter.value, letter.headers) == (b"k-a", b"a", {"is": b"a"})
    assert (letter.reason, letter.error, letter.attempts, letter.redrives) == ("rejected", "no such account", 1, 0)
    assert NEW_YEAR <= letter.first_delivered <= letter.dead_lettered < NEW_YEAR + timedelta(seconds=1)
    assert (letter.topic, letter.partition, letter.offset) == ("orders", 0, 0)
    assert await stage.letters.get("orders.dlq/0@0") == letter
    assert await stage.letters.get("orders/0@0") == letter
    assert await stage.letters.count("orders") == await stage.letters.count("orders.dlq") == 1
    [state] = await stage.client.states("orders/0@0")
    assert (state.state, state.attempts) == ("dead-lettered", 1)


@staged
async def test_every_attempt_is_told_with_its_error(stage: Stage) -> None:
    """Failed, expired and refused attempts stand in order with their errors and numbers, then that it was
    dead-lettered; after a redrive they are counted from 1 again."""
    await stage.client.produce("orders", b"a")
    async with stage.client.queue("orders", "g", visibility_timeout=30, max_attempts=3) as queue:
        [message] = await queue.receive()
        await done(message.nack(ValueError("one"), delay=60))
        [message] = await queue.receive()
        await done(message.nack("two", delay=0))
        [message] = await queue.receive()
        assert message.last_attempt
        await done(message.nack("three"))
        await queue.flush()
    await stage.advance(milliseconds=1)
    history = await stage.letters.attempts("orders.dlq/0@0")
    assert history.is_complete
    assert [(one.outcome, one.number, one.delay) for one in history] == [
        ("failed", 1, 60.0),
        ("failed", 2, 0.0),
        ("failed", 3, 0.0),
        ("dead-lettered", 0, 0.0),
    ]
    assert history[0].failure == Failure("ValueError", "one", "")
    assert [one.failure.text for one in history if one.failure] == ["one", "two", "three"]
    assert history[1].began - history[0].ended >= timedelta(minutes=1)
    [letter] = [letter async for letter in stage.letters.list("orders")]
    assert (letter.reason, letter.error, letter.attempts) == ("max-attempts", "three", 3)
    await stage.letters.redrive(letter.id)
    assert await stage.take() == [b"a"]
    assert [(one.outcome, one.number) for one in await stage.letters.attempts(letter)][4:] == [
        ("redriven", 0),
        ("acknowledged", 1),
    ]


@staged
async def test_a_redrive_is_for_the_one_group_that_gave_up(stage: Stage) -> None:
    """The message comes back with attempt 1 and at its place; another group, and a reader of the topic, see nothing."""
    await stage.client.produce("orders", b"a")
    await stage.take("other")
    await stage.reject(b"a", produce=False)
    done_so = await stage.letters.redrive("orders")
    assert (done_so.matched, done_so.in_place, done_so.as_new, done_so.refused) == (1, 1, 0, [])
    assert await stage.ids() == []
    assert await stage.take("other") == []
    async with stage.client.queue("orders", "g") as queue:
        [message] = await queue.receive(timeout=1)
        assert (message.id, message.attempt, message.previous_error) == ("orders/0@0", 1, None)
        await done(message.ack())
    assert len([message async for message in stage.client.replay("orders").messages()]) == 1
    assert (await stage.letters.redrive("orders")).matched == 0


@staged
async def test_as_new_a_message_is_published_for_all_groups(stage: Stage) -> None:
    """Every group gets a new message with the producer's headers, how often it was redriven, and the first id."""
    await stage.reject(b"a")
    assert await stage.take("other") == [b"a"]
    assert (await stage.letters.redrive("orders.dlq/0@0", as_new=True)).as_new == 1
    for group in ("g", "other"):
        async with stage.client.queue("orders", group) as queue:
            [message] = await queue.receive(timeout=1)
            assert (message.id, message.origin_id, message.key) == ("orders/0@1", "orders/0@0", b"k-a")
            assert message.headers == [
                ("is", b"a"),
                ("tidelog.redrives", b"1"),
                ("tidelog.origin_id", b"orders/0@0"),
            ]
            await done(message.ack())
    assert await stage.ids() == []
    assert {state.group: state.state for state in await stage.client.states("orders/0@0")}["g"] == "rejected"


@staged
async def test_what_retention_removed_is_published_anew(stage: Stage) -> None:
    """Where the original is gone a plain redrive publishes the copy, and says so."""
    await stage.client.topics.create("orders", partitions=1, segment_bytes="1MiB", retention="1h")
    await stage.reject(b"a")
    await stage.advance(hours=3)
    await stage.client.produce("orders", b"b")
    await stage.advance(hours=1)
    with pytest.raises(NotFoundError):
        await stage.client.get("orders/0@0")
    done_so = await stage.letters.redrive("orders")
    assert (done_so.in_place, done_so.as_new) == (0, 1)
    assert b"a" in await stage.take()


@staged
async def test_filters_choose(stage: Stage) -> None:
    """By key, header, reason, error, group and time; all that are given must hold, and a limit counts what passes."""
    await stage.reject(b"a", b"b", error="Timeout: 5 s")
    await stage.advance(hours=2)
    await stage.reject(b"c", error="poison")
    await stage.reject(b"a", b"b", b"c", group="h", produce=False)
    first = ["orders.dlq/0@0", "orders.dlq/0@1"]
    assert len(await stage.ids()) == 6
    assert await stage.ids(key="k-a", group="g") == ["orders.dlq/0@0"]
    assert await stage.ids(headers={"is": "b"}) == ["orders.dlq/0@1", "orders.dlq/0@4"]
    assert await stage.ids(error="Timeout") == first
    assert await stage.ids(reason="max-attempts") == []
    assert await stage.ids(end=timedelta(hours=1)) == first
    assert len(await stage.ids(start=timedelta(hours=1))) == 4
    assert await stage.ids(limit=2) == first
    assert (await stage.letters.redrive("orders", error="Timeout", dry_run=True)).matched == 2
    assert (await stage.letters.redrive("orders", error="Timeout", limit=1)).in_place == 1
    assert await stage.ids(error="Timeout") == ["orders.dlq/0@1"]
    assert (await stage.letters.purge("orders", group="h")).purged == 3
    assert await stage.ids() == ["orders.dlq/0@1", "orders.dlq/0@2"]


@staged
async def test_purged_is_purged(stage: Stage) -> None:
    """One, some or all: nothing of them is pending any more, nothing brings them back, and the records stay."""
    await stage.reject(b"a", b"b", b"c")
    assert (await stage.letters.purge("orders.dlq/0@1")).purged == 1
    assert await stage.ids() == ["orders.dlq/0@0", "orders.dlq/0@2"]
    assert (await stage.letters.purge("orders", dry_run=True)).matched == 2
    assert (await stage.letters.purge("orders")).purged == 2
    assert await stage.ids() == []
    assert (await stage.letters.redrive("orders.dlq/0@1")).matched == 0
    assert await stage.take() == []
    assert [state.state for state in await stage.client.states("orders/0@1")] == ["rejected"]
    assert (await stage.letters.get("orders.dlq/0@1")).value == b"b"


@staged
async def test_a_message_that_comes_back_each_time_is_refused(stage: Stage) -> None:
    """After three redrives a fourth is refused, unless more are asked for; the dead letter stays pending."""
    await stage.reject(b"a")
    for times in range(1, 4):
        assert (await stage.letters.redrive("orders")).in_place == 1
        await stage.reject(b"a", produce=False)
        [letter] = [letter async for letter in stage.letters.list("orders")]
        assert letter.redrives == times
    refused = await stage.letters.redrive("orders")
    assert (refused.matched, refused.in_place, refused.refused_count) == (1, 0, 1)
    assert isinstance(refused.refused[0].error, RedriveLimitError)
    assert refused.refused[0].id == letter.id == "orders.dlq/0@3"
    assert await stage.ids() == [letter.id]
    assert (await stage.letters.redrive("orders", max_redrives=4)).in_place == 1


@staged
async def test_topics_may_share_a_dead_letter_topic(stage: Stage) -> None:
    """Each topic has its own dead letters, whatever else lies beside them; the dead-letter topic has all."""
    await stage.client.produce("refunds", b"r")
    await stage.client.groups.create("g-refunds", "refunds", dead_letter_topic="failed")
    await stage.client.produce_many("orders", [b"a", b"b"])
    await stage.client.groups.create("g", "orders", dead_letter_topic="failed")
    await stage.reject(b"a", b"b", produce=False)
    async with stage.client.queue("refunds", "g-refunds") as queue:
        [message] = await queue.receive()
        await done(message.reject("poison"))
    await stage.advance(milliseconds=1)
    assert [letter.value async for letter in stage.letters.list("orders")] == [b"a", b"b"]
    assert [letter.value async for letter in stage.letters.list("refunds")] == [b"r"]
    assert [letter.id async for letter in stage.letters.list("failed")] == [f"failed/0@{at}" for at in range(3)]
    assert (await stage.letters.purge("orders", limit=1)).purged == 1
    assert (await stage.letters.redrive("refunds")).in_place == 1
    assert [letter.value async for letter in stage.letters.list("failed")] == [b"b"]
    assert (await stage.letters.get("orders/0@1")).id == "failed/0@1"


@staged
async def test_dead_letters_outlive_the_group_that_names_their_topic(stage: Stage) -> None:
    """Deleted, or with another topic since: they are listed, published anew and purged all the same, and no other message
    of such a topic is taken for one."""
    await stage.client.produce_many("orders", [b"a", b"b"])
    await stage.client.groups.create("g", "orders", dead_letter_topic="failed")
    await stage.reject(b"a", b"b", produce=False)
    await stage.client.groups.delete("g")
    await stage.client.produce("failed", b"mine")
    assert [letter.value async for letter in stage.letters.list("failed")] == [b"a", b"b", b"mine"]
    assert (await stage.letters.redrive("failed/0@0", as_new=True)).as_new == 1
    assert (await stage.letters.purge("failed")).purged == 1
    assert [letter.value async for letter in stage.letters.list("failed")] == []
    assert await stage.ids() == []


@staged
async def test_what_a_group_does_not_keep_is_dropped(stage: Stage) -> None:
    """With dead_letter=False nothing is copied, and the message is settled as rejected."""
    await stage.client.produce("orders", b"a")
    await stage.client.groups.create("g", "orders", dead_letter=False)
    await stage.reject(b"a", produce=False)
    assert [topic.name for topic in await stage.client.topics.list()] == ["orders"]
    assert [state.state for state in await stage.client.states("orders/0@0")] == ["rejected"]
    changed = await stage.client.groups.set("g", reset=["dead_letter"])
    assert (changed.settings.dead_letter, changed.given) == (True, [])


@staged
async def test_in_a_dead_letter_topic_a_reject_settles(stage: Stage) -> None:
    """A consumer of dead letters that refuses one does not make another; it is pending as before."""
    await stage.reject(b"a")
    async with stage.client.queue("orders.dlq", "sorters") as queue:
        [message] = await queue.receive()
        assert message.value == b"a"
        await done(message.reject("no idea"))
    await stage.advance(seconds=5)
    assert sorted(topic.name for topic in await stage.client.topics.list()) == ["orders", "orders.dlq"]
    assert await stage.ids() == ["orders.dlq/0@0"]
    assert [state.state for state in await stage.client.states("orders.dlq/0@0")] == ["rejected"]


@staged
async def test_a_rate_is_held(stage: Stage) -> None:
    """At 10 a second 30 take two to three seconds of the clock, and progress is told as it goes."""
    await stage.client.produce_many("orders", [b"%d" % at for at in range(30)])
    await stage.reject(*[b"x"] * 30, produce=False)
    began, told = stage.broker.clock.now(), list[int]()
    assert (await stage.letters.redrive("orders", rate=10, on_progress=told.append)).in_place == 30
    took = stage.broker.clock.now() - began
    assert timedelta(seconds=2) <= took <= timedelta(seconds=3)
    assert told == [1] * 30


@staged
async def test_what_is_not_there_is_said_to_be_missing(stage: Stage) -> None:
    """Unknown topics, and ids of what is no dead letter, have typed errors."""
    await stage.client.produce("orders", b"a")
    assert [letter async for letter in stage.letters.list("orders")] == []
    with pytest.raises(UnknownTopicError, match="ordrs"):
        [letter async for letter in stage.letters.list("ordrs")]
    with pytest.raises(UnknownTopicError):
        await stage.letters.redrive("orders.dlq")
    with pytest.raises(NotFoundError):
        await stage.letters.get("orders/0@0")
    with pytest.raises(NotFoundError):
        await stage.letters.attempts("orders/0@0")


def test_the_testing_broker_lists_them() -> None:
    """`broker.dead_letters(topic)` has the pending ones; of a name that is mistyped it does not say that there are
    none."""
    with Broker(topics=ONE) as broker, broker.client() as client:
        with pytest.raises(UnknownTopicError, match="orders"):
            broker.dead_letters("orders")
        client.produce("orders", b"a")
        assert broker.dead_letters("orders") == []
        with client.queue("orders", "g") as queue:
            [message] = queue.receive()
            message.reject("poison")
        broker.clock.advance(milliseconds=1)
        [letter] = broker.dead_letters("orders")
        assert (letter.value, letter.error) == (b"a", "poison")
