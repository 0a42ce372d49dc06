"""What one partition remembers of its producers, so that a repeated batch is stored once.

A producer session is (producer id, epoch); it numbers its batches in this partition from 0, one number a batch,
wrapping from 2^32 - 1 to 0. The table keeps the last number and the receipts of the last 64 batches of each.

    batch of                            answer
    an unknown producer, number 0       new
    an unknown producer, other number   UNKNOWN_PRODUCER
    an older epoch                      PRODUCER_FENCED
    a later epoch, number 0             new; the older session is forgotten
    a later epoch, other number         SEQUENCE_GAP (nothing known under this epoch)
    the epoch, last number + 1          new
    the epoch, one of the last 64       its first receipt; SEQUENCE_REUSED when the content differs, which cannot be
                                        told of a batch that was stored without its duplicates
    the epoch, any other number         SEQUENCE_GAP, naming the last number

It is a fold over the batch headers of the message log: `apply_batch` runs live and in recovery alike, and a snapshot
holds it whole. What was judged new becomes known only by being appended.

Section 16 version 1, little endian, the producer that was silent for longest first:

    u32 producers | per producer: u64 id | u32 epoch | u32 last sequence | u32 receipts | receipts, oldest first
    receipt: i64 base offset | i64 append time | u64 checksum | u32 record count, bit 31: stored without duplicates
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..protocol.batch import Attributes, BatchHeader
from ..protocol.errors import (
    ProducerFencedError,
    SequenceGapError,
    SequenceReusedError,
    TidelogError,
    UnknownProducerError,
)
from ..protocol.limits import REMEMBERED_BATCHES
from .errors import kept
from .producer_id import is_named
from .storage.fold import FIRST_FOLD_SECTION, Section

PRODUCERS_SECTION = FIRST_FOLD_SECTION
PRODUCERS_VERSION = 1

UNNAMED_EXPIRY_US = 15 * 60 * 1_000_000
NAMED_EXPIRY_US = 7 * 86_400 * 1_000_000
"""How long a producer that sends nothing is remembered; a nameless one can never come back after its process."""

MAX_PRODUCERS = 10_000
"""Producers remembered in one partition, about 2 KiB each; beyond it the one silent for longest is forgotten."""

SEQUENCE_MASK = 0xFFFF_FFFF

_COUNT = struct.Struct("<I")
_PRODUCER = struct.Struct("<QIII")
_RECEIPT = struct.Struct("<qqQI")
_REENCODED = 1 << 31


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was answered for a batch the first time."""

    base_offset: int
    append_time_us: int
    checksum: int
    record_count: int
    is_reencoded: bool = False
    """Stored without its duplicates: the checksum and the count are those of what was stored."""

    @property
    def end_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.record_count


@dataclass(slots=True)
class Judgement:
    """Verdicts on the first batches of a request: None for a new one, the first receipt for a repeat.

    `refused` is the error of the batch after them, if it has one. Shorter than the request without an error means:
    append the new ones, then ask about the rest.
    """

    verdicts: list[Receipt | None] = field(default_factory=list["Receipt | None"])
    refused: TidelogError | None = None


class _Session:
    """The latest session of one producer; receipts lie in a ring at (sequence modulo 64)."""

    __slots__ = ("epoch", "generation", "held", "last_sequence", "ring", "used_us")

    def __init__(self, epoch: int, generation: int) -> None:
        self.epoch = epoch
        self.generation = generation  # an older one may be in a snapshot: it is replaced, never added to
        self.last_sequence = SEQUENCE_MASK
        self.held = 0
        self.ring = bytearray()
        self.used_us = 0

    def remember(self, sequence: int, receipt: bytes) -> None:
        is_next = sequence == (self.last_sequence + 1) & SEQUENCE_MASK
        # After damage in the log a sequence may be missing: what lies before it is no longer consecutive.
        self.held = min(self.held + 1, REMEMBERED_BATCHES) if is_next else 1
        self.last_sequence = sequence
        at = sequence % REMEMBERED_BATCHES * _RECEIPT.size
        if len(self.ring) < at + _RECEIPT.size:
            self.ring.extend(bytes(at + _RECEIPT.size - len(self.ring)))
        self.ring[at : at + _RECEIPT.size] = receipt

    def receipt(self, sequence: int) -> Receipt | None:
        if (self.last_sequence - sequence) & SEQUENCE_MASK >= self.held:
            return None
        found = _RECEIPT.unpack_from(self.ring, sequence % REMEMBERED_BATCHES * _RECEIPT.size)
        base_offset, append_time_us, checksum, count = found
        is_reencoded = bool(count & _REENCODED)
        return Receipt(base_offset, append_time_us, checksum, count & ~_REENCODED, is_reencoded)

    def receipts(self) -> tuple[bytearray, bytearray]:
        """Return the stored receipts, oldest first, in two parts: the second begins where the ring does."""
        begin = (self.last_sequence - self.held + 1) % REMEMBERED_BATCHES
        wrapped = max(begin + self.held - REMEMBERED_BATCHES, 0)
        first = self.ring[begin * _RECEIPT.size : (begin + self.held) * _RECEIPT.size]
        return first, self.ring[: wrapped * _RECEIPT.size]

    def copy(self, generation: int) -> _Session:
        copy = _Session(self.epoch, generation)
        copy.last_sequence, copy.held, copy.ring = self.last_sequence, self.held, bytearray(self.ring)
        return copy


@dataclass(slots=True)
class _Known:
    """Where a producer stands while a request is judged; batches from `first_new` on are judged, not appended."""

    epoch: int
    last_sequence: int
    first_new: int | None = None

    def is_appended(self, sequence: int) -> bool:
        if self.first_new is None:
            return True
        return (self.last_sequence - sequence) & SEQUENCE_MASK > (self.last_sequence - self.first_new) & SEQUENCE_MASK


def any_epoch(producer_id: int) -> int | None:
    """Be a table's `named_epoch` where no names are known."""
    return None


class ProducerTable:
    """The producers of one partition; a `Fold` of its message log."""

    def __init__(
        self,
        now_us: int,
        *,
        named_epoch: Callable[[int], int | None] = any_epoch,
        max_producers: int = MAX_PRODUCERS,
    ) -> None:
        """Start empty. Times are of a clock that never steps; what is restored counts as used at `now_us`.

        `named_epoch` tells the current epoch of a named producer, so that an older one is refused here even if the
        newer never produced to this partition.
        """
        self._sessions: dict[int, _Session] = {}
        self._generation = 0  # counts the snapshots
        self._now_us = now_us
        self._named_epoch = named_epoch
        self._max_producers = max_producers
        self.forgotten = 0
        """Producers dropped because there were too many."""

    def __repr__(self) -> str:
        return f"<ProducerTable {self.count} producers>"

    @property
    def count(self) -> int:
        """Producers remembered. (A table without any is still a table, so it has no length that says it is empty.)"""
        return len(self._sessions)

    # -- judging -------------------------------------------------------------------------------------------------

    def judge(self, headers: Sequence[BatchHeader], now_us: int) -> Judgement:
        """Say of each batch in order whether it is new, a repeat or refused; that a repeat was heard of is noted."""
        self._now_us = now_us
        judgement = Judgement()
        known: dict[int, _Known] = {}
        for header in headers:
            if header.producer_id == 0:
                judgement.verdicts.append(None)
                continue
            try:
                where = known.get(header.producer_id)
                if where is None:
                    where = known[header.producer_id] = self._where(header)
                if not self._is_new(header, where):
                    if not where.is_appended(header.base_sequence):
                        break
                    judgement.verdicts.append(self._first_receipt(header))
                    continue
            except TidelogError as error:
                judgement.refused = kept(error)
                break
            judgement.verdicts.append(None)
        return judgement

    def _where(self, header: BatchHeader) -> _Known:
        """Return where the producer stands; an unknown one, or a later epoch, is at its start."""
        self._check_named(header)
        session = self._sessions.get(header.producer_id)
        if session is None:
            if header.base_sequence != 0:
                raise UnknownProducerError(
                    f"expected a producer known here, or sequence 0, found producer {header.producer_id}"
                    f" with sequence {header.base_sequence}",
                    producer_id=header.producer_id,
                )
            return _Known(header.producer_epoch, SEQUENCE_MASK)
        return _Known(session.epoch, session.last_sequence)

    def _check_named(self, header: BatchHeader) -> None:
        if not is_named(header.producer_id):
            return
        current = self._named_epoch(header.producer_id)
        if current is None or header.producer_epoch == current:
            return
        if header.producer_epoch < current:
            raise _fenced(header, current)
        raise UnknownProducerError(
            f"expected epoch {current}, the last one given to producer {header.producer_id},"
            f" found {header.producer_epoch}",
            producer_id=header.producer_id,
        )

    def _is_new(self, header: BatchHeader, where: _Known) -> bool:
        """Tell a new batch from a repeat, moving `where` past a new one. Raises for what is neither."""
        if header.producer_epoch < where.epoch:
            raise _fenced(header, where.epoch)
        sequence = header.base_sequence
        if header.producer_epoch > where.epoch:
            if sequence != 0:
                raise _gap(header, None)
            where.epoch, where.last_sequence, where.first_new = header.producer_epoch, 0, 0
            return True
        if sequence == (where.last_sequence + 1) & SEQUENCE_MASK:
            where.last_sequence = sequence
            where.first_new = sequence if where.first_new is None else where.first_new
            return True
        if (where.last_sequence - sequence) & SEQUENCE_MASK >= REMEMBERED_BATCHES:
            raise _gap(header, where.last_sequence)
        return False

    def _first_receipt(self, header: BatchHeader) -> Receipt:
        session = self._sessions.get(header.producer_id)
        receipt = session.receipt(header.base_sequence) if session and session.epoch == header.producer_epoch else None
        if receipt is None:
            raise receipt_is_gone(header)
        if receipt.checksum != header.checksum and not receipt.is_reencoded:
            raise sequence_reused(header)
        self._hear_of(header.producer_id)
        return receipt

    def _hear_of(self, producer_id: int) -> None:
        session = self._sessions.pop(producer_id)
        session.used_us = self._now_us
        self._sessions[producer_id] = session

    def expire(self, now_us: int) -> None:
        """Forget producers that were silent for too long."""
        over: list[int] = []
        for producer_id, session in self._sessions.items():
            silent_us = now_us - session.used_us
            if is_named(producer_id):
                if silent_us > NAMED_EXPIRY_US:
                    over.append(producer_id)
            elif silent_us > UNNAMED_EXPIRY_US:
                over.append(producer_id)
            else:  # the one silent for longest is the first, so those after it were heard of later
                break
        for producer_id in over:
            del self._sessions[producer_id]

    # -- the fold ------------------------------------------------------------------------------------------------

    def section_ids(self) -> frozenset[int]:
        """Return the section that `restore` knows."""
        return frozenset({PRODUCERS_SECTION})

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Take in a stored batch."""
        if header.producer_id == 0:
            return
        session = self._sessions.pop(header.producer_id, None)
        if session is None or session.epoch != header.producer_epoch:
            session = _Session(header.producer_epoch, self._generation)
        elif session.generation != self._generation:
            session = session.copy(self._generation)
        session.used_us = self._now_us
        session.remember(
            header.base_sequence,
            _RECEIPT.pack(header.base_offset, header.append_time_us, header.checksum, _counted(header)),
        )
        self._sessions[header.producer_id] = session
        if len(self._sessions) > self._max_producers:
            del self._sessions[next(iter(self._sessions))]
            self.forgotten += 1

    def freeze(self) -> Callable[[], list[Section]]:
        """Hold on to the whole table, to be packed as one section: its sessions are copied before they change."""
        self._generation += 1
        frozen = list(self._sessions.items())
        return lambda: [Section(PRODUCERS_SECTION, PRODUCERS_VERSION, _pack(frozen))]

    def restore(self, sections: Sequence[Section]) -> None:
        """Replace the table by what `freeze` led to."""
        self._sessions.clear()
        for section in sections:
            self._restore(section.data)

    def _restore(self, data: bytes) -> None:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        for _ in range(count):
            producer_id, epoch, last_sequence, held = _PRODUCER.unpack_from(data, at)
            at += _PRODUCER.size
            session = self._sessions[producer_id] = _Session(epoch, self._generation)
            session.used_us = self._now_us
            for step in range(held):
                sequence = (last_sequence - held + 1 + step) & SEQUENCE_MASK
                session.remember(sequence, data[at : at + _RECEIPT.size])
                at += _RECEIPT.size
        assert at == len(data), f"expected a producer section of {at} bytes, found {len(data)}"


def _pack(sessions: Sequence[tuple[int, _Session]]) -> bytes:
    # Piece by piece: one join of all of them would keep every other thread waiting.
    out = io.BytesIO()
    out.write(_COUNT.pack(len(sessions)))
    for producer_id, session in sessions:
        out.write(_PRODUCER.pack(producer_id, session.epoch, session.last_sequence, session.held))
        for part in session.receipts():
            out.write(part)
    return out.getvalue()


def _counted(header: BatchHeader) -> int:
    return header.record_count | (_REENCODED if header.attributes & Attributes.REENCODED else 0)


def receipt_is_gone(header: BatchHeader) -> UnknownProducerError:
    """Return the error for a repeat of which nobody knows what it was answered."""
    return UnknownProducerError(
        f"expected a sequence whose receipt is kept, found {header.base_sequence} of producer {header.producer_id}",
        producer_id=header.producer_id,
    )


def sequence_reused(header: BatchHeader) -> SequenceReusedError:
    """Return the error for a known number with another batch."""
    return SequenceReusedError(
        f"expected the batch stored under sequence {header.base_sequence} of producer {header.producer_id},"
        " found one with other content; do two processes share a producer, as after a fork?",
        producer_id=header.producer_id,
        sequence=header.base_sequence,
    )


def _fenced(header: BatchHeader, current: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"expected epoch {current} of producer {header.producer_id}, found the older {header.producer_epoch}",
        producer_id=header.producer_id,
        epoch=current,
    )


def _gap(header: BatchHeader, last: int | None) -> SequenceGapError:
    expected = 0 if last is None else (last + 1) & SEQUENCE_MASK
    return SequenceGapError(
        f"expected sequence {expected} of producer {header.producer_id} in epoch {header.producer_epoch},"
        f" found {header.base_sequence}",
        producer_id=header.producer_id,
        last=last,
        found=header.base_sequence,
    )
