"""How the broker's commands show what they found: for people, or one JSON object a line.

Bytes are text where they are UTF-8 and base64 elsewhere (`value_base64`), times are ISO 8601. What comes from stored
files may hold anything, so control and direction characters are escaped in both forms.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Annotated, cast

import typer

_PLAIN = re.compile(r"[A-Za-z0-9._:/@+,~%-]+", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OutputFormat(Enum):
    """For people, or for programs."""

    TABLE = "table"
    JSON = "json"


Output = Annotated[
    OutputFormat, typer.Option("--output", metavar="table|json", help="For people, or one JSON object a line.")
]


def as_json(fields: Mapping[str, object]) -> str:
    """Return one line of JSON, safe to print anywhere."""
    shown: dict[str, object] = {}
    for name, value in fields.items():
        shown |= _field(name, value)
    return json.dumps(shown).replace("\x7f", "\\u007f")


def as_text(what: str, fields: Mapping[str, object]) -> str:
    """Return one line of `name=value`; text is quoted where it needs to be, and where it would look like nothing."""
    shown = [f"{name}={_as_word(value)}" for name, value in _flat(fields).items()]
    return " ".join([what, *shown])


def _flat(fields: Mapping[str, object]) -> dict[str, object]:
    shown: dict[str, object] = {}
    for name, value in fields.items():
        shown |= _field(name, value)
    return shown


def _field(name: str, value: object) -> dict[str, object]:
    if isinstance(value, bytes):
        text = _text(value)
        return {name: text} if text is not None else {f"{name}_base64": _base64(value)}
    if name.endswith("_us") and isinstance(value, int):
        shown = _time(value)
        return {name.removesuffix("_us"): shown} if shown else {name: value}
    return {name: _element(value)}


def _element(value: object) -> object:
    if isinstance(value, bytes):
        text = _text(value)
        return text if text is not None else {"base64": _base64(value)}
    return [_element(one) for one in cast("list[object]", value)] if isinstance(value, list) else value


def _text(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _time(time_us: int) -> str | None:
    try:
        return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except OverflowError:
        return None


def _as_word(value: object) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value != "null":
        return value
    return json.dumps(value).replace("\x7f", "\\u007f")
