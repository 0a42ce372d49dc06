"""One message as a consumer sees it: its value as bytes, or as what a codec makes of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, cast

import msgspec

from ..protocol.errors import DecodeError
from ..protocol.topic_name import full_name, short_name
from .core.times import from_us
from .headers import NO_HEADERS, Headers
from .shortening import shortened

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .codec import Decoder

    Value = TypeVar("Value", default=object)
else:
    from typing import TypeVar

    Value = TypeVar("Value")

ORIGIN_ID_HEADER = "tidelog.origin_id"
"""Where a copy carries the first id that its producer was given."""

MAX_CAUSE = 500
"""Characters of a codec's own error that a DecodeError repeats: some list every field of a value."""


class _Undecoded(Enum):
    """What stands in place of a value that nobody has asked for."""

    UNDECODED = "undecoded"


UNDECODED: Final = _Undecoded.UNDECODED


@lru_cache(maxsize=1024)
def _where(topic: str, topic_count: int) -> str:
    """Return what the ids of a topic's messages begin with: checking a name costs 6 us."""
    return short_name(full_name(topic)) + (f"~{topic_count}" if topic_count > 1 else "")


class Located:
    """What every message can say of itself, with a codec or without."""

    __slots__ = ()

    topic: str
    partition: int
    offset: int
    key: bytes | None
    timestamp_us: int
    append_time_us: int
    priority: int
    headers: Headers
    topic_count: int

    @property
    def id(self) -> str:
        """Where the record is, `orders/2@45678`: what `client.get` takes."""
        return f"{_where(self.topic, self.topic_count)}/{self.partition}@{self.offset}"

    @property
    def origin_id(self) -> str:
        """The first id that the producer was given; equals `receipt.id` and, unless the record was moved, `id`."""
        headers = self.headers
        origin = None if headers is NO_HEADERS else headers.get(ORIGIN_ID_HEADER)
        return self.id if origin is None else origin.decode()

    @property
    def timestamp(self) -> datetime:
        """The producer's time, in UTC; OverflowError outside the years 1 to 9999 (see `timestamp_us`)."""
        return from_us(self.timestamp_us)

    @property
    def append_time(self) -> datetime:
        """When the broker appended it, in UTC: never decreases within a partition."""
        return from_us(self.append_time_us)

    def _shown(self, name: str, data: bytes | None) -> str:
        """Return what stands in a repr: of long values the beginning and the size."""
        try:
            time = f"timestamp={self.timestamp.isoformat()}"
        except OverflowError:
            time = f"timestamp_us={self.timestamp_us}"
        parts = [f"topic={self.topic!r}", f"partition={self.partition}", f"offset={self.offset}"]
        parts += [f"key={shortened(self.key)}", f"{name}={shortened(data)}", time]
        if self.priority != 4:
            parts.append(f"priority={self.priority}")
        if self.headers:
            parts.append(f"headers={self.headers!r}")
        if self.topic_count > 1:
            parts.append(f"topic_count={self.topic_count}")
        return f"{type(self).__name__}({', '.join(parts)})"


class Message(Located, msgspec.Struct, frozen=True, gc=False):
    """A record of a topic. `key` and `value` are bytes, or None where the producer sent null; b"" is not null.

    A message is always true, an empty one too. Times are kept as whole microseconds (`timestamp_us` is the
    producer's, `append_time_us` the broker's) and read as datetimes. It pickles as plain data.

    Measured: 45 ns to make one by `map`; a slotted class takes 200.
    """

    topic: str
    """As it is shown: without the namespace where that is `default`."""
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_us: int
    append_time_us: int
    priority: int = 4
    headers: Headers = NO_HEADERS
    topic_count: int = 1
    """How often a topic of this name was made, this one included."""

    def __repr__(self) -> str:
        return self._shown("value", self.value)

    @property
    def raw(self) -> bytes | None:
        """The value as it is stored; here the same as `value`."""
        return self.value


class TypedMessage(Located, msgspec.Struct, Generic[Value], frozen=True, eq=False):
    """A record of a topic that is read with a codec: `raw` has the bytes of its value, `value` what they mean.

    `value` is decoded when it is first asked for, and then kept. Null is None, whatever the codec. Two messages are
    equal if their bytes and all else that is stored are. It pickles as data, without the codec: with its value, or
    with the DecodeError of one that does not decode.
    """

    topic: str
    """As it is shown: without the namespace where that is `default`."""
    partition: int
    offset: int
    key: bytes | None
    raw: bytes | None
    timestamp_us: int
    append_time_us: int
    codec: Decoder[object] | DecodeError | None
    """What decodes the value; in a message that was unpickled, why it did not decode, or None."""
    priority: int = 4
    headers: Headers = NO_HEADERS
    topic_count: int = 1
    """How often a topic of this name was made, this one included."""
    _decoded: object = UNDECODED
    """The value, once it was asked for."""

    @property
    def value(self) -> Value:
        """What the codec makes of the bytes. Raises DecodeError, with the codec's own error as its cause."""
        found = self._decoded
        if found is UNDECODED:
            found = self._decode()
            msgspec.structs.force_setattr(self, "_decoded", found)
        return cast("Value", found)

    def _decode(self) -> object:
        raw, codec = self.raw, self.codec
        if raw is None or codec is None:
            return None
        if isinstance(codec, DecodeError):
            raise DecodeError(codec.message, **codec.details)
        try:
            return codec.decode(raw, self.headers)
        except Exception as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> DecodeError:
        cause = f"{type(error).__name__}: {error}"
        return DecodeError(
            f"{self.id}: expected a value that {self.codec!r} reads, found {shortened(self.raw)}: {cause[:MAX_CAUSE]}",
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            cause=cause[:MAX_CAUSE],
        )

    def _stored(self) -> tuple[object, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.key,
            self.raw,
            self.timestamp_us,
            self.append_time_us,
            self.priority,
            self.headers,
            self.topic_count,
        )

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TypedMessage):
            return self._stored() == cast("TypedMessage[object]", other)._stored()
        return NotImplemented

    def __hash__(self) -> int:
        return hash(self._stored())

    def __repr__(self) -> str:
        return self._shown("raw", self.raw)

    def __reduce__(self) -> tuple[Callable[..., TypedMessage[object]], tuple[object, ...]]:
        codec: DecodeError | None = None
        decoded: object = UNDECODED
        try:
            decoded = self.value
        except DecodeError as error:
            codec = error
        head, tail = self._stored()[:7], self._stored()[7:]
        return TypedMessage[object], (*head, codec, *tail, decoded)


if TYPE_CHECKING:
    AnyMessage = TypeVar("AnyMessage", bound=Located, default=Message)
else:
    AnyMessage = TypeVar("AnyMessage")
