"""An open delivery log with the states that it leads to.

decide -> events -> append: one batch, one write, applied by the log's own fold -> as durable as asked -> answer
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...protocol.batch import BatchHeader, encode_batch, encode_one
from ...protocol.durability import Durability
from ...protocol.errors import OverloadedError
from ...protocol.limits import MIB
from ...protocol.messages import SettleError
from ...protocol.segment_header import LogKind
from ..delivery.events import Event, Kind, encode_event
from ..delivery.fold import DeliveryFold
from ..delivery.offset_set import OffsetSet
from ..delivery.queue_state import QueueState
from ..group_commit import Done
from ..services import Services
from ..storage.layout import log_id_of
from ..storage.log import Log
from ..storage.settings import LogSettings
from ..upkeep import URGENT_BYTES
from .leased_batches import LeasedBatch
from .own_retries import OwnRetries

DELIVERY_FOLDER = "delivery"

SEGMENT_BYTES = 16 * MIB
"""A batch of events fits: what one request says is bounded by its control's size, and recorded twice at most. What no
request bounds is recorded in pieces."""

PIECES = 16
"""Pieces to a segment, each soon recorded: one event, of a lease of 100,000 messages, may take as much as two."""

EVENT_BYTES = 128
"""Of an event beside its ranges and its error, at most."""

CHARACTER_BYTES = 4
"""Of a character of an error's texts, at most."""

DAY_US = 86_400_000_000

_STAYS_LEASED = frozenset({Kind.ACQUIRED, Kind.HANDED_OVER, Kind.RENEWED})


def delivery_log_id(topic_id: int, partition: int) -> int:
    """Return the id of a partition's delivery log; never used again."""
    return log_id_of(topic_id, partition, LogKind.DELIVERY)


def delivery_settings(retention_us: int | None, max_unsynced_bytes: int) -> LogSettings:
    """Return what delivery logs are opened with; `retention_us` is how long what became of messages can be told."""
    return LogSettings(segment_bytes=SEGMENT_BYTES, retention_us=retention_us, max_unsynced_bytes=max_unsynced_bytes)


class DeliveryLog:
    """One open delivery log."""

    def __init__(self, log: Log, fold: DeliveryFold, services: Services) -> None:
        self.log = log
        self.fold = fold
        self.own_retries: dict[int, OwnRetries] = {}
        """Group -> what messages that it has leased say of their retries."""
        self._services = services
        self._bytes_until_upkeep = URGENT_BYTES

    def __repr__(self) -> str:
        return f"<DeliveryLog {self.log!r} {self.fold!r}>"

    def pieces(self, events: Iterable[Event]) -> Iterator[list[Event]]:
        """Yield events in pieces that are recorded one by one: so many may come at once that no batch holds them."""
        return self.pieces_of([event] for event in events)

    def pieces_of(self, deeds: Iterable[Sequence[Event]]) -> Iterator[list[Event]]:
        """Be `pieces`, with the events of each deed in one piece, unless they alone are half a segment."""
        piece: list[Event] = []
        size, enough, limit = 0, self.log.segment_bytes // PIECES, self.log.segment_bytes // 2
        for deed in deeds:
            added = sum(map(_size, deed))
            if piece and size + added > limit:
                yield piece
                piece, size = [], 0
            if added > limit and len(deed) > 1:
                yield from self.pieces(deed)
                continue
            piece += deed
            size += added
            if size >= enough:
                yield piece
                piece, size = [], 0
        if piece:
            yield piece

    def append(self, events: Sequence[Event]) -> None:
        """Record events and apply them. Whatever it raises (LogFencedError, OverloadedError, ...), nothing changed."""
        services = self._services
        now_us = services.time.now_us()
        values = [encode_event(event) for event in events]
        batch = encode_one(values[0], now_us) if len(values) == 1 else encode_batch(values, timestamp_us=now_us)
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
        for group, state in self.fold.states.items():
            leased = _leased(state)
            if leased:
                self.own_retries.setdefault(group, OwnRetries()).load(messages, leased)

    def note_retries(self, group: int, batch: LeasedBatch, offsets: OffsetSet) -> None:
        """Read what messages of a batch that a group leases say of their retries."""
        self.own_retries.setdefault(group, OwnRetries()).note(batch, offsets)

    def forget_retries(self, group: int, events: Iterable[Event]) -> None:
        """Keep nothing of that for what events have taken out of its lease."""
        own = self.own_retries.get(group)
        if own:
            for event in events:
                if event.kind not in _STAYS_LEASED:
                    own.drop(event.offsets)

    def keep_retries(self) -> None:
        """Keep nothing of that for what is not leased any more, whatever became of it."""
        for group, own in [*self.own_retries.items()]:
            state = self.fold.states.get(group)
            if state is None or not own:
                del self.own_retries[group]
            else:
                own.keep(_leased(state))

    def wait(self, word: Durability, done: Done) -> None:
        """Call `done` once all that was recorded is as durable as `word` says, with an error if it cannot be."""
        self._services.commit.wait(self.log, self.log.end_offset, word, done)


def error_bytes(error: SettleError | None) -> int:
    """Return how large an error is, at most."""
    return 0 if error is None else CHARACTER_BYTES * (len(error.kind) + len(error.text) + len(error.traceback))


def _size(event: Event) -> int:
    return EVENT_BYTES + len(event.ranges) + error_bytes(event.error)


def _leased(state: QueueState) -> OffsetSet:
    """Return all that a group has leased."""
    return OffsetSet.union(*(lease.left for lease in state.leases.values())) if state.leases else OffsetSet()
