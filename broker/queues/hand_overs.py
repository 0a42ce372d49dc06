"""What members report beside what they ask for: which messages were handed to their code."""

from __future__ import annotations

from collections.abc import Sequence

from ...protocol.errors import InvalidRequestError
from ...protocol.messages import LeaseRanges

MAX_REPORTS = 10_000
"""Of one request, each of one lease; empty ones, too, cost a few microseconds. A client that has more to say says it
with its next request."""

MAX_RANGE_BYTES = 1 << 20
"""Of all items and reports of one request: 65,536 ranges, which take milliseconds to apply."""


def check_ranges(reports: Sequence[LeaseRanges], request: str, other_bytes: int = 0) -> None:
    """Raise InvalidRequestError for more than one request may say; `other_bytes` are those of its items' ranges."""
    if len(reports) > MAX_REPORTS:
        raise InvalidRequestError(
            f"expected at most {MAX_REPORTS} hand-overs in {request}, found {len(reports)}", limit=MAX_REPORTS
        )
    size = other_bytes + sum(len(told.ranges) for told in reports)
    if size > MAX_RANGE_BYTES:
        raise InvalidRequestError(
            f"expected at most {MAX_RANGE_BYTES} bytes of ranges in {request}, found {size}", limit=MAX_RANGE_BYTES
        )


def by_partition(reports: Sequence[LeaseRanges]) -> dict[tuple[int, int], list[LeaseRanges]]:
    """Return reports by topic id and partition."""
    found: dict[tuple[int, int], list[LeaseRanges]] = {}
    for told in reports:
        found.setdefault((told.topic_id, told.partition), []).append(told)
    return found
