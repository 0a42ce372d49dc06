"""What a dead letter says beside its message: why it was given up, by whom, and how often it came back.

The message's own headers stay as they are, in their order. What a copy before said of an earlier time (exactly these
names, wherever they stand) is replaced, so that a message which goes round does not grow.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.dead_letter_headers import (
    AT,
    ATTEMPTS,
    ERROR,
    FIRST_DELIVERED_AT,
    GROUP,
    OFFSET,
    ORIGIN_ID,
    PARTITION,
    REASON,
    REDRIVES,
    TOPIC,
    DeadLetterHeaders,
    Reason,
    redrives_of,
)
from ...protocol.limits import KIB
from ...protocol.messages import SettleError
from ..delivery.events import Flag
from ..delivery.marks import NEW, Mark, Marked
from ..moving.source import Header

MAX_ERROR_BYTES = 48 * KIB
"""Of an error in the headers of a copy, so that a copy exceeds its message by 64 KiB at most."""

CUT = "\n... (cut)"

_AT_LIMIT, _EXPIRED = int(Flag.AT_LIMIT), int(Flag.EXPIRED)
"""As plain numbers, which are quicker to look at."""

REPLACED = frozenset(
    {REASON, ERROR, GROUP, TOPIC, PARTITION, OFFSET, ATTEMPTS, FIRST_DELIVERED_AT, AT, REDRIVES, ORIGIN_ID}
)


class LetterCopier:
    """Says it for some messages of one group in one partition."""

    def __init__(
        self, group: str, topic: str, partition: int, marks: Sequence[Marked], *, topic_count: int = 1
    ) -> None:
        """`marks` say how the messages were given up; the sets are not changed. `topic_count` is how often a topic of
        the name was made."""
        self._group = group
        self._topic = topic
        self._topic_count = topic_count
        self._partition = partition
        self._marks = marks
        self._by_offset: dict[int, Mark] | None = None
        self._pairs: dict[tuple[Mark, int], tuple[list[Header], list[Header]]] = {}
        """What is said before and after the offset, by mark and how often it was redriven: most say the same."""

    def __repr__(self) -> str:
        return f"<LetterCopier of {self._group!r} in {self._topic}/{self._partition}>"

    def __call__(self, offset: int, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the headers of the copy of a message that has these."""
        mark = self._mark(offset)
        before, after = self._said(mark, redrives_of(headers) + mark.redrives)
        own = [*before, (OFFSET, b"%d" % offset), *after]
        if not headers:
            return own
        first_id = [pair for pair in headers if pair[0] == ORIGIN_ID][:1]
        return [*(pair for pair in headers if pair[0] not in REPLACED), *own, *first_id]

    def _said(self, mark: Mark, redrives: int) -> tuple[list[Header], list[Header]]:
        known = self._pairs.get((mark, redrives))
        if known is None:
            pairs = DeadLetterHeaders(
                reason=reason_of(mark).value,
                group=self._group,
                topic=self._topic,
                partition=self._partition,
                offset=0,
                attempts=mark.attempts,
                error=None if mark.error is None else error_text(mark.error),
                first_delivered_us=mark.first_us,
                at_us=mark.given_up_us,
                redrives=redrives,
                topic_count=self._topic_count,
            ).pairs()
            place = next(place for place, (name, _said) in enumerate(pairs) if name == OFFSET)
            known = self._pairs[mark, redrives] = pairs[:place], pairs[place + 1 :]
        return known

    def _mark(self, offset: int) -> Mark:
        if self._by_offset is None:  # in the worker, which has the time
            self._by_offset = {one: mark for mark, offsets in self._marks for one in offsets}
        return self._by_offset.get(offset, NEW)


def reason_of(mark: Mark) -> Reason:
    """Return why a message was given up."""
    if not mark.why & _AT_LIMIT:
        return Reason.REJECTED
    return Reason.EXPIRED if mark.why & _EXPIRED else Reason.MAX_ATTEMPTS


def error_text(error: SettleError) -> str:
    """Return an error as it stands in a header: `ValueError: no such account`, then its traceback."""
    first = ": ".join(part for part in (error.kind, error.text) if part)
    text = "\n".join(part for part in (first, error.traceback) if part)
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_ERROR_BYTES:
        return text
    return data[: MAX_ERROR_BYTES - len(CUT)].decode(errors="ignore") + CUT
