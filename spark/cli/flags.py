"""The flags that the jobs share, and how their text is read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from ...client.cli.options import parse_timeout_s, parse_topic, parse_whole
from ...client.cli.times import Position, parse_position

MAX_COUNT = (1 << 62) - 1


def parse_count(text: str) -> int:
    """Read how many."""
    return parse_whole(text, 1, MAX_COUNT)


def parse_rate(text: str) -> float:
    """Read a number of records a second."""
    return float(parse_whole(text, 1, 1_000_000_000))


@dataclass(frozen=True, slots=True)
class Setting:
    """A name and what it is set to."""

    name: str
    value: str


def parse_setting(text: str) -> Setting:
    """Read `name=value`. Raises ValueError that shows the form."""
    name, equals, setting = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"expected name=value, found {text!r}")
    return Setting(name.strip(), setting)


def parse_by(text: str) -> str:
    """Read which time is meant."""
    if text not in ("append_time", "timestamp"):
        raise ValueError(f"expected append_time or timestamp, found {text!r}")
    return text


def parse_time(text: str) -> Position:
    """Read what `--from` and `--to` take here: everything but a bare offset, as there are many partitions."""
    found = parse_position(text)
    if found.is_offset:
        raise ValueError(f"expected earliest, latest, or a time such as -15m or 2025-01-14T15:00:00Z, found {text!r}")
    return found


def bound(position: Position | None, default: str) -> str | datetime:
    """Return where a job begins or ends, a relative time by this machine's clock."""
    if position is None:
        return default
    found = position.resolve(datetime.now(UTC))
    assert not isinstance(found, int)
    return found


def broker_url(url: str | None) -> str:
    """Return where the broker is: the flag, else TIDELOG_URL, else localhost:9440."""
    return url or os.environ.get("TIDELOG_URL") or "localhost:9440"


Topics = Annotated[
    list[str], typer.Argument(metavar="TOPIC", parser=parse_topic, help="`name` or `namespace/name`; one or several.")
]
From = Annotated[
    Position | None, typer.Option("--from", parser=parse_time, metavar="TIME", help="Begin here [default: earliest].")
]
To = Annotated[
    Position | None, typer.Option("--to", parser=parse_time, metavar="TIME", help="End before this [default: latest].")
]
ByTime = Annotated[
    str,
    typer.Option(
        "--by",
        parser=parse_by,
        metavar="append_time|timestamp",
        help="Whose time is meant: the broker's or producers'.",
    ),
]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Spark's master [default: MASTER, else all cores of this machine]."),
]
Conf = Annotated[
    list[Setting] | None,
    typer.Option("--conf", parser=parse_setting, metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
Options = Annotated[
    list[Setting] | None,
    typer.Option(
        "--option", parser=parse_setting, metavar="NAME=VALUE", help="Of the data source's reads; may be repeated."
    ),
]
Patience = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=parse_timeout_s,
        metavar="DURATION",
        help="How long a task waits for the next record [default: 60s].",
    ),
]
