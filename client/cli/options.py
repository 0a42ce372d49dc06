"""The flags that commands share, and how their text is read.

Every parser takes the text as typed and raises ValueError that says what was expected and what was found; typer adds
the flag's name. Nothing is guessed and nothing is clamped: `--priority 10` and `--limit 1e3` are wrong usage.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated

import typer

from ...protocol.errors import InvalidGroupError, InvalidTopicError
from ...protocol.group_name import full_group_name
from ...protocol.quantities import parse_duration_us
from ...protocol.topic_name import full_name
from .completion import complete_group, complete_topic

DEFAULT_TIMEOUT_S = 30.0

_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
_MAX_PARTITION = (1 << 30) - 1
_TELLING = 1_000_000
"""An upper bound that nobody meets says nothing and is left out of the message."""


class OutputFormat(Enum):
    """How results are written: for people, or one JSON object a line."""

    TABLE = "table"
    JSON = "json"


def parse_whole(text: str, low: int, high: int) -> int:
    """Read a whole number in plain digits. Raises ValueError that states the range."""
    if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
        bound = f"from {low} to {high}" if high < _TELLING else f"of at least {low}"
        raise ValueError(f"expected a whole number {bound}, found {text!r}")
    return int(text)


def parse_partition(text: str) -> int:
    """Read the number of a partition."""
    return parse_whole(text, 0, _MAX_PARTITION)


def parse_partitions(text: str) -> int:
    """Read how many partitions a topic gets."""
    return parse_whole(text, 1, _MAX_PARTITION)


def parse_limit(text: str) -> int:
    """Read after how many messages to stop."""
    return parse_whole(text, 1, (1 << 62) - 1)


def parse_priority(text: str) -> int:
    """Read a priority: 9 is served first, 4 is the default."""
    return parse_whole(text, 0, 9)


def parse_timeout_s(text: str) -> float:
    """Read a duration as seconds."""
    return parse_duration_us(text) / 1_000_000


def parse_topic(text: str) -> str:
    """Check a topic's name and return it as typed: the client knows the namespace."""
    try:
        full_name(text)
    except InvalidTopicError as error:
        raise ValueError(error.message) from None
    return text


def parse_group(text: str) -> str:
    """Check a group's name and return it as typed: the client knows the namespace."""
    try:
        full_group_name(text)
    except InvalidGroupError as error:
        raise ValueError(error.message) from None
    return text


Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The broker's address [default: TIDELOG_URL, else localhost:9440]."),
]
Output = Annotated[
    OutputFormat, typer.Option("--output", metavar="table|json", help="For people, or one JSON object a line.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", parser=parse_timeout_s, metavar="DURATION", help="Give up after this long [default: 30s]."
    ),
]
Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", parser=parse_topic, autocompletion=complete_topic, help="`name` or `namespace/name`."
    ),
]
TopicName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", parser=parse_topic, autocompletion=complete_topic, help="`name` or `namespace/name`."
    ),
]
GroupName = Annotated[
    str,
    typer.Argument(
        metavar="GROUP", parser=parse_group, autocompletion=complete_group, help="`name` or `namespace/name`."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
