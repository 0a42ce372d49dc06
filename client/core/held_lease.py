"""One lease as the client holds it: which messages, which of them were handed out, and what became of each.

    offsets   [ settled in order | handed out | .......... buffered .......... ]
                ^ in_order                      ^ handed

Messages are handed out in the order of their offsets, so `handed` is a count. They are mostly acknowledged in that
order too: then a list of acknowledged offsets equals the next part of `offsets`, which compares in no time, as the
numbers are the same objects. Only a lease that is settled in another order, or otherwise, keeps a code for each
message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from ...protocol.messages import Attempts, Settling
from ...protocol.offset_ranges import unpack_ranges
from .directory import TopicEntry
from .lease_token import LeaseToken

if TYPE_CHECKING:
    from ...protocol.messages import Grant

Indexes = npt.NDArray[np.intp]

NONE_YET = 0
"""The code of a message that is not settled; the others are those of `Settling`."""


class Desk(Protocol):
    """Where what is done to messages is taken; see `aio.queue_desk`."""

    is_attentive: bool
    """Whether it wants to know of every acknowledgement at once: nothing is on its way that it could share."""

    dirty: list[HeldLease]


class HeldLease:
    """A lease and what is known of its messages. Changed under the desk's lock, but for `acked`, to which any thread
    appends, and `is_clean`: set before `acked` is looked at, cleared after it grew."""

    __slots__ = (
        "_codes",
        "_own_limits",
        "acked",
        "array",
        "attempts",
        "desk",
        "duration_us",
        "expires_at",
        "expires_us",
        "group",
        "handed",
        "id",
        "in_order",
        "is_alone",
        "is_clean",
        "is_lost",
        "left",
        "looked_at",
        "lost",
        "max_attempts",
        "offsets",
        "oldest",
        "partition",
        "reported",
        "taken_at",
        "topic",
        "unanswered",
    )

    def __init__(
        self,
        grant: Grant,
        topic: TopicEntry,
        group: tuple[int, int],
        desk: Desk,
        now: float,
        wall_us: int,
        max_attempts: int,
    ) -> None:
        self.id = grant.lease
        self.topic = topic
        self.partition = grant.partition
        self.group = group
        self.desk = desk
        self.array = offsets_of(grant.ranges)
        self.offsets: list[int] = self.array.tolist()
        self.left = len(self.offsets)
        """How many are not settled."""
        self.acked: list[int] = []
        self.is_clean = True
        self.in_order = 0
        self.handed = 0
        self.reported = 0
        """Up to where the broker was told of hand-overs."""
        self.unanswered = 0
        """Settles of it that the broker has not confirmed."""
        self.is_lost = False
        self.lost: dict[int, bool] = {}
        """Offsets that were settled, which changed nothing, and whether a call has raised that."""
        self.is_alone = grant.is_alone
        self.attempts = grant.attempts
        self.max_attempts = max_attempts
        """The group's; 0 where that is not known."""
        self.duration_us = grant.duration_us
        self.taken_at = now
        self.looked_at = now
        """When it was renewed, or it was considered."""
        self.oldest: tuple[int, float] = (0, now)
        """The first message handed out and not settled, and since when."""
        self.expires_at = 0.0
        self.expires_us = 0
        self.renewed(now, wall_us, grant.duration_us)
        self._codes: npt.NDArray[np.uint8] | None = None
        self._own_limits: dict[int, int] | None = None

    def __repr__(self) -> str:
        where = f"{self.topic.shown}/{self.partition}"
        return f"<HeldLease {self.id:#x} of {where}, {self.left} of {len(self.offsets)} left, {self.handed} handed out>"

    def renewed(self, now: float, wall_us: int, duration_us: int) -> None:
        """It runs for so long from now on, or as long as it does anyway: that is what the broker keeps."""
        self.expires_at = max(self.expires_at, now + duration_us / 1_000_000)
        self.expires_us = max(self.expires_us, wall_us + duration_us)

    def is_over(self, now: float, wall_us: int) -> bool:
        """Whether it has ended, as far as is known here. The wall clock went on while the machine was suspended; where
        it was set forward, messages are fetched once more."""
        return self.is_lost or self.expires_at <= now or self.expires_us <= wall_us

    @property
    def has_none_to_hand_out(self) -> bool:
        """Whether all of it was handed out, or passed over."""
        return self.handed >= len(self.offsets)

    def token(self, offset: int) -> LeaseToken:
        """Return what settles one of its messages from another process."""
        return LeaseToken(*self.group, self.topic.id, self.partition, self.id, offset)

    def earlier(self, offset: int) -> Attempts | None:
        """Return what is known of attempts before this one."""
        for found in self.attempts:
            bounds = unpack_ranges(found.ranges)
            if bool(np.any((bounds[:, 0] <= offset) & (offset < bounds[:, 1]))):
                return found
        return None

    def note_limits(self, offsets: npt.NDArray[np.int64], limits: npt.NDArray[np.integer]) -> None:
        """Note how many attempts messages allow themselves; 0: what the group does."""
        own = np.flatnonzero(limits)
        if len(own):
            found = dict(zip(offsets[own].tolist(), limits[own].tolist(), strict=True))
            self._own_limits = found | (self._own_limits or {})

    def limit_of(self, offset: int) -> int:
        """Return how many attempts a message has; 0 where that is not known."""
        return self.max_attempts if self._own_limits is None else self._own_limits.get(offset, self.max_attempts)

    # -- settling --------------------------------------------------------------------------------------------------

    def drain(self) -> tuple[list[int], int]:
        """Take what was acknowledged: return the offsets that are new, and how many had another outcome already."""
        self.is_clean = True  # first: whoever appends from here on says so again
        count = len(self.acked)
        if not count:
            return [], 0
        taken, end = self.acked[:count], self.in_order + count
        conflicts = 0
        if self._codes is None and taken == self.offsets[self.in_order : end]:
            self.in_order = end
            self.left -= count
        else:
            taken, conflicts = self._mark(self._find(taken), Settling.ACCEPT)
        del self.acked[:count]
        return taken, conflicts

    def settle(self, offsets: Sequence[int], what: Settling) -> tuple[list[int], int]:
        """Note what became of these: return those that are new, and how many had another outcome already."""
        if not offsets:
            return [], 0
        if self._codes is None and what is Settling.ACCEPT and offsets[0] == self._next and len(offsets) == 1:
            self.in_order += 1
            self.left -= 1
            return [*offsets], 0
        return self._mark(self._find(offsets), what)

    @property
    def _next(self) -> int | None:
        """The first offset that is not acknowledged, where all are in order."""
        return self.offsets[self.in_order] if self.in_order < len(self.offsets) else None

    def outcome(self, offset: int) -> int:
        """Return what became of a message: a code of `Settling`, or NONE_YET."""
        index = int(self._find([offset])[0])
        if self._codes is None:
            return int(Settling.ACCEPT) if index < self.in_order else NONE_YET
        return int(self._codes[index])

    def open_offsets(self, start: int, end: int | None = None) -> list[int]:
        """Return the offsets of those that are not settled, from one index up to another."""
        if self._codes is None:
            return self.offsets[max(start, self.in_order) : end]
        found = np.flatnonzero(self._codes[start:end] == NONE_YET) + start
        return self.array[found].tolist()

    def to_report(self, most: int) -> list[int]:
        """Return what of the next `most` messages was handed out, is not settled and not reported; it counts as
        reported from here on. What is settled needs none: the settle says it."""
        end = min(self.handed, self.reported + most)
        if self.reported >= end:
            return []
        found = self.open_offsets(self.reported, end)
        self.reported = end
        return found

    def note_oldest(self, now: float) -> None:
        """Find out since when the user has had the first message that is not settled."""
        found = self.open_offsets(0, self.handed)
        if not found:
            self.oldest = (-1, now)
        elif self.oldest[0] != found[0]:
            self.oldest = (found[0], now)

    def held_since(self) -> float:
        """Return since when the user has what is not settled; of a lease that is only buffered, since it came."""
        return self.oldest[1] if self.handed else self.taken_at

    def _find(self, offsets: Sequence[int]) -> Indexes:
        return np.unique(np.searchsorted(self.array, np.asarray(offsets, np.int64)))

    def _mark(self, indexes: Indexes, what: Settling) -> tuple[list[int], int]:
        if self._codes is None:
            self._codes = np.zeros(len(self.offsets), np.uint8)
            self._codes[: self.in_order] = Settling.ACCEPT
        found = self._codes[indexes]
        fresh = indexes[found == NONE_YET]
        self._codes[fresh] = what
        self.left -= len(fresh)
        return self.array[fresh].tolist(), int(np.count_nonzero((found != NONE_YET) & (found != what)))


def offsets_of(ranges: bytes) -> npt.NDArray[np.int64]:
    """Return every offset of packed ranges. Raises InvalidRequestError."""
    bounds = unpack_ranges(ranges)
    if len(bounds) == 1:
        return np.arange(bounds[0, 0], bounds[0, 1], dtype=np.int64)
    if not len(bounds):
        return np.empty(0, np.int64)
    return np.concatenate([np.arange(start, end, dtype=np.int64) for start, end in bounds.tolist()])
