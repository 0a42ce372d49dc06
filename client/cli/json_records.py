"""Messages as JSON, one object a line: what `--output json` writes and `--input json` reads back.

Text stands as it is where bytes are UTF-8, else as base64 in a field of its own, so that every message makes the
round trip exactly, null and empty apart:

    {"id": "orders/0@7", "topic": "orders", "partition": 0, "offset": 7,
     "timestamp": "2025-01-14T15:00:00.000000Z", "append_time": "2025-01-14T15:00:00.000213Z", "priority": 4,
     "key": "o-1" | null,            or "key_base64": "//8="
     "value": "text" | null,         or "value_base64": "AAH/"
     "headers": [["source", "web"], ["trace", null], ["raw", {"base64": "//8="}]]}

A time outside the years 1 to 9999 is written as `timestamp_us`, a whole number. Read, but never written, are also a
`dedup_id` (or `dedup_id_base64`), which is spent when the message is stored, its copy being another message; and a
`retry` (`retry_text` has its form), which only `dlq` writes: other readers are told nothing of it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import msgspec

from ..core.times import from_us
from ..retry import Retry
from .escaping import json_safe
from .retry_text import read_retry
from .times import format_time_us, parse_iso

Pair = tuple[str, bytes | None]

DEFAULT_PRIORITY = 4

_ABOUT_THE_STORED = frozenset(
    {"id", "origin_id", "topic", "offset", "append_time", "append_time_us"}
    | {"attempt", "previous_error", "lease_token", "lease_expires_at", "groups", "dead_letter"}
)
"""Fields that say where a message was, and what groups made of it; a new message is another, so they are not read."""
_READ = frozenset(
    {"key", "key_base64", "value", "value_base64", "headers", "priority", "timestamp", "timestamp_us", "partition"}
    | {"dedup_id", "dedup_id_base64", "retry"}
)
_KNOWN = _READ | _ABOUT_THE_STORED


@dataclass(frozen=True, slots=True)
class Record:
    """One message to produce. `partition` is where it was read from, if the object says so."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[Pair, ...] = ()
    priority: int = DEFAULT_PRIORITY
    timestamp: datetime | None = None
    partition: int | None = None
    dedup_id: bytes | None = None
    retry: Retry | None = None


def encode_object(fields: Mapping[str, object]) -> str:
    """Return one line of JSON, safe to print anywhere."""
    return json_safe(msgspec.json.encode(fields).decode())


def bytes_fields(name: str, data: bytes | None) -> dict[str, object]:
    """Return a field of bytes: `{name: text}`, or `{name_base64: ...}` where they are not UTF-8."""
    text = _text_or_base64(data)
    return {name: text} if not isinstance(text, dict) else {f"{name}_base64": text["base64"]}


def header_list(headers: Iterable[Pair]) -> list[list[object]]:
    """Return headers as pairs, in order, repeats kept."""
    return [[name, _text_or_base64(value)] for name, value in headers]


def time_fields(name: str, time_us: int) -> dict[str, object]:
    """Return a time as ISO 8601, or as `name_us` where ISO 8601 has no year for it."""
    text = format_time_us(time_us)
    return {f"{name}_us": time_us} if text is None else {name: text}


def decode_record(line: bytes, defaults: Record) -> Record:
    """Read a line of JSON as a message; a field it leaves out is taken from `defaults`.

    Raises ValueError that says what was expected and what was found.
    """
    try:
        fields: object = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _refuse_lone_surrogate(line, defaults)
        raise ValueError(f"expected a JSON object, found text that is none: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"expected a JSON object, found {_kind(fields)}")
    known = cast(dict[str, object], fields)
    if _may_repeat(line, len(known)):
        _refuse_repeats(line)
    return _record(known, defaults)


def _refuse_lone_surrogate(line: bytes, defaults: Record) -> None:
    """Raise ValueError if half a pair of surrogates is what is wrong: msgspec calls that anything."""
    try:
        fields: object = json.loads(line.decode(), parse_constant=_refuse_constant)
        text = json.dumps(fields, ensure_ascii=False)
    except (ValueError, RecursionError):
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        if isinstance(fields, dict):
            _record(cast(dict[str, object], fields), defaults)  # names the field, if it is one that is read
        raise ValueError("expected text that is valid Unicode, found a lone surrogate") from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"expected JSON, found {name}")


def _may_repeat(line: bytes, fields: int) -> bool:
    """Whether a line may have a field twice, by counting the ends of names: nothing that a good line would notice.

    Text within a value cannot look like the end of a name, since a quote is escaped there.
    """
    ends = line.count(b'":')
    if ends > fields and b"\\" in line:
        ends -= line.count(b'\\":')
    return ends > fields or b" :" in line or b"\t" in line or b"\r" in line


def _refuse_repeats(line: bytes) -> None:
    """Raise ValueError for a field that is there twice, of which one would be lost."""

    def check(pairs: list[tuple[str, object]]) -> None:
        names = [name for name, _ in pairs]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise ValueError(f"expected each field once, found {repeated!r} twice")

    with suppress(RecursionError):  # what is nested so deep is refused as a value
        json.loads(line, object_pairs_hook=check)


def _record(fields: dict[str, object], defaults: Record) -> Record:
    if not fields.keys() <= _KNOWN:
        unknown = min(fields.keys() - _KNOWN)
        raise ValueError(f"expected the fields {', '.join(sorted(_READ))}, found {unknown!r}")
    if not fields.keys() & {"value", "value_base64"}:
        raise ValueError("expected a value (text or null) or a value_base64, found neither")
    return Record(
        value=_read_bytes(fields, "value", None),
        key=_read_bytes(fields, "key", defaults.key),
        headers=_read_headers(fields["headers"]) if "headers" in fields else defaults.headers,
        priority=_read_int(fields, "priority", 0, 9) if "priority" in fields else defaults.priority,
        timestamp=_read_time(fields),
        partition=_read_int(fields, "partition", 0, (1 << 30) - 1) if "partition" in fields else None,
        dedup_id=_read_dedup_id(fields, defaults.dedup_id),
        retry=read_retry(fields["retry"]) if "retry" in fields else defaults.retry,
    )


def _read_bytes(fields: dict[str, object], name: str, default: bytes | None) -> bytes | None:
    encoded = f"{name}_base64"
    if name in fields and encoded in fields:
        raise ValueError(f"expected {name} or {encoded}, found both")
    if encoded in fields:
        return _from_base64(fields[encoded], encoded)
    return _from_text(fields[name], name) if name in fields else default


def _read_dedup_id(fields: dict[str, object], default: bytes | None) -> bytes | None:
    found = _read_bytes(fields, "dedup_id", default)
    if found == b"":
        raise ValueError("dedup_id: expected at least one byte, or null for none, found none")
    return found


def _from_text(found: object, name: str) -> bytes | None:
    if found is None:
        return None
    if not isinstance(found, str):
        raise ValueError(f"{name}: expected text or null, found {_kind(found)}")
    try:
        return found.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: expected text that is valid Unicode, found a lone surrogate") from None


def _from_base64(found: object, name: str) -> bytes:
    if not isinstance(found, str):
        raise ValueError(f"{name}: expected base64, found {_kind(found)}")
    try:
        return base64.b64decode(found, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}: expected base64, found {found[:40]!r}") from None


def _read_headers(found: object) -> tuple[Pair, ...]:
    form = 'headers: expected pairs such as [["source", "web"]]'
    if not isinstance(found, list):
        raise ValueError(f"{form}, found {_kind(found)}")
    pairs: list[Pair] = []
    for pair in cast(list[object], found):
        if not isinstance(pair, list) or len(cast(list[object], pair)) != 2:
            raise ValueError(f"{form}, found {_kind(cast(object, pair))} in the list")
        name, value = cast(list[object], pair)
        name_bytes = _from_text(name, "a header's name")
        if name_bytes is None:
            raise ValueError("a header's name: expected text, found null")
        pairs.append((name_bytes.decode(), _header_value(value)))
    return tuple(pairs)


def _header_value(found: object) -> bytes | None:
    if isinstance(found, dict):
        fields = cast(dict[str, object], found)
        if fields.keys() != {"base64"}:
            raise ValueError('a header\'s value: expected text, null or {"base64": ...}, found another object')
        return _from_base64(fields["base64"], "a header's base64")
    return _from_text(found, "a header's value")


def _read_int(fields: dict[str, object], name: str, low: int, high: int) -> int:
    found = fields[name]
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
        shown = found if isinstance(found, int | float) and not isinstance(found, bool) else _kind(found)
        raise ValueError(f"{name}: expected a whole number from {low} to {high}, found {shown}")
    return found


def _read_time(fields: dict[str, object]) -> datetime | None:
    if "timestamp_us" in fields:
        if "timestamp" in fields:
            raise ValueError("expected timestamp or timestamp_us, found both")
        return _time_from_us(_read_int(fields, "timestamp_us", -(1 << 62), (1 << 62) - 1))
    found = fields.get("timestamp")
    if found is None:
        return None
    if not isinstance(found, str):
        raise ValueError(f"timestamp: expected a time such as 2025-01-14T15:00:00Z, found {_kind(found)}")
    try:
        return parse_iso(found)
    except ValueError as error:
        raise ValueError(f"timestamp: {error}") from None


def _time_from_us(time_us: int) -> datetime:
    try:
        return from_us(time_us)
    except OverflowError:
        raise ValueError(f"timestamp_us: expected a time of the years 1 to 9999, found {time_us}") from None


def _text_or_base64(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def _kind(found: object) -> str:
    return next((name for kind, name in _KINDS.items() if isinstance(found, kind)), "something else")
