"""The `retry` column: how often and when a record is to be tried again, where it says so itself.

A zero field means that the group's applies. So that a record can ask for no jitter, there is a number of its own for
that.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

from .columns import RETRY
from .errors import InvalidBatchError
from .limits import MAX_BACKOFF_MULTIPLIER, MAX_JITTER_PERCENT

Retries = npt.NDArray[np.void]

NO_JITTER = 255
"""In the column: no jitter, whatever the group has."""

_LEAST_MULTIPLIER, _LARGEST_MULTIPLIER = 1_000, MAX_BACKOFF_MULTIPLIER * 1_000
"""In thousandths. A multiplier below 1 would have waits shrink."""

NO_RETRY = bytes(RETRY.itemsize)
"""A record that says nothing."""


class BackoffCode(IntEnum):
    """The kinds of backoff in the column."""

    EXPONENTIAL = 1
    LINEAR = 2
    CONSTANT = 3

    @property
    def word(self) -> str:
        """What users and the group settings call it."""
        return self.name.lower()

    @classmethod
    def from_word(cls, word: str) -> BackoffCode:
        """Return the code of a kind. Raises KeyError."""
        return cls[word.upper()]


def check_retries(column: Retries) -> None:
    """Raise InvalidBatchError that names field and record, for a column that no group could act on."""
    kinds, jitters = column["backoff_kind"], column["jitter_percent"]
    multipliers, initials, longest = column["multiplier_thousandths"], column["initial_ms"], column["max_ms"]
    _refuse(kinds > max(BackoffCode), "a backoff kind", f"of 0 to {max(BackoffCode)}", kinds)
    _refuse(
        (jitters > MAX_JITTER_PERCENT) & (jitters != NO_JITTER),
        "a jitter",
        f"of 0 to {MAX_JITTER_PERCENT} percent",
        jitters,
    )
    outside = (multipliers < _LEAST_MULTIPLIER) | (multipliers > _LARGEST_MULTIPLIER)
    _refuse(
        outside & (multipliers != 0),
        "a multiplier",
        f"of {_LEAST_MULTIPLIER} to {_LARGEST_MULTIPLIER} thousandths",
        multipliers,
    )
    _refuse((longest != 0) & (initials > longest), "an initial wait", "of at most the longest", initials)
    given = (jitters != 0) | (multipliers != 0) | (initials != 0) | (longest != 0)
    _refuse((kinds == 0) & given, "a backoff kind", "beside other fields of a backoff", kinds)


def _refuse(wrong: npt.NDArray[np.bool_], field: str, expected: str, found: npt.NDArray[np.generic]) -> None:
    if bool(wrong.any()):
        row = int(np.argmax(wrong))
        raise InvalidBatchError(f"retry of record {row}: expected {field} {expected}, found {found[row]}")
