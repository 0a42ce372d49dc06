"""Values of configuration keys: durations, sizes, addresses. Each reads the text that people write."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, NamedTuple, cast

import yaml
from pydantic import BeforeValidator

from ...protocol.lane_weights import parse_lane_weights
from ...protocol.quantities import parse_duration_us, parse_size
from ...protocol.topic_settings import NO_VALUE

_HOST_AND_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+)):(?P<port>[0-9]{1,5})", re.ASCII)


_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+", re.IGNORECASE)


class Address(NamedTuple):
    """Where to listen. Port 0 takes a free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def _read_duration(value: object) -> object:
    if isinstance(value, bool | int | float) or value is None:
        raise ValueError(f"expected a duration with its unit such as 250ms, 30s, 5m or 7d, found {value!r}")
    return parse_duration_us(value) if isinstance(value, str) else value


def _read_size(value: object) -> object:
    if isinstance(value, bool | float) or value is None:
        raise ValueError(f"expected a size such as 512, 64KiB, 64MiB or 10GiB, found {value!r}")
    return parse_size(value) if isinstance(value, str) else value


def _read_none(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in NO_VALUE else value


def read_address(value: object) -> Address:
    """Read `HOST:PORT`. Raises ValueError that shows the form."""
    if isinstance(value, Address):
        return value
    match = _HOST_AND_PORT.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match["port"]) > 65_535:
        raise ValueError(f"expected HOST:PORT such as 127.0.0.1:9440 or [::1]:9440, found {value!r}")
    return Address(match["six"] or match["host"], int(match["port"]))


def _read_optional_duration(value: object) -> object:
    value = _read_none(value)
    return None if value is None else _read_duration(value)


def _read_optional_size(value: object) -> object:
    value = _read_none(value)
    return None if value is None else _read_size(value)


def _read_map(value: object) -> object:
    """Read names with their text; in the environment they stand as one YAML or JSON mapping."""
    if isinstance(value, str):
        try:
            value = yaml.safe_load(value)
        except yaml.YAMLError:
            value = None
    if not isinstance(value, dict):
        raise ValueError("expected names with their values, as in {region: eu-west-1}, found something else")
    found: dict[str, str] = {}
    for name, given in cast("dict[object, object]", value).items():
        if not isinstance(given, str | int | bool):
            raise ValueError(f"{name}: expected text, found something else")
        found[str(name)] = str(given).lower() if isinstance(given, bool) else str(given)
    return found


def _read_url(value: object) -> object:
    value = _read_none(value)
    if value is None:
        return None
    if not isinstance(value, str) or not _URL.match(value):
        raise ValueError(f"expected a url such as file:///var/archive or s3://bucket/prefix, found {value!r}")
    return value


def read_mapping(value: object) -> object:
    """Read keys with their values; in the environment they may stand as one YAML or JSON mapping."""
    if not isinstance(value, str):
        return value
    try:
        found: object = yaml.safe_load(value)
    except yaml.YAMLError:
        found = None
    if not isinstance(found, dict):
        raise ValueError("expected keys with their values, as in {kind: linear}, found something else")
    return cast("dict[object, object]", found)


def _read_weights(value: object) -> object:
    """Read weights of lanes, as text or as one YAML or JSON mapping."""
    value = _read_none(value)
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        value = ", ".join(f"{priority}:{weight}" for priority, weight in pairs)
    if isinstance(value, str):
        return parse_lane_weights(value.strip().removeprefix("{").removesuffix("}"))
    if value is None or isinstance(value, tuple):
        return cast("tuple[int, ...] | None", value)
    raise ValueError(f"expected priorities with their weights as in {{9: 50, 4: 40, 0: 10}}, found {value!r}")


LaneWeights = Annotated[tuple[int, ...] | None, BeforeValidator(_read_weights)]
"""The weight of each priority from 0 on, written as `{9: 50, 4: 40}`; `null`: all the same."""
OptionalUrl = Annotated[str | None, BeforeValidator(_read_url)]
"""`scheme://...`, or `null`."""
StringMap = Annotated[dict[str, str], BeforeValidator(_read_map)]
"""Names with their text. An error never shows a value: it may be a secret."""
DurationUs = Annotated[int, BeforeValidator(_read_duration)]
"""Whole microseconds, written as `30s`."""
OptionalCount = Annotated[int | None, BeforeValidator(_read_none)]
"""A whole number, or `null`."""
OptionalDurationUs = Annotated[int | None, BeforeValidator(_read_optional_duration)]
"""The same, or `null`."""
Size = Annotated[int, BeforeValidator(_read_size)]
"""Whole bytes, written as `64MiB`."""
OptionalSize = Annotated[int | None, BeforeValidator(_read_optional_size)]
"""The same, or `null`."""
ListenAddress = Annotated[Address, BeforeValidator(read_address)]
"""Written as `HOST:PORT`."""
