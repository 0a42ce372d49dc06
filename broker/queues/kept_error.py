"""Of an error that a member gives for messages, what is kept: a part of a limited size, in every delivery log and in
what is told of messages."""

from __future__ import annotations

from ...protocol.messages import SettleError, SettleItem

MAX_KIND_BYTES = 256
"""Of the exception's type: no name is longer."""


def keep_of(error: SettleError, max_bytes: int) -> SettleError:
    """Return an error with the beginning of its text and the end of its traceback, each of so many bytes at most."""
    kind, text, traceback = error.kind.encode(), error.text.encode(), error.traceback.encode()
    if len(kind) <= MAX_KIND_BYTES and len(text) <= max_bytes and len(traceback) <= max_bytes:
        return error
    parts = (kind[:MAX_KIND_BYTES], text[:max_bytes], traceback[max(0, len(traceback) - max_bytes) :])
    return SettleError(*(part.decode(errors="ignore") for part in parts))


def cut_errors(items: list[SettleItem], max_bytes: int) -> None:
    """Keep of the error of each item what may be kept."""
    for item in items:
        if item.error is not None:
            item.error = keep_of(item.error, max_bytes)
