"""How the block of a queue is left, and what becomes of the messages that it still holds.

| left | handed out, not settled | only fetched ahead |
| --- | --- | --- |
| normally, by stop(), KeyboardInterrupt, cancellation | returned, uncounted | returned, uncounted |
| SystemExit without stop() | returned, suspect | returned, uncounted |
| any other exception | nack with that exception | returned, uncounted |
"""

from __future__ import annotations

from typing import cast

from ...protocol.messages import Settling
from .failure import failure_of
from .settles import How

RETURNED = How(Settling.RETURN)
SUSPECTED = How(Settling.SUSPECT)

Kinds = tuple[type[BaseException], ...]


def released(error: object, delay_us: int) -> How:
    """Return what a nack does. Raises TypeError."""
    return How(Settling.RELEASE, delay_us, 0, _plain(error))


def rejected(error: object) -> How:
    """Return what a reject does. Raises TypeError."""
    return How(Settling.REJECT, error=_plain(error))


def _plain(error: object) -> tuple[str, str, str] | None:
    found = failure_of(error)
    return None if found is None else (found.kind, found.text, found.traceback)


def left_by(error: BaseException | None, cancelled: Kinds, *, is_stopped: bool) -> How:
    """Return what becomes of what was handed out and not settled."""
    if error is None or isinstance(error, (KeyboardInterrupt, GeneratorExit, *cancelled)):
        return RETURNED
    if isinstance(error, SystemExit):
        return RETURNED if is_stopped else SUSPECTED
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return _left_by_several(group, cancelled, is_stopped=is_stopped)
    return released(error, -1)


def _left_by_several(error: BaseExceptionGroup[BaseException], cancelled: Kinds, *, is_stopped: bool) -> How:
    """A group of a nursery: what is no cancellation in it says what it was."""
    ways = [left_by(each, cancelled, is_stopped=is_stopped) for each in error.exceptions]
    failed = [way for way in ways if way.what is Settling.RELEASE]
    if failed:
        return released(error, -1) if len(failed) > 1 else failed[0]
    return SUSPECTED if SUSPECTED in ways else RETURNED
