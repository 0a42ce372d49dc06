"""How long a message is leased or waits, as the command line takes it: within what a broker takes, said as typed."""

from __future__ import annotations

from datetime import timedelta

from ...protocol.limits import MAX_DELAY_US, MAX_LEASE_US, MIN_VISIBILITY_TIMEOUT_US
from ...protocol.quantities import parse_duration_us


def parse_visibility(text: str) -> timedelta:
    """Read a visibility timeout. Raises ValueError."""
    return _parse(text, MIN_VISIBILITY_TIMEOUT_US, MAX_LEASE_US, "1s to 12h")


def parse_extension(text: str) -> timedelta:
    """Read for how long a lease is extended. Raises ValueError."""
    return _parse(text, 1, MAX_LEASE_US, "more than 0s and at most 12h")


def parse_delay(text: str) -> timedelta:
    """Read how long a message waits until it is tried again. Raises ValueError."""
    return _parse(text, 0, MAX_DELAY_US, "0s to 365d")


def _parse(text: str, low_us: int, high_us: int, expected: str) -> timedelta:
    found_us = parse_duration_us(text)
    if not low_us <= found_us <= high_us:
        raise ValueError(f"expected {expected}, found {text}")
    return timedelta(microseconds=found_us)
