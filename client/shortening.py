"""What a repr shows of something that may be long."""

from __future__ import annotations

MAX_SHOWN = 64
"""Bytes or characters: enough to recognise a key or a value, and a line of a log stays one."""


def shortened(data: bytes | str | None) -> str:
    """Return the repr of bytes or text, of long ones the beginning and how much there is."""
    if data is None or len(data) <= MAX_SHOWN:
        return repr(data)
    return f"{data[:MAX_SHOWN]!r}... ({len(data):,} {'characters' if isinstance(data, str) else 'bytes'})"
