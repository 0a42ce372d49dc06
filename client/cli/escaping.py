"""What untrusted text looks like on a terminal and in JSON.

A payload may hold escape sequences that rewrite the screen, set the clipboard, or turn the reading direction round.
On a terminal such characters are shown escaped; in JSON they are written as `\\uXXXX`, which means the same to any
reader. Piped raw output does not come through here: it stays byte-exact.
"""

from __future__ import annotations

import re

_DANGEROUS = re.compile(
    "["
    "\\x00-\\x1f\\x7f-\\x9f"  # C0, DEL, C1: cursor, colours, clipboard, carriage return
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # marks and overrides of direction
    "\u2028\u2029"  # line and paragraph separators
    "\ufeff\ufff9-\ufffb"  # byte order mark, interlinear annotation
    "\ud800-\udfff"  # bytes of an argument that were not UTF-8
    "\U000e0000-\U000e007f"  # tags: invisible text
    "]"
)
_SHORT = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def visible(text: str) -> str:
    """Return text with control and direction characters escaped: one line, safe on any terminal."""
    return _DANGEROUS.sub(_escape, text)


def visible_bytes(data: bytes) -> str:
    """Return bytes as text for a terminal: UTF-8 where they are, `\\xff` where they are not, nothing dangerous."""
    return visible(data.decode("utf-8", "backslashreplace"))


def json_safe(encoded: str) -> str:
    """Return JSON text with the dangerous characters of its strings as `\\uXXXX`; its meaning is unchanged."""
    return _DANGEROUS.sub(_json_escape, encoded)


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in _SHORT:
        return _SHORT[character]
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
