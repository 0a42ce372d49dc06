"""What type checkers see of codecs: pyright reads this file in strict mode, nobody runs it."""

# pyright: strict

from __future__ import annotations

from typing import assert_type

import msgspec
import pydantic

from tidelog import (
    AsyncClient,
    AsyncProducer,
    AsyncQueueMessage,
    AsyncTypedQueueMessage,
    Client,
    Consumer,
    DecodeError,
    Headers,
    Message,
    MessageBatch,
    Producer,
    QueueMessage,
    TypedMessage,
    TypedQueueMessage,
)
from tidelog.codecs import Json, JsonValue, Msgspec, Pydantic


class Order(msgspec.Struct):
    """A struct."""

    id: int


class Parcel(pydantic.BaseModel):
    """A model."""

    weight: float


class Shout:
    """A codec of one's own."""

    def encode(self, value: str, headers: Headers) -> bytes:
        """Send in capitals."""
        return value.upper().encode()

    def decode(self, data: bytes, headers: Headers) -> str:
        """Read as it is."""
        return data.decode()


def bytes_by_default(client: Client) -> None:
    """Without a codec a value is bytes or None."""
    assert_type(client.get("t/0@0"), Message)
    assert_type(client.get("t/0@0").value, bytes | None)
    for message in client.consumer("t"):
        assert_type(message, Message)
    for batch in client.replay("t"):
        assert_type(batch, MessageBatch)
        assert_type(batch[0], Message)
    client.produce("t", b"x", key="k", priority=9)
    client.produce_many("t", ["a", b"b", None], keys=["k", None, b"k"])


def a_codec_of_the_call(client: Client) -> None:
    """Its type is that of the messages' values; what is sent has to be of it."""
    for message in client.consumer("t", codec=Msgspec(Order), start="latest"):
        assert_type(message.value, Order)
        assert_type(message.raw, bytes | None)
    for message in client.consumer("t", codec=Pydantic(Parcel)):
        assert_type(message.value, Parcel)
    for message in client.consumer("t", codec=Shout()).messages(limit=5):
        assert_type(message.value, str)
    for message in client.consumer("t", codec=Json()).receive(5):
        assert_type(message.value, JsonValue)
    for message in client.replay("t", codec=Msgspec[Order | None](Order), ordered="time").messages():
        assert_type(message.value, Order | None)
    nullable: Msgspec[Order | None] = Msgspec(Order)
    assert_type(client.get("t/0@0", codec=nullable).value, Order | None)
    union: Msgspec[Order | int] = Msgspec(Order | int)
    assert_type(client.get("t/0@0", codec=union).value, Order | int)
    for batch in client.replay("t", codec=Msgspec(list[Order], "msgpack")):
        assert_type(batch.decode(), list[list[Order]])
        assert_type(batch.decode(on_error="keep"), list[list[Order] | DecodeError])
    assert_type(client.get("t/0@0", codec=Msgspec(Order)), TypedMessage[Order])
    client.produce("t", Order(1), codec=Msgspec(Order))
    client.produce("t", None, codec=Msgspec(Order))
    client.produce("t", {"a": [1]}, codec=Json())
    client.produce_many("t", [Order(1), None], codec=Msgspec(Order))
    client.produce("t", 5, codec=Msgspec(Order))  # pyright: ignore[reportArgumentType, reportCallIssue]
    client.produce("t", 5)  # pyright: ignore[reportArgumentType, reportCallIssue]


def a_codec_of_the_client() -> None:
    """It holds for all calls but those that have their own, or None."""
    with Client(codec=Msgspec(Order), timeout=5) as client:
        assert_type(client, Client[TypedMessage[Order]])
        for message in client.consumer("t"):
            assert_type(message.value, Order)
        for message in client.consumer("t", codec=None):
            assert_type(message.value, bytes | None)
        for message in client.consumer("t", codec=Shout()):
            assert_type(message.value, str)
        assert_type(client.get("t/0@0").value, Order)
        client.produce("t", Order(1))
        client.produce("t", b"x", codec=None)
        client.produce("t", "x")  # pyright: ignore[reportArgumentType, reportCallIssue]


def a_producer(client: Client, plain: Producer) -> None:
    """What it takes is what its codec encodes: its own, or the client's; without one, bytes and text."""
    assert_type(client.producer(), Producer)
    with client.producer(codec=Msgspec(Order), compression="zstd", on_delivery=print) as producer:
        assert_type(producer, Producer[Order | None])
        producer.send("t", Order(1), key="k", tag=1)
        producer.send("t", None)
        producer.send("t", b"x")  # pyright: ignore[reportArgumentType]
    with client.producer(linger=0) as producer:
        producer.send("t", "x")
        producer.send("t", {"a": 1})  # pyright: ignore[reportArgumentType]
    with client.producer(codec=Json()) as producer:
        producer.send("t", {"a": [1]})
        producer.send("t", Order(1))  # pyright: ignore[reportArgumentType]
    with Client(codec=Msgspec(Order)).producer() as producer:
        producer.send("t", Order(1))
        producer.send("t", "x")  # pyright: ignore[reportArgumentType]
    with Client(codec=Msgspec(Order)).producer(codec=None) as producer:
        producer.send("t", b"x")
    with Client(codec=Msgspec(Order)).producer(codec=Shout()) as producer:
        producer.send("t", "x")
    plain.send("t", b"x")
    client.producer(codec=5)  # pyright: ignore[reportArgumentType, reportCallIssue]
    client.producer(lingers=5)  # pyright: ignore[reportArgumentType, reportCallIssue]


async def an_awaited_producer(client: AsyncClient, plain: AsyncProducer) -> None:
    """The asynchronous one takes the same."""
    async with client.producer(codec=Msgspec(Order)) as producer:
        assert_type(producer, AsyncProducer[Order | None])
        await producer.send("t", Order(1))
        await producer.send("t", 5)  # pyright: ignore[reportArgumentType]
    await plain.send("t", "x")
    await plain.send("t", 5)  # pyright: ignore[reportArgumentType]


async def the_same_awaited(client: AsyncClient, plain: Consumer) -> None:
    """The asynchronous client has the same types."""
    async for message in client.consumer("t", codec=Msgspec(Order)):
        assert_type(message.value, Order)
    async for message in client.consumer("t"):
        assert_type(message, Message)
    assert_type((await client.get("t/0@0", codec=Msgspec(Order))).value, Order)
    await client.produce("t", Order(1), codec=Msgspec(Order))
    assert_type(plain.receive(), list[Message])
    async with AsyncClient(codec=Msgspec(Order)) as typed:
        assert_type((await typed.consumer("t").receive())[0].value, Order)


def queues(client: Client, typed: Client[TypedMessage[Order]]) -> None:
    """Messages of a queue are of the client's codec, or the call's; settling returns nothing."""
    for message in client.queue("t", "g"):
        assert_type(message, QueueMessage)
        assert_type(message.value, bytes | None)
        assert_type(message.ack(), None)
    for message in client.queue("t", group="g", codec=Msgspec(Order), max_attempts=3):
        assert_type(message, TypedQueueMessage[Order])
        assert_type(message.value, Order)
    for batch in typed.queue("t", "g").batches():
        assert_type(batch[0], TypedQueueMessage[Order])
        assert_type(batch[1:].ack(wait=True), None)
    assert_type(typed.queue("t", "g", codec=None).receive(5), list[QueueMessage])
    client.queue("t", "g").run(lambda message: print(message.attempt, message.raw))


async def queues_in_loops(client: AsyncClient, typed: AsyncClient[TypedMessage[Order]]) -> None:
    """The same in loops: settling may be awaited."""
    async for message in client.queue("t", "g").messages(limit=3):
        assert_type(message, AsyncQueueMessage)
        await message.ack(wait=True)
        message.nack()
    async for message in typed.queue("t", "g"):
        assert_type(message, AsyncTypedQueueMessage[Order])
        assert_type(message.value, Order)

    async def handle(message: AsyncQueueMessage) -> None:
        """Do nothing."""

    await client.queue("t", "g").run(handle, concurrency=4)
