"""Holds what was read back against what was sent and what the broker said of it: nothing is taken on trust."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .payload import Payloads

_UNTOLD = -1
"""The offset of a message without a receipt."""


@dataclass(slots=True)
class Faults:
    """What was wrong, in messages; all of it is zero where the broker kept its word."""

    lost: int = 0
    repeated: int = 0
    reordered: int = 0
    altered: int = 0
    misplaced: int = 0
    """Read somewhere else than their receipts say, or acknowledged as less durable than was asked for."""

    def __add__(self, other: Faults) -> Faults:
        return Faults(*(getattr(self, name) + getattr(other, name) for name in Faults.__slots__))

    @property
    def any(self) -> bool:
        """Whether anything was wrong."""
        return bool(self.lost or self.repeated or self.reordered or self.altered or self.misplaced)

    def __str__(self) -> str:
        return (
            f"{self.lost} lost, {self.repeated} repeated, {self.reordered} reordered, {self.altered} altered, "
            f"{self.misplaced} misplaced"
        )


class Places:
    """Where each message of each caller is, as its receipt says. Each caller tells of its own."""

    def __init__(self, shares: Sequence[int]) -> None:
        self.offsets: list[npt.NDArray[np.int64]] = [np.full(share, _UNTOLD, np.int64) for share in shares]
        self.partitions: list[npt.NDArray[np.int32]] = [np.zeros(share, np.int32) for share in shares]

    def tell(self, caller: int, first: int, offsets: npt.NDArray[np.int64], partitions: npt.NDArray[np.int32]) -> None:
        """Take in the receipts of a caller's messages from number `first` on."""
        until = first + len(offsets)
        self.offsets[caller][first:until] = offsets
        self.partitions[caller][first:until] = partitions

    def end_of(self, partition: int) -> int:
        """Return the offset behind the last message of a partition, 0 where there is none."""
        found = [
            offsets[partitions == partition] for offsets, partitions in zip(self.offsets, self.partitions, strict=True)
        ]
        return 1 + max((int(each.max()) for each in found if len(each)), default=_UNTOLD)


class Account:
    """What one reader got. In each partition the messages of one caller must come in the order they were sent."""

    def __init__(self, payloads: Payloads, places: Places) -> None:
        self._payloads = payloads
        self._places = places
        self._seen = [np.zeros(len(offsets), np.bool_) for offsets in places.offsets]
        self._last: dict[tuple[int, int], int] = {}
        self._faults = Faults()

    def take(self, partition: int, offset: int, value: bytes | None) -> None:
        """Take in one message; what is not of this run is passed over."""
        sender = self._payloads.sender_of(value)
        if sender is None:
            return
        caller, number = sender
        if caller >= len(self._seen) or number >= len(self._seen[caller]):
            self._faults.altered += 1
            return
        if value != self._payloads.make(caller, number):
            self._faults.altered += 1
        if self._seen[caller][number]:
            self._faults.repeated += 1
            return
        self._seen[caller][number] = True
        if self._last.get((caller, partition), -1) > number:
            self._faults.reordered += 1
        self._last[caller, partition] = number
        places = self._places
        if (places.offsets[caller][number], places.partitions[caller][number]) != (offset, partition):
            self._faults.misplaced += 1

    @property
    def missing(self) -> int:
        """How many messages have not come."""
        return sum(int(len(seen) - np.count_nonzero(seen)) for seen in self._seen)

    def close(self) -> Faults:
        """Return what was wrong, once everything was taken in."""
        self._faults.lost = self.missing
        return self._faults
