"""Leases: which messages members hold, and until when."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from .offset_set import OffsetSet

EPOCH_SHIFT = 40
"""A lease id is the broker's epoch above a counter of this many bits: a million leases a second for twelve days."""

MAX_EPOCH = 1 << 22
"""Lease ids stay below 2^62, as everything that travels."""


def lease_id(epoch: int, counter: int) -> int:
    """Return the id of a lease. Epochs are raised and synced before any is given, so none is given twice."""
    assert 0 < counter < 1 << EPOCH_SHIFT, f"lease {counter} of one epoch"
    assert 0 < epoch < MAX_EPOCH, f"epoch {epoch}"
    return epoch << EPOCH_SHIFT | counter


class LeaseIds:
    """The ids of all leases that a broker gives in one epoch; one object a broker."""

    __slots__ = ("_counter", "_epoch")

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._counter = 0

    def next(self) -> int:
        """Return an id that was never given before."""
        self._counter += 1
        return lease_id(self._epoch, self._counter)


class Lease:
    """Messages of one partition that a member holds for a group. Its sets are replaced, never changed."""

    __slots__ = (
        "deadline_us",
        "duration_us",
        "handed",
        "handed_us",
        "id",
        "is_alone",
        "left",
        "member",
        "term_us",
        "wall_deadline_us",
    )

    def __init__(self, number: int, member: int, left: OffsetSet, duration_us: int, *, is_alone: bool) -> None:
        self.id = number
        self.member = member
        self.left = left
        """What is neither settled nor given back."""
        self.handed = OffsetSet()
        """What of it was handed to the member's code, and so counts as an attempt."""
        self.handed_us = 0
        """When the last hand-over was recorded, wall clock."""
        self.duration_us = duration_us
        """How long it was given for; a renewal that names no other goes by it."""
        self.term_us = duration_us
        """How long it runs from when it was given or renewed last."""
        self.deadline_us = 0
        """When it ends, on the monotonic clock; set by `QueueState.resume` after a start."""
        self.wall_deadline_us = 0
        """The same as it is recorded."""
        self.is_alone = is_alone
        """Whether it holds suspects, beside which its member holds nothing else."""

    def run(self, term_us: int, wall_deadline_us: int, monotonic_us: int) -> None:
        """Run from now on for a time."""
        self.term_us = term_us
        self.wall_deadline_us = wall_deadline_us
        self.deadline_us = monotonic_us + term_us

    def __repr__(self) -> str:
        return f"<Lease {self.id:#x} of member {self.member:#x}, {len(self.left)} left, until {self.deadline_us}>"


class Deadlines:
    """When leases end: a heap, cleaned when an entry comes up, or when most of it is out of date."""

    __slots__ = ("_heap", "_leases")

    def __init__(self, leases: dict[int, Lease]) -> None:
        self._leases = leases
        self._heap: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, lease: Lease) -> None:
        """Note a lease's deadline, again when it moved."""
        heappush(self._heap, (lease.deadline_us, lease.id))
        if len(self._heap) > 4 * len(self._leases) + 64:
            self.rebuild()

    def rebuild(self) -> None:
        """Note all deadlines anew."""
        self._heap = [(lease.deadline_us, lease.id) for lease in self._leases.values()]
        heapify(self._heap)

    def next_us(self) -> int | None:
        """Return when the next lease ends, or None."""
        heap = self._heap
        while heap and not self._holds(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, monotonic_us: int) -> list[Lease]:
        """Return the leases that have ended, the earliest first. They stay noted for as long as there are such."""
        found: list[tuple[int, int]] = []
        while (next_us := self.next_us()) is not None and next_us <= monotonic_us:
            entry = heappop(self._heap)
            if entry not in found[-1:]:
                found.append(entry)
        for entry in found:
            heappush(self._heap, entry)
        return [self._leases[lease] for _deadline_us, lease in found]

    def _holds(self, entry: tuple[int, int]) -> bool:
        lease = self._leases.get(entry[1])
        return lease is not None and lease.deadline_us == entry[0]

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        assert {(lease.deadline_us, lease.id) for lease in self._leases.values()} <= {*self._heap}
