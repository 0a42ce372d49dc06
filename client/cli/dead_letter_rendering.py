"""What `tidelog dlq` shows of dead letters, for people and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .escaping import visible_bytes
from .json_records import header_list
from .message_json import message_fields
from .retry_text import format_retry, retry_fields
from .times import format_time, format_time_us

if TYPE_CHECKING:
    from datetime import datetime

    from ..dead_letter import AttemptHistory, DeadLetter, DeadLetterAttempt, Purged, Redriven
    from .output import StandardOutput

LIST_HEADS = ["ID", "REASON", "GROUP", "ATTEMPTS", "REDRIVES", "AT", "KEY", "ERROR"]

MAX_CELL = 60
"""Characters of a key or an error in a list."""


def letter_fields(letter: DeadLetter) -> dict[str, object]:
    """Return a dead letter as one line of JSON: its message with its producer's own headers, so that it can be produced
    again from this, and what is known of it."""
    fields = message_fields(letter.message)
    fields["headers"] = header_list(letter.headers.items())
    if letter.retry is not None:
        fields["retry"] = retry_fields(letter.retry)
    fields["dead_letter"] = {
        "reason": letter.reason,
        "error": letter.error,
        "group": letter.group,
        "original_id": letter.original_id,
        "attempts": letter.attempts,
        "redrives": letter.redrives,
        "first_delivered": _json_time(letter.first_delivered),
        "dead_lettered": _json_time(letter.dead_lettered),
    }
    return fields


def _json_time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)


def letter_row(letter: DeadLetter) -> list[object]:
    """Return one line of a list."""
    return [
        letter.id,
        letter.reason or "-",
        letter.group or "-",
        letter.attempts,
        letter.redrives,
        _shown_time(letter.dead_lettered),
        _short("null" if letter.key is None else visible_bytes(letter.key)),
        _short((letter.error or "-").partition("\n")[0]),
    ]


def _short(text: str) -> str:
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "..."


def _shown_time(moment: datetime | None) -> str:
    return "-" if moment is None else format_time(moment)


def attempt_fields(attempt: DeadLetterAttempt) -> dict[str, object]:
    """Return one entry of a history as JSON."""
    failure = attempt.failure
    return {
        "outcome": attempt.outcome,
        "number": attempt.number or None,
        "began": _json_time(attempt.began),
        "ended": _json_time(attempt.ended),
        "delay": attempt.delay,
        "error": None
        if failure is None
        else {"kind": failure.kind, "text": failure.text, "traceback": failure.traceback},
    }


def show_json(out: StandardOutput, letter: DeadLetter, history: AttemptHistory | None) -> None:
    """Write everything about a dead letter as one line."""
    attempts = None if history is None else [attempt_fields(one) for one in history]
    is_complete = history is not None and history.is_complete
    out.json(letter_fields(letter) | {"history": attempts, "history_is_complete": is_complete})


def show_tables(out: StandardOutput, letter: DeadLetter, history: AttemptHistory | None) -> None:
    """Write everything about a dead letter for people."""
    message = letter.message
    out.facts(
        [
            ("id", letter.id),
            ("original", letter.original_id or "- (it was produced to the dead-letter topic)"),
            ("group", letter.group or "-"),
            ("reason", letter.reason or "-"),
            ("attempts", letter.attempts),
            ("redrives", letter.redrives),
            ("first delivered", _shown_time(letter.first_delivered)),
            ("dead-lettered", _shown_time(letter.dead_lettered)),
            ("timestamp", format_time_us(message.timestamp_us) or f"{message.timestamp_us} us"),
            ("priority", message.priority),
            *(() if letter.retry is None else (("retry", format_retry(letter.retry)),)),
            ("key", _shown(letter.key)),
            *(("header", f"{name}: {_shown(value)}") for name, value in letter.headers.items()),
            ("value", _shown(letter.value)),
            *(("error", line) for line in (letter.error or "").splitlines()),
        ]
    )
    if history is None:
        return
    out.text("")
    rows = [
        [
            one.number or "-",
            one.outcome,
            _shown_time(one.began),
            _shown_time(one.ended),
            f"{one.delay:g}s" if one.delay else "-",
            "-" if one.failure is None else _short(str(one.failure)),
        ]
        for one in history
    ]
    out.table(["ATTEMPT", "OUTCOME", "BEGAN", "ENDED", "RETRY AFTER", "ERROR"], rows)
    if not history.is_complete:
        out.text("(not all: some is not retained any more, lies among too much of other messages, or is too much)")


def _shown(data: bytes | None) -> str:
    return "null" if data is None else visible_bytes(data)


def redriven_fields(done: Redriven) -> dict[str, object]:
    """Return what a redrive did as JSON."""
    return {
        "matched": done.matched,
        "in_place": done.in_place,
        "as_new": done.as_new,
        "passed": done.passed,
        "refused": done.refused_count,
        "refusals": [{"id": one.id, "code": one.error.code, "message": one.error.message} for one in done.refused],
    }


def redriven_text(done: Redriven, *, is_trial: bool) -> str:
    """Return the same in one line."""
    if is_trial:
        return f"would redrive {counted_letters(done.matched)}"
    parts = [f"{done.in_place} in place"] if done.in_place else []
    if done.as_new:
        parts.append(f"{done.as_new} as new for all groups")
    if done.passed:
        parts.append(f"{done.passed} passed over (redriven or purged by somebody else)")
    if done.refused_count:
        parts.append(f"{done.refused_count} refused")
    return f"redrove {counted_letters(done.in_place + done.as_new)}: {', '.join(parts) or 'none'}"


def purged_text(done: Purged, *, is_trial: bool) -> str:
    """Return what a purge did in one line."""
    if is_trial:
        return f"would purge {counted_letters(done.matched)}"
    passed = f", {done.passed} passed over (redriven or purged by somebody else)" if done.passed else ""
    return f"purged {counted_letters(done.purged)}{passed}"


def counted_letters(count: int) -> str:
    """Return how many dead letters, in words."""
    return f"{count} dead letter{'' if count == 1 else 's'}"
