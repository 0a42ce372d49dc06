"""Retry policies as the command line writes them, and as they stand in JSON.

exponential:1s:10m           kind, initial wait, and where they are not the usual ones: the longest wait,
exponential:1s:10m:2:0.2     what each wait is of the one before it, and the jitter

{"max_attempts": 5, "backoff": {"kind": "exponential", "initial": "1s", "max": "10m", "multiplier": 2, "jitter": 0.2}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from ...protocol.limits import MAX_ATTEMPTS
from ...protocol.quantities import format_duration, parse_duration_us
from ..core.times import Duration, to_seconds
from ..retry import Backoff, BackoffWord, Retry
from .options import parse_whole

KINDS = ("exponential", "linear", "constant")
FORM = "KIND:INITIAL[:MAX]"
EXPECTED = f"a backoff such as exponential:1s:10m ({FORM}, of kind {', '.join(KINDS)})"

_PARTS = ("kind", "initial", "max", "multiplier", "jitter")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII)


def parse_attempts(text: str) -> int:
    """Read how often a message may be handed out."""
    return parse_whole(text, 1, MAX_ATTEMPTS)


def parse_backoff(text: str) -> Backoff:
    """Read a backoff. Raises ValueError that shows the form, or names the part that is wrong."""
    parts = text.split(":")
    if not 2 <= len(parts) <= len(_PARTS) or parts[0] not in KINDS:
        raise ValueError(f"expected {EXPECTED}, found {text!r}")
    return _backoff({name: _part(name, part) for name, part in zip(_PARTS, parts, strict=False)})


def format_backoff(backoff: Backoff) -> str:
    """Return a backoff as `parse_backoff` reads it, all of it."""
    initial, longest = _shown_wait(backoff.initial), _shown_wait(backoff.max)
    return f"{backoff.kind}:{initial}:{longest}:{backoff.multiplier:g}:{backoff.jitter:g}"


def _shown_wait(wait: Duration) -> str:
    return format_duration(round(_seconds(wait) * 1_000) * 1_000)


def retry_fields(retry: Retry) -> dict[str, object]:
    """Return a policy as `read_retry` reads it, all of it."""
    backoff = retry.backoff
    fields: dict[str, object] = {} if retry.max_attempts is None else {"max_attempts": retry.max_attempts}
    if backoff is not None:
        fields["backoff"] = {
            "kind": backoff.kind,
            "initial": _shown_wait(backoff.initial),
            "max": _shown_wait(backoff.max),
            "multiplier": backoff.multiplier,
            "jitter": backoff.jitter,
        }
    return fields


def format_retry(retry: Retry) -> str:
    """Return a policy for people."""
    parts = [] if retry.max_attempts is None else [f"max_attempts={retry.max_attempts}"]
    return " ".join([*parts, *([] if retry.backoff is None else [f"backoff={format_backoff(retry.backoff)}"])])


def read_retry(found: object) -> Retry | None:
    """Read the `retry` of a JSON line. Raises ValueError that names the field."""
    if found is None:
        return None
    fields = _object(found, "retry", ("max_attempts", "backoff"))
    attempts, backoff = fields.get("max_attempts"), fields.get("backoff")
    try:
        return Retry(cast("int | None", attempts), None if backoff is None else _read_backoff(backoff))
    except TypeError as error:
        raise ValueError(str(error)) from None


def _read_backoff(found: object) -> Backoff:
    fields = _object(found, "retry.backoff", _PARTS)
    for name in ("initial", "max"):
        if name in fields:
            text = fields[name]
            if not isinstance(text, str):
                raise ValueError(f"retry.backoff.{name}: expected a duration such as 1s, found {text!r}")
            fields[name] = _part(name, text)
    return _backoff(fields)


def _object(found: object, name: str, known: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(found, dict):
        raise ValueError(f"{name}: expected an object with {', '.join(known)}, found {found!r}")
    fields = cast("dict[str, object]", found)
    unknown = min(fields.keys() - set(known), default=None)
    if unknown is not None:
        raise ValueError(f"{name}: expected the fields {', '.join(known)}, found {unknown!r}")
    return dict(fields)


def _part(name: str, text: str) -> object:
    if name == "kind":
        return text
    if name in ("initial", "max"):
        try:
            return parse_duration_us(text) / 1_000_000
        except ValueError as error:
            raise ValueError(f"backoff.{name}: {error}") from None
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"backoff.{name}: expected a number, found {text!r}")
    return float(text)


def _backoff(fields: Mapping[str, object]) -> Backoff:
    usual = Backoff()
    initial = cast("Duration", fields.get("initial", usual.initial))
    longest = cast("Duration", fields.get("max", max(_seconds(usual.max), to_seconds(initial) or 0)))
    return Backoff(
        cast("BackoffWord", fields.get("kind", usual.kind)),
        initial=initial,
        max=longest,
        multiplier=cast("float", fields.get("multiplier", usual.multiplier)),
        jitter=cast("float", fields.get("jitter", usual.jitter)),
    )


def _seconds(wait: Duration) -> float:
    return cast("float", wait)
