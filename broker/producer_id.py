"""What stands in the number of a producer.

    bit 62      set: the id belongs to a producer name
    bits 0..61  a counter: of names, or of nameless producers

Nameless ids count from a start that depends on when the data directory was made (`first_id`), so that a directory
made anew does not give out the ids of the one it replaced, whose producers may still be about.
"""

from __future__ import annotations

NAMED_PRODUCER = 1 << 62

_IDS_PER_MILLISECOND = 1 << 19


def is_named(producer_id: int) -> bool:
    """Whether the id belongs to a name."""
    return bool(producer_id & NAMED_PRODUCER)


def first_id(created_us: int) -> int:
    """Return where a data directory made at this time begins to count nameless producers."""
    return max(created_us // 1000, 1) * _IDS_PER_MILLISECOND
