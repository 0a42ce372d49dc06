"""Small inputs from the field that broke the dead letters of other brokers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tidelog import Client, InvalidRequestError, QueueMessage
from tidelog.testing import Broker

NEW_YEAR = datetime(2025, 1, 1, tzinfo=UTC)
ONE = {"partitions": 1}
KIB = 1 << 10
MIB = 1 << 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker on a virtual clock."""
    with Broker(start=NEW_YEAR, topics=ONE) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    """A client of it."""
    with broker.client() as connected:
        yield connected


def give_up(broker: Broker, client: Client, group: str = "g", error: str = "poison", count: int = 1) -> None:
    """Have a group refuse what it gets next, and wait for the copies."""
    with client.queue("orders", group, max_attempts=1) as queue:
        for _ in range(count):
            [message] = queue.receive()
            message.reject(error)
    broker.clock.advance(milliseconds=1)


def size_of(client: Client, letter_id: str) -> int:
    """How many bytes a stored message has."""
    message = client.get(letter_id)
    headers = sum(len(name.encode()) + len(value or b"") for name, value in message.headers.items())
    return len(message.key or b"") + len(message.value or b"") + headers


@pytest.mark.parametrize("as_new", [False, True])
def test_what_was_done_before_their_topic_was_deleted_is_told(broker: Broker, client: Client, as_new: bool) -> None:
    """Of three the first is back; the others are gone with their topic, and told one by one."""
    client.produce_many("orders", [b"a", b"b", b"c"])
    give_up(broker, client, count=3)
    told: list[int] = []

    def delete(count: int) -> None:
        if not told:
            client.topics.delete("orders.dlq")
        told.append(count)

    done = client.dead_letters.redrive("orders", as_new=as_new, rate=10, on_progress=delete)
    assert (done.matched, done.as_new if as_new else done.in_place, done.refused_count) == (3, 1, 2)
    assert [(one.id, one.error.code) for one in done.refused] == [
        ("orders.dlq/0@1", "UNKNOWN_TOPIC_ID"),
        ("orders.dlq/0@2", "UNKNOWN_TOPIC_ID"),
    ]
    assert told == [1, 1, 1]


# -- case 11 -------------------------------------------------------------------------------------------------------


def test_a_copy_that_cannot_be_made_settles_nothing() -> None:
    """At the topic limit: the message stays, visibly, the others flow; after the repair there is exactly one copy."""
    limited = {"partitions": 1, "max_topics": 2}
    with Broker(start=NEW_YEAR, topics=limited) as broker, broker.client() as client:
        client.produce_many("orders", [b"bad", b"good"])
        client.topics.create("spare")
        give_up(broker, client)
        [state] = client.states("orders/0@0")
        assert state.state == "dead-lettering"
        with client.queue("orders", "g") as queue:
            [message] = queue.receive(timeout=1)
            assert message.value == b"good"
            message.ack()
        broker.clock.advance(minutes=5)
        [group] = client.groups.list(["g"])
        [partition] = group.topics[0].partitions
        assert (partition.dead_lettering, partition.dead_lettered) == (1, 0)
        assert partition.blocked is not None
        assert partition.blocked.startswith("TOPIC_LIMIT: ")
        assert broker.dead_letters("orders") == []
        client.topics.delete("spare")
        broker.clock.advance(minutes=2)
        [letter] = broker.dead_letters("orders")
        assert (letter.value, client.states("orders/0@0")[0].state) == (b"bad", "dead-lettered")


def test_a_dead_letter_topic_that_is_deleted_is_made_again(broker: Broker, client: Client) -> None:
    """The dead letters that were in it are gone, as asked; the next one is kept in a new topic, and is one."""
    client.produce_many("orders", [b"a", b"b"])
    give_up(broker, client)
    client.topics.delete("orders.dlq")
    assert broker.dead_letters("orders") == []
    give_up(broker, client)
    [letter] = broker.dead_letters("orders")
    assert (letter.id, letter.value) == ("orders.dlq~2/0@0", b"b")
    assert client.dead_letters.redrive(letter.id).in_place == 1
    assert client.dead_letters.redrive("orders.dlq/0@0").matched == 0


# -- case 13 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["x" * MIB, "a\0b\nc\ud800d", "é" * MIB], ids=["long", "odd", "wide"])
def test_the_copy_always_fits_and_never_grows(error: str) -> None:
    """A message of exactly the largest size, refused with any text, three times more: one copy each, level in size."""
    with (
        Broker(start=NEW_YEAR, topics={"partitions": 1, "max_message_bytes": "64KiB"}) as broker,
        broker.client() as client,
    ):
        value = b"v" * (64 * KIB - len("k") - len("h") - len("1"))
        client.produce("orders", value, key="k", headers={"h": "1"})
        give_up(broker, client, error=error)
        sizes: list[int] = []
        for times in range(4):
            [letter] = broker.dead_letters("orders")
            assert (letter.value, letter.headers, letter.redrives) == (value, {"h": b"1"}, times)
            assert letter.error
            names = [name for name, _ in letter.message.headers.items() if name.startswith("tidelog.")]
            assert len(names) == len(set(names))
            sizes.append(size_of(client, letter.id))
            if times < 3:
                assert client.dead_letters.redrive("orders").in_place == 1
                give_up(broker, client, error=error)
        assert max(sizes) <= 128 * KIB
        assert max(sizes[1:]) - min(sizes[1:]) <= 1  # an offset may take a digit more


def test_as_new_the_size_stays_level_too(broker: Broker, client: Client) -> None:
    """Three rounds as new messages: the headers of a round before are replaced, and the new message is as the first."""
    client.produce("orders", b"v" * KIB, key="k", headers={"h": "1"})
    sizes: list[int] = []
    for at in range(3):
        give_up(broker, client)
        [letter] = broker.dead_letters("orders")
        sizes.append(size_of(client, letter.id))
        assert client.dead_letters.redrive("orders", as_new=True).as_new == 1
        new = client.get(f"orders/0@{at + 1}")
        assert [name for name, _ in new.headers.items()] == ["h", "tidelog.redrives", "tidelog.origin_id"]
        assert new.origin_id == "orders/0@0"
    assert max(sizes[1:]) - min(sizes[1:]) <= 1


# -- case 15, as far as there are no delays yet --------------------------------------------------------------------


@pytest.mark.parametrize("as_new", [False, True], ids=["in place", "as new"])
@pytest.mark.parametrize("later", [timedelta(), timedelta(minutes=10)])
def test_a_redriven_message_is_available_now(broker: Broker, client: Client, as_new: bool, later: timedelta) -> None:
    """At once, whenever it is redriven, with its key, priority and headers, and with nothing left of the wait before."""
    client.produce("orders", b"a", key="k", headers=[("h", "1"), ("h", None)], priority=9, partition=0)
    with client.queue("orders", "g") as queue:
        [message] = queue.receive()
        message.nack("later", delay=60)
        [message] = queue.receive()
        message.reject("poison")
    broker.clock.advance(later + timedelta(milliseconds=1))
    client.dead_letters.redrive("orders", as_new=as_new)
    began = broker.clock.now()
    with client.queue("orders", "g") as queue:
        [message] = queue.receive()
        assert broker.clock.now() - began < timedelta(seconds=1)
        assert (message.value, message.key, message.priority, message.attempt) == (b"a", b"k", 9, 1)
        assert [pair for pair in message.headers.items() if not pair[0].startswith("tidelog.")] == [
            ("h", b"1"),
            ("h", None),
        ]
        assert message.origin_id == "orders/0@0"
        message.ack()


# -- case 17 -------------------------------------------------------------------------------------------------------

FORGED = ["tidelog.redrives", "tidelog.dlq.topic", "tidelog.origin_id", "tidelog."]


@pytest.mark.parametrize("name", FORGED)
def test_every_door_refuses_the_brokers_own_names(client: Client, name: str) -> None:
    """produce, produce_many and a producer; nothing of it is stored (raw batches: test_redrive, the CLI's: its own)."""
    client.topics.create("orders", partitions=1)
    with pytest.raises(InvalidRequestError, match="broker's own"):
        client.produce("orders", b"x", headers={name: "99"})
    with pytest.raises(InvalidRequestError, match="broker's own"):
        client.produce("orders", b"x", headers=[("a", "1"), (name, "99"), (name, "99")])
    with pytest.raises(InvalidRequestError, match="broker's own"):
        client.produce_many("orders", [b"x", b"y"], headers=[None, {name: "99"}])
    with client.producer() as producer, pytest.raises(InvalidRequestError, match="broker's own"):
        producer.send("orders", b"x", headers={name: "99"})
    assert list(client.replay("orders").messages()) == []


def test_look_alikes_are_data(broker: Broker, client: Client) -> None:
    """Names that only look like the broker's are the producer's: kept in order and in repeats, and without effect."""
    own = [("x-tidelog.redrives", b"9"), ("Tidelog.redrives", b"9"), ("TIDELOG.DLQ.TOPIC", b"other"), ("h", b"1")]
    own += [("x-tidelog.redrives", b"9"), ("tidelog", b"2")]
    client.produce("orders", b"a", headers=own)
    give_up(broker, client)
    for times in range(1, 4):
        [letter] = broker.dead_letters("orders")
        assert (letter.headers, letter.redrives, letter.topic) == (own, times - 1, "orders")
        assert client.dead_letters.redrive("orders").in_place == 1
        give_up(broker, client)
    assert client.dead_letters.redrive("orders").refused_count == 1
    assert [topic.name for topic in client.topics.list()] == ["orders", "orders.dlq"]


# -- case 19, as far as there are no delays yet --------------------------------------------------------------------


def test_a_redrive_is_never_taken_for_a_repeat(broker: Broker, client: Client) -> None:
    """A message with a dedup id, in place and as new within the window, for two groups: nothing is suppressed."""
    first = client.produce("orders", b"a", dedup_id="a")
    give_up(broker, client, "g")
    give_up(broker, client, "h")
    assert len(broker.dead_letters("orders")) == 2
    broker.clock.advance(minutes=1)
    assert client.dead_letters.redrive("orders", group="g").in_place == 1
    assert client.dead_letters.redrive("orders", group="h", as_new=True).as_new == 1
    for group, count in (("g", 2), ("h", 1)):
        with client.queue("orders", group) as queue:
            found = list[QueueMessage]()
            while more := queue.receive(10, timeout=1):
                found += more
                for message in more:
                    message.ack()
            assert len(found) == count
    again = client.produce("orders", b"a", dedup_id="a")
    assert (again.duplicate, again.id) == (True, first.id)


def test_a_purge_frees_no_dedup_id(broker: Broker, client: Client) -> None:
    """The message itself is still stored, so its id is known until the window is over; then it is free."""
    first = client.produce("orders", b"a", dedup_id="a")
    give_up(broker, client)
    assert client.dead_letters.purge("orders").purged == 1
    again = client.produce("orders", b"a", dedup_id="a")
    assert (again.duplicate, again.id) == (True, first.id)
    assert client.get(again.id).value == b"a"
    broker.clock.advance(minutes=11)
    assert client.produce("orders", b"a", dedup_id="a").duplicate is False


# -- partitions of the dead-letter topic ---------------------------------------------------------------------------


def test_a_message_is_found_by_its_id_after_partitions_were_added(broker: Broker, client: Client) -> None:
    """Its copy lies where it went when the dead-letter topic had fewer; each verb finds it there."""
    client.topics.create("orders", partitions=4)
    client.topics.create("orders.dlq", partitions=1)
    ids = [client.produce("orders", b"%d" % at, partition=at).id for at in range(4)]
    for _ in ids:
        give_up(broker, client)
    for count in (1, 2, 3):
        client.topics.set("orders.dlq", partitions=count)
        found = [[letter.original_id for letter in client.dead_letters.list(one)] for one in ids]
        assert found == [[one] for one in ids]
    assert client.dead_letters.redrive("orders/2@0").in_place == 1
    assert client.dead_letters.purge("orders/3@0").purged == 1
    assert sorted(letter.original_id or "" for letter in client.dead_letters.list("orders")) == ids[:2]
