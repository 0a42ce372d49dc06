"""Where a job begins and ends in a topic, as its callers say it, and as options of a read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

Bound = str | datetime | Mapping[int, int]
"""`earliest`, `latest`, an aware time, or offsets by partition."""


def bounds_of(topic: str, start: Bound, end: Bound, by: str) -> dict[str, str]:
    """Return both bounds of a topic as options; `by` is which time is meant, `append_time` or `timestamp`.

    Raises ValueError for a time without a zone.
    """
    return {**_option("starting", topic, start), **_option("ending", topic, end), "by": by}


def _option(side: str, topic: str, bound: Bound) -> dict[str, str]:
    if isinstance(bound, datetime):
        if bound.tzinfo is None:
            raise ValueError(f"expected a time with a zone, found {bound.isoformat()}")
        return {f"{side}Timestamp": bound.isoformat()}
    if isinstance(bound, str):
        return {f"{side}Offsets": bound}
    offsets = {str(partition): offset for partition, offset in bound.items()}
    return {f"{side}Offsets": msgspec.json.encode({topic: offsets}).decode()}
