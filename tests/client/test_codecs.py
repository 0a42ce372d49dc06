"""Values through codecs: sent, read, typed, and what does not decode."""

from __future__ import annotations

import inspect
import math
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pydantic
import pytest

from tests.client.flavours import World, everywhere
from tidelog import AsyncClient, Client, DecodeError, Headers, Message, Producer, TypedMessage
from tidelog.client.core import options
from tidelog.codecs import Json, Msgspec, Pydantic
from tidelog.protocol.messages import Produce

ROOT = Path(__file__).parent.parent.parent


class Order(msgspec.Struct):
    """A struct."""

    id: int
    note: str | None = None


class Parcel(pydantic.BaseModel):
    """A model with an alias."""

    weight: float
    to: str = pydantic.Field("", alias="recipient")


class Tagged:
    """A codec of one's own that looks at the headers, and counts how often it decodes."""

    def __init__(self) -> None:
        self.decoded = 0

    def encode(self, value: object, headers: Headers) -> Any:
        """Refuse what says so, and return something else than bytes where asked."""
        if value == "refused":
            raise RuntimeError("not this one")
        return 5 if value == "five" else f"{value}/{headers.get('unit', b'').decode()}".encode()

    def decode(self, data: bytes, headers: Headers) -> str:
        """Say what came, with the unit of the headers."""
        self.decoded += 1
        if b"bad" in data:
            raise ValueError("found something bad")
        return f"{data.decode()}:{headers.get('unit', b'').decode()}"


@everywhere
async def test_values_make_the_round_trip_by_every_call(world: World) -> None:
    """produce, produce_many, consumer, receive, batches, replay, and get, each with the codec of the call."""
    orders: list[Order | None] = [Order(1), None, Order(3, "x")]
    for topic, codec in (("json", Msgspec(Order)), ("msgpack", Msgspec(Order, "msgpack"))):
        async with world.client() as client:
            first = await client.produce(topic, orders[0], codec=codec, partition=0)
            await client.produce_many(topic, orders[1:], codec=codec, partition=0)
            async with client.consumer(topic, codec=codec, end="latest") as consumer:
                messages = [message async for message in consumer]
            assert [message.value for message in messages] == orders
            assert messages[0].raw == codec.encode(Order(1), Headers())
            assert messages[1].raw is None
            async with client.consumer(topic, codec=codec) as consumer:
                assert (await consumer.receive())[0].value == Order(1)
            async with client.replay(topic, codec=codec) as replay:
                decoded = [value async for batch in replay for value in batch.decode()]
                assert decoded == orders
            async with client.replay(topic, codec=codec) as replay:
                assert [message.value async for message in replay.messages()] == orders
            assert (await client.get(first.id, codec=codec)).value == Order(1)
            plain = await client.get(first.id)
            assert type(plain) is Message
            assert plain.value == plain.raw == messages[0].raw


@everywhere
async def test_a_client_has_a_codec_for_all_calls(world: World) -> None:
    """A call's own wins, and None means bytes."""
    async with world.client(codec=Json()) as client:
        receipt = await client.produce("t", {"a": [1, None, "x"]})
        await client.produce("t", b"\x00", codec=None)
        await client.produce("t", Order(5), codec=Msgspec(Order))
        await client.produce_many("t", [{"b": 2}, None, "text", 1.5, [True]])
        async with client.consumer("t", end="latest") as consumer:
            messages = [message async for message in consumer]
        assert messages[0].value == {"a": [1, None, "x"]}
        with pytest.raises(DecodeError, match=r"^t/0@1: expected a value that Json\(\) reads, found b'\\x00': "):
            messages[1].value  # noqa: B018
        assert [message.value for message in messages[2:]] == [
            {"id": 5, "note": None},
            {"b": 2},
            None,
            "text",
            1.5,
            [True],
        ]
        assert (await client.get(receipt.id)).value == {"a": [1, None, "x"]}
        assert (await client.get(receipt.id, codec=None)).value == b'{"a":[1,null,"x"]}'
        async with client.consumer("t", end="latest", codec=None) as consumer:
            assert (await consumer.receive())[0].value == b'{"a":[1,null,"x"]}'


@everywhere
async def test_headers_go_to_the_codec_both_ways(world: World) -> None:
    """Also those of a column, and those that can be iterated over once."""
    codec = Tagged()
    async with world.client() as client:
        await client.produce("t", 1, codec=codec, headers={"unit": "m"})
        await client.produce("t", 2, codec=codec, headers=iter([("unit", b"s")]))
        await client.produce_many("t", [3, 4, None], codec=codec, headers=[[("unit", "kg")], None, {"unit": "A"}])
        async with client.consumer("t", codec=codec, end="latest") as consumer:
            messages = [message async for message in consumer]
    assert [message.value for message in messages] == ["1/m:m", "2/s:s", "3/kg:kg", "4/:", None]
    assert [message.headers.get("unit") for message in messages] == [b"m", b"s", b"kg", None, b"A"]


@everywhere
async def test_what_a_codec_refuses_is_not_sent(world: World) -> None:
    """Its own error is raised where the user calls; of a list nothing goes, and a note has the row."""
    codec = Tagged()
    async with world.client() as client:
        with pytest.raises(RuntimeError, match="not this one"):
            await client.produce("t", "refused", codec=codec)
        with pytest.raises(RuntimeError, match="not this one") as caught:
            await client.produce_many("t", ["a", "b", "refused"], codec=codec)
        assert caught.value.__notes__ == ["in values[2]"]
        with pytest.raises(TypeError, match="expected encode to return bytes, found int from"):
            await client.produce("t", "five", codec=codec)
        with pytest.raises(ValueError, match="headers: expected 2 entries, one for each value, found 1"):
            await client.produce_many("t", [1, 2], headers=[None], codec=codec)
        with pytest.raises(TypeError, match="expected a list of messages, found one str"):
            await client.produce_many("t", "ab", codec=codec)
        assert world.broker.count(Produce) == 0


@everywhere
async def test_what_is_no_codec_is_refused(world: World) -> None:
    """Before anything is sent, by every call and the client itself."""
    with pytest.raises(TypeError, match=r"codec: expected a codec, found the class Json; write Json\(...\)"):
        world.client(codec=Json)
    async with world.client() as client:
        for call in (client.consumer, client.replay):
            with pytest.raises(TypeError, match=r"such as those of tidelog\.codecs, found 5 without decode"):
                call("t", codec=5)
        for sending in (client.produce, client.produce_many):
            with pytest.raises(TypeError, match="found 5 without encode"):
                await sending("t", [], codec=5)
        with pytest.raises(TypeError, match="found 5 without decode"):
            await client.get("t/0@0", codec=5)
    assert world.broker.requests == []


@everywhere
async def test_a_value_that_does_not_decode_never_ends_the_loop(world: World) -> None:
    """The error is that of `value`, with where it is and why; `raw` has the bytes, and the others are read."""
    codec = Tagged()
    async with world.client() as client:
        await client.produce_many("t", [b"a", b"bad", None, b"c"], partition=0)
        async with client.consumer("t", codec=codec, end="latest") as consumer:
            messages = [message async for message in consumer]
        assert codec.decoded == 0
        with pytest.raises(DecodeError) as caught:
            messages[1].value  # noqa: B018
        error = caught.value
        assert (error.topic, error.partition, error.offset, error.retriable) == ("t", 0, 1, False)
        assert error.details["cause"] == "ValueError: found something bad"
        assert isinstance(error.__cause__, ValueError)
        assert messages[1].raw == b"bad"
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.offset) == (DecodeError, str(error), 1)
        assert [messages[at].value for at in (0, 2, 3)] == ["a:", None, "c:"]
        async with client.replay("t", codec=codec) as replay:
            (batch,) = [batch async for batch in replay]
        assert list(batch.values) == [b"a", b"bad", None, b"c"]
        with pytest.raises(DecodeError):
            batch.decode()
        kept = batch.decode(on_error="keep")
        assert [kept[0], kept[2], kept[3]] == ["a:", None, "c:"]
        assert isinstance(kept[1], DecodeError)
        assert batch[2:].decode() == [None, "c:"]
        assert batch[0].value == "a:"
        with pytest.raises(ValueError, match="on_error"):
            batch.decode(on_error="skip")
        async with client.replay("t") as replay:
            with pytest.raises(TypeError, match="read with codec="):
                (await replay.__aiter__().__anext__()).decode()


def typed(codec: Any, raw: bytes | None = b"x", **changes: Any) -> TypedMessage[Any]:
    """Return a message that is read with a codec."""
    return TypedMessage(
        **{
            "topic": "t",
            "partition": 2,
            "offset": 5,
            "key": b"k",
            "raw": raw,
            "timestamp_us": 1,
            "append_time_us": 2,
            "codec": codec,
            **changes,
        }
    )  # type: ignore[arg-type]


def test_a_value_is_decoded_once_and_only_if_it_is_asked_for() -> None:
    """The first access decodes, the others return the same object."""
    codec = Tagged()
    message = typed(codec)
    assert codec.decoded == 0
    assert message.value is message.value
    assert codec.decoded == 1


def test_a_typed_message_is_data() -> None:
    """Equal by what is stored, true, and pickled with its value or its error, without a codec that may not pickle."""
    codec = Tagged()
    codec.encode = lambda value, headers: b""  # type: ignore[method-assign]
    message = typed(codec, headers=Headers([("unit", b"m")]), priority=9)
    assert message == typed(None, headers=Headers([("unit", b"m")]), priority=9)
    assert message != typed(codec)
    assert hash(message) == hash(typed(None, headers=Headers([("unit", b"m")]), priority=9))
    copy = pickle.loads(pickle.dumps(message))
    assert (copy, copy.value, copy.raw, copy.priority) == (message, "x:m", b"x", 9)
    assert typed(codec, b"")
    assert pickle.loads(pickle.dumps(typed(codec, None))).value is None
    damaged = pickle.loads(pickle.dumps(typed(codec, b"bad")))
    for _ in range(2):
        with pytest.raises(DecodeError, match="found something bad") as caught:
            damaged.value  # noqa: B018
        assert caught.value.offset == 5
    assert repr(typed(codec)) == (
        "TypedMessage(topic='t', partition=2, offset=5, key=b'k', raw=b'x', timestamp=1970-01-01T00:00:00.000001+00:00)"
    )


def test_a_repr_is_short_whatever_the_message_holds() -> None:
    """Of long keys, values and headers the beginning and the size."""
    big = typed(None, b"x" * 1_000_000, key=b"k" * 1000, headers=Headers([("h" * 100, b"v" * 100)] * 1000))
    assert len(repr(big)) < 5_000
    assert "... (1,000,000 bytes)" in repr(big)
    assert "and 990 more" in repr(big)


@pytest.mark.parametrize(
    ("codec", "values"),
    [
        (Json(), [{"a": [1, None, 1.5, "ü"]}, [], "", 0, False, 2**70]),
        (Msgspec(Order), [Order(1), Order(2, "note")]),
        (Msgspec(Order, "msgpack"), [Order(1), Order(2, "note")]),
        (Msgspec(list[Order]), [[], [Order(1)]]),
        (Msgspec(float), [1, 1.5]),
        (Pydantic(Parcel), [Parcel(weight=1, recipient="a")]),
        (Pydantic(dict[str, Parcel]), [{"x": Parcel(weight=2)}]),
    ],
    ids=repr,
)
def test_codecs_read_what_they_write(codec: Any, values: list[Any]) -> None:
    """Every value comes back as it was sent, from a copy in another process too."""
    copy = pickle.loads(pickle.dumps(codec))
    assert repr(copy) == repr(codec)
    for value in values:
        assert copy.decode(codec.encode(value, Headers()), Headers()) == value


@pytest.mark.parametrize(
    ("codec", "value", "error"),
    [
        (Json(), math.nan, "not JSON compliant"),
        (Json(), {"a": [math.inf]}, "not JSON compliant"),
        (Json(), b"already bytes", "codec=None sends bytes as they are"),
        (Json(), object(), "unsupported"),
        (Msgspec(Order), {"id": 1}, "expected Order, found dict"),
        (Msgspec(float), math.nan, "not JSON compliant"),
        (Pydantic(Parcel), {"weight": 1}, "expected Parcel, found dict"),
        (Pydantic(Parcel), Parcel(weight=math.nan), "not JSON compliant"),
        (Pydantic(list[Parcel]), [5], "Expected `Parcel`"),
    ],
)
def test_codecs_refuse_what_would_not_come_back(codec: Any, value: object, error: str) -> None:
    """What would be read as something else is an error where it is sent."""
    with pytest.raises((TypeError, ValueError), match=error):
        codec.encode(value, Headers())


def test_options_of_codecs() -> None:
    """Another format is refused by name; `default` says what becomes of other types."""
    with pytest.raises(ValueError, match='format: expected "json" or "msgpack", found \'yaml\''):
        Msgspec(Order, cast("Any", "yaml"))
    assert Json(default=repr).encode({"a": complex(1, 2)}, Headers()) == b'{"a":"(1+2j)"}'


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (Client.__init__, options.ClientOptions),
        (Client.produce, options.RecordOptions),
        (Client.produce_many, options.ColumnOptions),
        (Client.producer, options.SendingOptions),
        (Producer.send, options.MessageOptions),
        (Client.consumer, options.ConsumerOptions),
        (Client.replay, options.ReplayOptions),
        (Client.queue, options.QueueOptions),
        (AsyncClient.consumer, options.ConsumerOptions),
    ],
    ids=lambda each: each.__name__,
)
def test_the_forms_of_a_call_take_the_same_options(call: Callable[..., Any], kind: type) -> None:
    """What type checkers see of a call with several forms is what it takes, name by name and type by type."""
    found = {
        name: parameter.annotation
        for name, parameter in inspect.signature(call).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "codec"
    }
    assert kind.__annotations__.keys() == found.keys()
    assert {name: hint.__forward_arg__ for name, hint in kind.__annotations__.items()} == found


def test_codecs_load_only_what_they_use() -> None:
    """Importing them loads neither pydantic nor anything of the network; Json and Msgspec do without pydantic."""
    script = (
        "import sys, tidelog.codecs as c; c.Json(); c.Msgspec(int);"
        "print([name for name in ('pydantic', 'anyio', 'trio', 'socket') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_type_checkers_know_the_values_of_messages() -> None:
    """Pyright in strict mode reads tests/typing without an error: codecs, and the words that arguments may be."""
    pyright = Path(sys.executable).parent / "pyright"
    if not pyright.exists():
        pytest.skip("needs pyright: pip install tidelog[dev]")
    command = [str(pyright), "--pythonpath", sys.executable, "tests/typing"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
