"""The broker's own log: one event is one line on stderr, as `key=value` or as JSON.

What comes from clients (names, addresses, first bytes) may hold anything; control and bidirectional characters are
escaped in both forms, so that no name can forge a line or drive a terminal. A traceback is part of its line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import TextIO, cast

import structlog
from structlog.typing import FilteringBoundLogger

Event = MutableMapping[str, object]

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_NOTHING = 50  # above every event of ours
_PLAIN = re.compile(r"[A-Za-z0-9._:/@+,~%-]+", re.ASCII)


class _Lossy:
    """Writes lines, and drops them when nobody reads any more: a log that fails must not take the broker along."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        """Write, or drop."""
        try:
            self._stream.write(text)
        except (OSError, ValueError):  # a broken pipe, a full disk; closed
            return

    def flush(self) -> None:
        """Flush, or drop."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            return


def _make(level: int, style: str, stream: TextIO) -> FilteringBoundLogger:
    # Wrapped here, not by structlog.configure: that belongs to the program a broker may be embedded in.
    return structlog.wrap_logger(
        structlog.WriteLogger(cast("TextIO", _Lossy(stream))),
        processors=[_add_time_and_level, _add_traceback, _as_json if style == "json" else _as_text],
        wrapper_class=structlog.make_filtering_bound_logger(level),
    )


def configure(level: str = "info", style: str = "console", stream: TextIO | None = None) -> None:
    """Let the broker's events be seen. `style` is `console` or `json`; `stream` defaults to stderr."""
    global _logger
    _logger = _make(_LEVELS[level], style, stream or sys.stderr)


def silence() -> None:
    """Let nothing be seen: how it is until `configure`, as in a broker that runs inside another program."""
    global _logger
    _logger = _make(_NOTHING, "console", sys.stderr)


def get_logger() -> FilteringBoundLogger:
    """Return the logger as it is configured now."""
    return _logger


def escape(text: str) -> str:
    """Return text in which everything but printable ASCII is a backslash escape; a backslash is doubled."""
    return json.dumps(text)[1:-1].replace('\\"', '"').replace("\x7f", "\\u007f")


def _add_time_and_level(_logger: object, method: str, event: Event) -> Event:
    event["level"] = "error" if method == "exception" else method
    event["time"] = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _add_traceback(_logger: object, _method: str, event: Event) -> Event:
    error = event.pop("exc_info", None)
    if error:
        event["traceback"] = structlog.processors.format_exc_info(None, "", {"exc_info": error})["exception"]  # pyright: ignore[reportArgumentType]
    return event


def _as_json(_logger: object, _method: str, event: Event) -> str:
    event = {name: event.pop(name) for name in ("time", "level", "event")} | dict(event)
    return json.dumps(event, default=str).replace("\x7f", "\\u007f")


def _as_text(_logger: object, _method: str, event: Event) -> str:
    head = [str(event.pop(name)) for name in ("time", "level", "event")]
    return " ".join([head[0], f"{head[1]:7}", escape(head[2]), *(f"{k}={_value(v)}" for k, v in event.items())])


def _value(value: object) -> str:
    text = value if isinstance(value, str) else str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text).replace("\x7f", "\\u007f")


_logger = _make(_NOTHING, "console", sys.stderr)
