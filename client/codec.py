"""How values become bytes and come back: what `codec=` takes, and where it is called.

Null is None on both sides and never goes through a codec.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from .core.arguments import checked_column, listed
from .core.data import Data
from .core.given import Arrow, arrow, is_arrow, to_header_columns
from .core.record import to_pairs
from .core.times import DEFAULT, Default
from .headers import NO_HEADERS, Headers, HeadersInput, headers_of

T = TypeVar("T")
Sent = TypeVar("Sent", contravariant=True)
Read = TypeVar("Read", covariant=True)

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    Taken = TypeVarWithDefault("Taken", contravariant=True, default=Data)
else:
    Taken = TypeVar("Taken", contravariant=True)
"""What a producer takes as a value: without a codec what is bytes."""


class Encoder(Protocol[Sent]):
    """What sending needs of a codec."""

    def encode(self, value: Sent, headers: Headers, /) -> bytes:
        """Return a value as it is sent; `headers` are those given with it. What it raises reaches who sends."""
        ...


class Decoder(Protocol[Read]):
    """What reading needs of a codec."""

    def decode(self, data: bytes, headers: Headers, /) -> Read:
        """Return what was sent. What it raises is the cause of the DecodeError that `message.value` raises."""
        ...


class Codec(Encoder[T], Decoder[T], Protocol[T]):
    """Both ways for one type of values. Any object with the two methods is one; it may be called from any thread."""


def check_codec(codec: object, *methods: str) -> None:
    """Raise TypeError unless this is a codec with these methods."""
    if isinstance(codec, type):
        raise TypeError(f"codec: expected a codec, found the class {codec.__name__}; write {codec.__name__}(...)")
    for method in methods:
        if not callable(getattr(codec, method, None)):
            raise TypeError(
                "codec: expected an object with encode(value, headers) and decode(data, headers),"
                f" such as those of tidelog.codecs, found {codec!r} without {method}"
            )


def checked_codec(codec: object) -> Codec[object] | None:
    """Return what a client was given. Raises TypeError unless it is a codec or None."""
    if codec is not None:
        check_codec(codec, "encode", "decode")
    return cast("Codec[object] | None", codec)


def chosen_encoder(codec: Encoder[T] | Default | None, default: Encoder[object] | None) -> Encoder[object] | None:
    """Return what a call encodes with: what it was given, None for nothing, or else the client's. Raises TypeError."""
    if codec is DEFAULT:
        return default
    if codec is not None:
        check_codec(codec, "encode")
    return cast("Encoder[object] | None", codec)


def chosen_decoder(codec: Decoder[T] | Default | None, default: Decoder[object] | None) -> Decoder[object] | None:
    """Return what a call decodes with: what it was given, None for nothing, or else the client's. Raises TypeError."""
    if codec is DEFAULT:
        return default
    if codec is not None:
        check_codec(codec, "decode")
    return cast("Decoder[object] | None", codec)


def as_headers(given: HeadersInput | None, name: str = "headers") -> Headers:
    """Return headers in the form that codecs see, which may be sent as well. Raises what `to_pairs` raises."""
    if given is None:
        return NO_HEADERS
    return given if isinstance(given, Headers) else headers_of(to_pairs(given, name))


def encode_value(codec: Encoder[object], value: object, headers: Headers) -> Data:
    """Return a value as the codec makes it; None stays None. Raises what the codec raises, or TypeError."""
    if value is None:
        return None
    data = cast("object", codec.encode(value, headers))
    if type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return cast("bytes | bytearray | memoryview", data)
    raise TypeError(f"codec: expected encode to return bytes, found {type(data).__name__} from {codec!r}")


def encode_values(codec: Encoder[object], values: Iterable[object], headers: list[Headers] | None) -> list[Data]:
    """Return a column as the codec makes it; nothing of it when one value fails, and a note on the error has the row.

    Raises what the codec raises, or TypeError, or ValueError when there are not as many headers as values.
    """
    rows = listed("values", values, "messages")
    if headers is not None and len(headers) != len(rows):
        raise ValueError(f"headers: expected {len(rows)} entries, one for each value, found {len(headers)}")
    encoded: list[Data] = []
    for row, (value, each) in enumerate(zip(rows, headers or repeat(NO_HEADERS), strict=False)):
        try:
            encoded.append(encode_value(codec, value, each))
        except Exception as error:
            error.add_note(f"in values[{row}]")
            raise
    return encoded


def encoded_columns(
    encoder: Encoder[object] | None,
    values: Iterable[object] | Arrow,
    headers: Iterable[HeadersInput | None] | Arrow | None,
) -> tuple[Iterable[Data] | Arrow, Iterable[HeadersInput | None] | Arrow | None]:
    """Return values as a codec makes them, if there is one, and the headers that it saw. Raises what `encode_values`
    raises."""
    if encoder is None:
        return cast("Iterable[Data] | Arrow", values), headers
    objects = arrow().rows(values, "values") if is_arrow(values) else cast("Iterable[object]", values)
    pairs = to_header_columns(cast("Arrow", headers)) if is_arrow(headers) else headers
    seen = checked_column("headers", as_headers, cast("Iterable[HeadersInput | None] | None", pairs), "headers")
    return encode_values(encoder, objects, seen), seen
