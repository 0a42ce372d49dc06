"""From a plan and what the broker answered to where each partition's read begins and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...protocol.errors import OffsetOutOfRangeError, RangeNotAvailableError
from ...protocol.messages import ListOffsets, OffsetAnswer
from .bounds import end_query, start_query
from .directory import TopicEntry
from .plan import Plan
from .position import Position

Places = Sequence[tuple[TopicEntry, int]]


def check_offsets(plan: Plan, places: Places) -> None:
    """Raise ValueError for an offset that would have to mean a place in several partitions at once."""
    if plan.has_offset and len(places) > 1:
        raise ValueError(
            f"expected partition= together with an offset, since {len(places)} partitions are read; a time needs none"
        )


def questions(plan: Plan, places: Places) -> ListOffsets:
    """Return what to ask the broker: one question for each start, one for each end."""
    queries = [start_query(plan.start, plan.by, topic.id, partition) for topic, partition in places]
    if plan.end is not None:
        queries += [end_query(plan.end, plan.by, topic.id, partition) for topic, partition in places]
    for query in queries:
        query.archived = plan.is_archived
    return ListOffsets(queries)


def positions(plan: Plan, places: Places, answers: Sequence[OffsetAnswer]) -> Iterator[Position]:
    """Yield where each partition's read begins and ends. Raises the broker's errors, RangeNotAvailableError,
    OffsetOutOfRangeError."""
    for answer in answers:
        if answer.error is not None:
            raise answer.error.error()
    ends = answers[len(places) :] if plan.end is not None else [None] * len(places)
    for (topic, partition), first, last in zip(places, answers, ends, strict=False):
        start = plan.start if isinstance(plan.start, int) else first.offset
        end = None if last is None else plan.end if isinstance(plan.end, int) else last.offset
        if plan.is_exact:
            _check_available(f"{topic.shown}/{partition}", start, end, first)
        elif plan.what == "replay":
            start, end = _available(start, end, first)
        elif end is not None and isinstance(plan.start, int) and not plan.policy.skips_gaps:
            _check_start(f"{topic.shown}/{partition}", start, first)
        epoch = 0 if isinstance(plan.start, int) else first.epoch  # an offset that was typed claims to know no epoch
        yield Position(topic, partition, start, epoch, None if end is None else max(start, end))


def _check_start(where: str, start: int, valid: OffsetAnswer) -> None:
    """A read without an end learns it from its first fetch; one with an end before its start never fetches."""
    if start > valid.end_offset:
        raise OffsetOutOfRangeError(
            f"{where}: expected an offset from {valid.start_offset} to {valid.end_offset}, found {start}",
            start=valid.start_offset,
            end=valid.end_offset,
        )


def _check_available(where: str, start: int, end: int | None, valid: OffsetAnswer) -> None:
    if start < valid.start_offset or max(start, end or 0) > valid.end_offset:
        wanted = f"{start} to {end}" if end is not None else f"{start} on"
        raise RangeNotAvailableError(
            f"{where}: expected offsets {wanted}, found {valid.start_offset} to {valid.end_offset};"
            ' missing="skip" reads what is there',
            start=valid.start_offset,
            end=valid.end_offset,
        )


def _available(start: int, end: int | None, valid: OffsetAnswer) -> tuple[int, int]:
    low, high = valid.start_offset, valid.end_offset
    return min(max(start, low), high), high if end is None else min(max(end, low), high)
