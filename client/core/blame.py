"""Which messages of a refused batch it was refused for: they alone fail, and the others go out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ...protocol.errors import BatchTooLargeError, MessageTooLargeError, TidelogError


class Shares(NamedTuple):
    """The rows of a batch that was refused for some of them: `guilty` ones, and what goes out again, as batches."""

    guilty: list[int]
    others: list[list[int]]


def shares(error: TidelogError, sizes: Sequence[int]) -> Shares | None:
    """Return what becomes of messages of these sizes; None if the refusal is meant for all of them.

    Where the broker named its limit, the guilty ones are known at once. Else the halves are tried, and theirs: for
    one message it is refused for, a batch of n messages costs twice log2(n) requests.
    """
    if len(sizes) < 2 or not isinstance(error, BatchTooLargeError | MessageTooLargeError):
        return None
    rows = range(len(sizes))
    limit = error.details.get("max_message_bytes")
    if isinstance(error, MessageTooLargeError) and isinstance(limit, int):
        guilty = [row for row in rows if sizes[row] > limit]
        if len(guilty) == len(sizes):
            return None
        if guilty:
            return Shares(guilty, [[row for row in rows if sizes[row] <= limit]])
    middle = len(sizes) // 2
    return Shares([], [[*rows[:middle]], [*rows[middle:]]])
