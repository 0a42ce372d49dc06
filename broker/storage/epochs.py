"""Where each epoch of a log begins.

The broker's epoch is raised at every start, so an epoch's first offset tells what an earlier run can have
known: an event that was written in epoch E about this log is valid only below the first offset of any later
epoch. Epochs without a batch leave no entry.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray


class Epochs:
    """Ascending (epoch, first offset) pairs."""

    __slots__ = ("_epochs", "_starts")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def __repr__(self) -> str:
        return f"<Epochs {list(zip(self._epochs, self._starts, strict=True))}>"

    @property
    def last(self) -> int:
        """The highest epoch seen, 0 when there is none."""
        return self._epochs[-1] if self._epochs else 0

    def begin(self, epoch: int, offset: int) -> None:
        """Record that `epoch` starts at `offset` unless it is known; epochs and offsets never go back."""
        if self._epochs and epoch <= self._epochs[-1]:
            return
        if self._starts and self._starts[-1] >= offset:
            # The last epoch never got a batch: whoever asks for its end finds this one's start.
            self._epochs[-1] = epoch
            return
        self._epochs.append(epoch)
        self._starts.append(offset)

    def begin_all(self, epochs: NDArray[np.int64], offsets: NDArray[np.int64]) -> None:
        """Record the epochs of a run of batches."""
        if len(epochs) == 0 or int(epochs[-1]) <= self.last:
            return
        changes = np.flatnonzero(np.diff(epochs, prepend=-1))
        for place in changes.tolist():
            self.begin(int(epochs[place]), int(offsets[place]))

    def end_of(self, epoch: int, end_offset: int) -> int:
        """Return the first offset of any epoch after `epoch`, or the log's end."""
        place = bisect_right(self._epochs, epoch)
        return self._starts[place] if place < len(self._starts) else end_offset

    def of(self, offset: int) -> int:
        """Return the epoch that an offset was written in, 0 below the first that is known."""
        place = bisect_right(self._starts, offset)
        return self._epochs[place - 1] if place else 0

    def clamp(self, epoch: int, offset: int, end_offset: int) -> int:
        """Return how far something that `epoch` said about offsets below `offset` is still valid."""
        return min(offset, self.end_of(epoch, end_offset), end_offset)

    def forget_before(self, offset: int) -> None:
        """Drop the epochs that end at or before `offset`."""
        keep = max(bisect_right(self._starts, offset) - 1, 0)
        del self._epochs[:keep], self._starts[:keep]

    def pairs(self) -> list[tuple[int, int]]:
        """Return the (epoch, first offset) pairs."""
        return list(zip(self._epochs, self._starts, strict=True))
