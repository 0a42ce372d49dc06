"""Names for the priorities 0 to 9, of which 9 is served first, as in JMS."""

from __future__ import annotations

from enum import IntEnum


class Priority(IntEnum):
    """The usual priorities; any whole number from 0 to 9 is one."""

    BULK = 0
    LOW = 2
    NORMAL = 4
    HIGH = 7
    CRITICAL = 9
