"""Retry policies in the form they are sent: sixteen bytes of a record, or the setting of a group."""

from __future__ import annotations

import struct
from typing import cast

from ...protocol.messages.groups import BackoffInfo
from ..retry import Backoff, BackoffWord, Retry

_FIELDS = struct.Struct("<HBBIII")
"""As `protocol.columns.RETRY`: attempts, kind, jitter, multiplier, initial, max."""

_CODES = {"exponential": 1, "linear": 2, "constant": 3}
"""As `protocol.retries.BackoffCode`, which loads numpy; a test compares."""

_NO_JITTER = 255


def pack_retry(retry: Retry, name: str = "retry") -> bytes:
    """Return what stands in a record's `retry` column. Raises TypeError."""
    if not isinstance(retry, Retry):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: expected a tidelog.Retry, found {type(retry).__name__}")
    attempts, backoff = retry.max_attempts or 0, retry.backoff
    if backoff is None:
        return _FIELDS.pack(attempts, 0, 0, 0, 0, 0)
    info = backoff_info(backoff)
    return _FIELDS.pack(
        attempts,
        _CODES[info.kind],
        info.jitter_percent or _NO_JITTER,
        info.multiplier_thousandths,
        info.initial_us // 1_000,
        info.max_us // 1_000,
    )


def unpack_retry(packed: bytes) -> Retry | None:
    """Return the policy that stands in a record's column; None for none.

    `pack_retry` writes all fields of a backoff. A record of another client may leave some to its group: they are shown
    as a Backoff has them that does not say. A kind that is not known here is shown as none.
    """
    attempts, code, jitter, multiplier, initial_ms, max_ms = _FIELDS.unpack(packed)
    kind = next((word for word, number in _CODES.items() if number == code), None)
    if kind is None:
        return Retry(attempts) if attempts else None
    usual = Backoff()
    usual_initial, usual_longest = cast("float", usual.initial), cast("float", usual.max)
    longest = max_ms / 1_000 or max(usual_longest, initial_ms / 1_000)
    backoff = Backoff(
        cast("BackoffWord", kind),
        initial=initial_ms / 1_000 or min(usual_initial, longest),
        max=longest,
        multiplier=multiplier / 1_000 or usual.multiplier,
        jitter=0 if jitter == _NO_JITTER else jitter / 100 or usual.jitter,
    )
    return Retry(attempts or None, backoff)


def backoff_info(backoff: Backoff, name: str = "backoff") -> BackoffInfo:
    """Return a backoff as the setting of a group. Raises TypeError."""
    if not isinstance(backoff, Backoff):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: expected a tidelog.Backoff, found {type(backoff).__name__}")
    initial, longest = cast("float", backoff.initial), cast("float", backoff.max)
    return BackoffInfo(
        backoff.kind,
        round(initial * 1_000) * 1_000,
        round(longest * 1_000) * 1_000,
        round(backoff.multiplier * 1_000),
        round(backoff.jitter * 100),
    )


def backoff_of(info: BackoffInfo) -> Backoff:
    """Return the backoff that a group has."""
    return Backoff(
        cast("BackoffWord", info.kind),
        initial=_milliseconds(info.initial_us) / 1_000,
        max=_milliseconds(info.max_us) / 1_000,
        multiplier=info.multiplier_thousandths / 1_000,
        jitter=info.jitter_percent / 100,
    )


def _milliseconds(wait_us: int) -> int:
    """Return a wait of a broker's configuration, which may be finer, as a Backoff has it."""
    return max(1, round(wait_us / 1_000))
