"""What a repr shows of something that may be long."""

from __future__ import annotations

MAX_SHOWN_BYTES = 64
"""Of keys and values: enough to recognise one, and a line of a log stays one."""


def shortened(data: bytes | None) -> str:
    """Return the repr of bytes, of long ones the beginning and how many there are."""
    if data is None or len(data) <= MAX_SHOWN_BYTES:
        return repr(data)
    return f"{data[:MAX_SHOWN_BYTES]!r}... ({len(data):,} bytes)"
