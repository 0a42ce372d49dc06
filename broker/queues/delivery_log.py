"""An open delivery log with the states that it leads to.

decide -> events -> append: one batch, one write, applied by the log's own fold -> as durable as asked -> answer
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...protocol.batch import BatchHeader, encode_batch
from ...protocol.durability import Durability
from ...protocol.errors import OverloadedError
from ...protocol.limits import MIB
from ..delivery.events import Event, encode_event
from ..delivery.fold import DeliveryFold
from ..delivery.offset_set import OffsetSet
from ..group_commit import Done
from ..services import Services
from ..storage.log import Log
from ..storage.settings import LogSettings
from ..upkeep import URGENT_BYTES
from .leased_batches import LeasedBatch
from .own_retries import OwnRetries

DELIVERY_FOLDER = "delivery"
DELIVERY_KIND = 3

SEGMENT_BYTES = 16 * MIB
"""A batch of events fits: what one request says is bounded by its control's size, and recorded twice at most. What no
request bounds is recorded in pieces."""

PIECES = 16
"""Pieces to a segment, each soon recorded: one event, of a lease of 100,000 messages, may take as much as two."""

EVENT_BYTES = 128
"""Of an event beside its ranges, at most, where it has no error."""

DAY_US = 86_400_000_000


def delivery_log_id(topic_id: int, partition: int) -> int:
    """Return the id of a partition's delivery log; never used again."""
    return topic_id << 32 | partition << 2 | DELIVERY_KIND


def delivery_settings(retention_us: int | None, max_unsynced_bytes: int) -> LogSettings:
    """Return what delivery logs are opened with; `retention_us` is how long what became of messages can be told."""
    return LogSettings(segment_bytes=SEGMENT_BYTES, retention_us=retention_us, max_unsynced_bytes=max_unsynced_bytes)


class DeliveryLog:
    """One open delivery log."""

    def __init__(self, log: Log, fold: DeliveryFold, services: Services) -> None:
        self.log = log
        self.fold = fold
        self.own_retries = OwnRetries()
        """What leased messages say of their retries."""
        self._services = services
        self._bytes_until_upkeep = URGENT_BYTES

    def __repr__(self) -> str:
        return f"<DeliveryLog {self.log!r} {self.fold!r}>"

    def pieces(self, events: Iterable[Event]) -> Iterator[list[Event]]:
        """Yield events in pieces that are recorded one by one: so many may come at once that no batch holds them."""
        piece: list[Event] = []
        size = 0
        for event in events:
            piece.append(event)
            size += EVENT_BYTES + len(event.ranges)
            if size >= self.log.segment_bytes // PIECES:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def append(self, events: Sequence[Event]) -> None:
        """Record events and apply them. Whatever it raises (LogFencedError, OverloadedError, ...), nothing changed."""
        services = self._services
        now_us = services.time.now_us()
        batch = encode_batch([encode_event(event) for event in events], timestamp_us=now_us)
        unsynced, limit = services.commit.unsynced_bytes, services.commit.max_unsynced_bytes
        if unsynced + len(batch) > limit:  # a recovery looks no further behind a torn batch
            raise OverloadedError(f"expected at most {limit} bytes to wait for the disk, found {unsynced}")
        self.log.append(batch, [BatchHeader.read(batch)], now_us=now_us)
        services.commit.appended(self.log, services.time.monotonic_us())
        self._bytes_until_upkeep -= len(batch)
        if self._bytes_until_upkeep <= 0:
            self._bytes_until_upkeep = URGENT_BYTES
            services.upkeep.urge(self.log)
        else:
            services.upkeep.touch(self.log)

    def load_retries(self, messages: Log) -> None:
        """Read what leased messages say of their retries; may wait for the disk."""
        leased = OffsetSet()
        for state in self.fold.states.values():
            for lease in state.leases.values():
                leased |= lease.left
        self.own_retries.load(messages, leased)

    def note_retries(self, batch: LeasedBatch) -> None:
        """Read what the messages of a batch say of their retries."""
        self.own_retries.note(batch, min(state.floor for state in self.fold.states.values()))

    def forget_retries(self) -> None:
        """Keep nothing of that where nothing is leased."""
        if self.own_retries and not any(state.leases for state in self.fold.states.values()):
            self.own_retries.clear()

    def wait(self, word: Durability, done: Done) -> None:
        """Call `done` once all that was recorded is as durable as `word` says, with an error if it cannot be."""
        self._services.commit.wait(self.log, self.log.end_offset, word, done)
