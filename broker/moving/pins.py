"""What retention leaves alone in the targets of moves: copies of which it is not durable yet that they were made.

A start that does not find such a copy would make it again. So a segment stays as long as it holds a copy whose `done`
is not synced, or may hold one that has to be searched for.
"""

from __future__ import annotations

from ..partition import Partition
from ..storage.sealed import Removable, SealedSegment
from ..topic import Topic


class Pin:
    """Nothing of a log of messages goes from an offset on, until it is released."""

    __slots__ = ("log_id", "offset")

    def __init__(self, log_id: int, offset: int) -> None:
        self.log_id = log_id
        self.offset = offset

    def __repr__(self) -> str:
        return f"<Pin of log {self.log_id} at {self.offset}>"


class Pins:
    """All pins of one broker; asked by retention for each partition at each pass."""

    def __init__(self) -> None:
        self._by_log: dict[int, dict[Pin, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_log.values()))

    def __repr__(self) -> str:
        return f"<Pins {len(self)} in {len(self._by_log)} logs>"

    def hold(self, log_id: int, offset: int) -> Pin:
        """Keep everything of a log from an offset on."""
        pin = Pin(log_id, offset)
        self._by_log.setdefault(log_id, {})[pin] = None
        return pin

    def release(self, pin: Pin) -> None:
        """Keep nothing for a pin any more; no effect a second time."""
        pins = self._by_log.get(pin.log_id, {})
        pins.pop(pin, None)
        if not pins:
            self._by_log.pop(pin.log_id, None)

    def __call__(self, _topic: Topic, partition: Partition) -> Removable | None:
        """Return what says which segments may go, None for all."""
        pins = self._by_log.get(partition.log.log_id)
        if not pins:
            return None
        first = min(pin.offset for pin in pins)

        def may_go(segment: SealedSegment) -> bool:
            return segment.end_offset <= first

        return may_go
