"""How often and when a message is tried again: values that a producer gives a message, and that a group has.

Checked when they are made, so that a Retry or Backoff that exists may be sent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from ..protocol.limits import MAX_ATTEMPTS, MAX_BACKOFF_MS, MAX_BACKOFF_MULTIPLIER, MAX_JITTER_PERCENT
from .core.arguments import check_count, check_word
from .core.times import Duration, any_seconds, to_seconds

BackoffWord = Literal["exponential", "linear", "constant"]
"""How waits grow with the attempts."""

_KINDS = ("exponential", "linear", "constant")


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a message waits after a failed attempt; `initial` and `max` in seconds (a timedelta becomes that).

        exponential  initial, initial * multiplier, initial * multiplier ** 2, ... at most max
        linear       initial, 2 * initial, 3 * initial, ... at most max
        constant     initial

    Each wait is drawn evenly from within `jitter` (0.2 is 20 %) of that, either way, so that what failed together does
    not come back together. Exact in milliseconds, thousandths and percents; finer numbers are refused.
    """

    kind: BackoffWord = "exponential"
    initial: Duration = 1.0
    max: Duration = 600.0
    multiplier: float = 2.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        check_word("backoff.kind", self.kind, _KINDS, "exponential, linear or constant")
        initial_ms, max_ms = _wait_ms("backoff.initial", self.initial), _wait_ms("backoff.max", self.max)
        if initial_ms > max_ms:
            raise ValueError(
                f"backoff.initial: expected at most backoff.max={max_ms / 1e3:g} s, found {self.initial!r}"
            )
        multiplier = _exact("backoff.multiplier", self.multiplier, 1_000, 1, MAX_BACKOFF_MULTIPLIER) / 1_000
        jitter = _exact("backoff.jitter", self.jitter, 100, 0, MAX_JITTER_PERCENT // 100) / 100
        for name, number in (
            ("initial", initial_ms / 1_000),
            ("max", max_ms / 1_000),
            ("multiplier", multiplier),
            ("jitter", jitter),
        ):
            object.__setattr__(self, name, number)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a message is handed out in all (1 to 65,535), and how long it waits between; None: as its group says.

    A producer gives it with `retry=`; it goes before what the group has.
    """

    max_attempts: int | None = None
    backoff: Backoff | None = None

    def __post_init__(self) -> None:
        if self.max_attempts is not None:
            count = check_count("retry.max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
            object.__setattr__(self, "max_attempts", count)
        if self.backoff is not None and not isinstance(self.backoff, Backoff):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"retry.backoff: expected a tidelog.Backoff, found {type(self.backoff).__name__}")


def _wait_ms(name: str, wait: Duration) -> int:
    """Return a wait in whole milliseconds, 1 or more: none at all is what `nack(delay=0)` asks for."""
    given = any_seconds(name, wait)
    if not 0.001 <= given <= MAX_BACKOFF_MS / 1_000:
        raise ValueError(f"{name}: expected 0.001 to {MAX_BACKOFF_MS / 1_000:.0f} seconds, found {wait!r}")
    return _whole(name, given, 1_000, wait)


def _exact(name: str, number: float, parts: int, least: int, most: int) -> int:
    """Return a number in whole `parts` of one. Raises TypeError or ValueError."""
    given = to_seconds(number)
    if given is None:
        raise TypeError(f"{name}: expected a number from {least} to {most}, found {number!r}")
    if math.isnan(given) or not least <= given <= most:
        raise ValueError(f"{name}: expected {least} to {most}, found {number!r}")
    return _whole(name, given, parts, number)


def _whole(name: str, given: float, parts: int, shown: object) -> int:
    whole = round(given * parts)
    if not math.isclose(given * parts, whole, rel_tol=1e-9):
        raise ValueError(f"{name}: expected a multiple of {1 / parts:g}, found {shown!r}")
    return whole
