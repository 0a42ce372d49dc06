"""Durations and sizes as people write them: `250ms`, `30s`, `5m`, `7d`; `512`, `64MiB`, `10GiB`.

One spelling for the command line, YAML and topic settings. Durations are whole microseconds, sizes whole bytes.
"""

from __future__ import annotations

import re
from fractions import Fraction

DURATION_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
SIZE_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

_NUMBER_AND_UNIT = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]*)", re.ASCII)


def parse_duration_us(text: str) -> int:
    """Return `30s` as microseconds. A bare number is refused: seconds and milliseconds look alike.

    Raises ValueError that shows the form.
    """
    return _parse(text, DURATION_UNITS_US, "a duration such as 250ms, 30s, 5m or 7d")


def parse_size(text: str) -> int:
    """Return `64MiB` (or a bare number of bytes) as bytes. Raises ValueError that shows the form."""
    return _parse(text, {"": 1, **SIZE_UNITS}, "a size such as 512, 64KiB, 64MiB or 10GiB")


def format_duration(duration_us: int) -> str:
    """Return the shortest exact form of a duration: 5400000000 is `90m`."""
    return _format(duration_us, DURATION_UNITS_US, "us")


def format_size(size: int) -> str:
    """Return the shortest exact form of a size: 67108864 is `64MiB`."""
    return _format(size, SIZE_UNITS, "B")


def _parse(text: str, units: dict[str, int], expected: str) -> int:
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    if match is None or match[2] not in units:
        raise ValueError(f"expected {expected}, found {text!r}")
    amount = Fraction(match[1]) * units[match[2]]
    if amount.denominator != 1:
        raise ValueError(f"expected {expected} that is a whole number of the smallest unit, found {text!r}")
    return int(amount)


def _format(amount: int, units: dict[str, int], smallest: str) -> str:
    name, unit = max(
        ((name, unit) for name, unit in units.items() if amount and amount % unit == 0),
        key=lambda item: item[1],
        default=(smallest, 1),
    )
    return f"{amount // unit}{name}"
