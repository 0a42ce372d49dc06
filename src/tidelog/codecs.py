"""Codecs: how values that are more than bytes are sent and read. Any object with the same two methods is one too.

    from tidelog.codecs import Json, Msgspec, Pydantic

    client.produce("orders", Order(id=7), codec=Msgspec(Order))
    for message in client.consumer("orders", codec=Msgspec(Order)):
        message.value.id

Null never comes here: None is sent as null and read as None, whatever the codec. A topic that holds nulls says so in
the type: `Msgspec[Order | None](Order)`.

msgspec is loaded with the first codec, pydantic only with `Pydantic`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Literal, TypeVar, cast, overload

from .client.codec import Codec, Decoder, Encoder
from .client.headers import Headers

if TYPE_CHECKING:
    import msgspec
    import pydantic

__all__ = ["Codec", "Decoder", "Encoder", "Json", "JsonValue", "Msgspec", "Pydantic"]

T = TypeVar("T")
JsonValue = dict[str, "JsonValue"] | list["JsonValue"] | str | int | float | bool | None
"""What JSON text can be."""


class Json:
    """Any JSON, read as dicts, lists, text, numbers, truth values and None.

    Sent are these, and what msgspec can make of other types: dataclasses, times (ISO 8601), UUIDs, sets and the like;
    of what it does not know, `default` makes something it does. NaN and infinity are refused: JSON has neither.
    """

    def __init__(self, *, default: Callable[[object], object] | None = None) -> None:
        import msgspec

        self._default = default
        self._encoder = msgspec.json.Encoder(enc_hook=default)
        self._decoder = msgspec.json.Decoder()

    def __repr__(self) -> str:
        return "Json()" if self._default is None else f"Json(default={self._default!r})"

    def __reduce__(self) -> tuple[Callable[..., Json], tuple[Callable[[object], object] | None]]:
        return _json, (self._default,)

    def encode(self, value: object, headers: Headers, /) -> bytes:
        """Return a value as JSON text. Raises TypeError, ValueError."""
        if isinstance(value, bytes | bytearray | memoryview):  # msgspec would make base64 of it
            raise TypeError(
                "value: expected what JSON can say, found bytes or the like; codec=None sends bytes as they are"
            )
        data = self._encoder.encode(value)
        if b"null" in data:
            _refuse_nan(value, self._default)
        return data

    def decode(self, data: bytes, headers: Headers, /) -> JsonValue:
        """Return what JSON text says."""
        return cast("JsonValue", self._decoder.decode(data))


class Msgspec(Generic[T]):
    """One type, as msgspec reads and writes it: structs, dataclasses, TypedDicts, unions, lists of these and so on.

    What is read is checked against the type. Of what is sent only the class is, and what msgspec makes of its fields
    is sent as it is.
    """

    @overload
    def __init__(self, kind: type[T], format: Literal["json", "msgpack"] = "json") -> None: ...
    @overload
    def __init__(self, kind: object, format: Literal["json", "msgpack"] = "json") -> None: ...
    def __init__(self, kind: object, format: str = "json") -> None:  # noqa: A002
        import msgspec

        if format not in ("json", "msgpack"):
            raise ValueError(f'format: expected "json" or "msgpack", found {format!r}')
        wire = msgspec.json if format == "json" else msgspec.msgpack
        self._kind = kind
        self._format = format
        self._encoder: msgspec.json.Encoder | msgspec.msgpack.Encoder = wire.Encoder()
        self._decoder: msgspec.json.Decoder[object] | msgspec.msgpack.Decoder[object] = wire.Decoder(
            cast("type[object]", kind)
        )

    def __repr__(self) -> str:
        return f"Msgspec({_name(self._kind)}, {self._format!r})"

    def __reduce__(self) -> tuple[Callable[..., Msgspec[object]], tuple[object, str]]:
        return _msgspec, (self._kind, self._format)

    def encode(self, value: T, headers: Headers, /) -> bytes:
        """Return a value as JSON text or MessagePack. Raises TypeError for one of another class, ValueError."""
        if isinstance(self._kind, type) and not _is_a(value, self._kind):
            raise TypeError(f"value: expected {_name(self._kind)}, found {type(value).__name__}")
        data = self._encoder.encode(value)
        if self._format == "json" and b"null" in data:
            _refuse_nan(value, None)
        return data

    def decode(self, data: bytes, headers: Headers, /) -> T:
        """Return what was sent, checked against the type."""
        return cast("T", self._decoder.decode(data))


class Pydantic(Generic[T]):
    """A pydantic model, or any type that pydantic knows, as JSON by alias; checked where it is read and sent."""

    @overload
    def __init__(self, kind: type[T]) -> None: ...
    @overload
    def __init__(self, kind: object) -> None: ...
    def __init__(self, kind: object) -> None:
        try:
            import pydantic
        except ImportError as error:
            raise ImportError("Pydantic needs pydantic 2: pip install pydantic") from error
        self._kind = kind
        self._adapter: pydantic.TypeAdapter[object] = pydantic.TypeAdapter(cast("type[object]", kind))

    def __repr__(self) -> str:
        return f"Pydantic({_name(self._kind)})"

    def __reduce__(self) -> tuple[Callable[..., Pydantic[object]], tuple[object]]:
        return _pydantic, (self._kind,)

    def encode(self, value: T, headers: Headers, /) -> bytes:
        """Return a value as JSON text. Raises TypeError for one of another class, and what pydantic raises."""
        if isinstance(self._kind, type) and not _is_a(value, self._kind):
            raise TypeError(f"value: expected {_name(self._kind)}, found {type(value).__name__}")
        data = self._adapter.dump_json(value, by_alias=True, warnings="error")
        if b"null" in data:
            json.dumps(self._adapter.dump_python(value, mode="json"), allow_nan=False)
        return data

    def decode(self, data: bytes, headers: Headers, /) -> T:
        """Return what was sent, checked against the type."""
        return cast("T", self._adapter.validate_json(data))


def _refuse_nan(value: object, default: Callable[[object], object] | None) -> None:
    """Raise ValueError for NaN and infinity, which msgspec writes as null: what is read would not be what was sent."""
    import msgspec

    json.dumps(msgspec.to_builtins(value, enc_hook=default, str_keys=True), allow_nan=False)


def _is_a(value: object, kind: type) -> bool:
    try:
        return isinstance(value, int | float if kind is float else kind)
    except TypeError:  # a TypedDict or the like, which is no class at runtime
        return True


def _name(kind: object) -> str:
    return kind.__name__ if type(kind) is type or isinstance(kind, type) else repr(kind)


def _json(default: Callable[[object], object] | None) -> Json:
    return Json(default=default)


def _msgspec(kind: object, format: str) -> Msgspec[object]:  # noqa: A002
    return Msgspec[object](kind, cast('Literal["json", "msgpack"]', format))


def _pydantic(kind: object) -> Pydantic[object]:
    return Pydantic[object](kind)
