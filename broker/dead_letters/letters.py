"""Dead letters as they lie in their topic: of which record each is a copy, and who gave up on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from ...protocol.batch import BatchHeader, decode_batch
from ...protocol.dead_letter_headers import GROUP, REDRIVES, redrives_in
from ...protocol.errors import CorruptError, TidelogError
from ...protocol.segment_header import LogKind
from ..delivery.offset_set import OffsetSet, set_of
from ..flow import Flow
from ..partition import Partition
from ..services import Offload
from ..storage.layout import kind_of, place_of
from .log_reading import read_piece


@dataclass(frozen=True, slots=True)
class Original:
    """Where the record lies that a dead letter is a copy of, and the full name of the group that gave up on it."""

    topic_id: int
    partition: int
    offset: int
    group: str


@dataclass(frozen=True, slots=True)
class Letter:
    """One dead letter. `original` is None for a record that somebody produced to the topic, and nobody gave up."""

    offset: int
    original: Original | None
    redrives: int


@dataclass(slots=True)
class Letters:
    """What was read, and what could not be."""

    found: list[Letter] = field(default_factory=list[Letter])
    unreadable: list[tuple[OffsetSet, TidelogError]] = field(default_factory=list[tuple[OffsetSet, TidelogError]])


def read_letters(partition: Partition, offload: Offload, wanted: OffsetSet) -> Flow[Letters]:
    """Read these records of a dead-letter topic, all of which are visible."""
    letters = Letters()
    at = wanted.min() if wanted else 0
    while wanted and at <= wanted.max():
        at = wanted.next_set_bit(at)
        try:
            following = yield from read_piece(
                lambda: partition.log, offload, at, partition.visible_offset, partial(_note, letters.found, wanted)
            )
        except CorruptError as error:
            readable = error.details.get("next")
            following = max(at + 1, readable if isinstance(readable, int) else 0)
            letters.unreadable.append((wanted & set_of([(at, following)]), error))
        at = max(at + 1, following)
    return letters


def _note(found: list[Letter], wanted: OffsetSet, header: BatchHeader, batch: memoryview) -> None:
    records = decode_batch(batch)
    routing, offsets = records.routing, records.offsets.tolist()
    rows = [row for row, offset in enumerate(offsets) if offset in wanted]
    if not rows:
        return
    headers = None if records.headers is None else records.headers.to_list()
    logs, origins = routing.origin_logs, routing.origin_offsets
    for row in rows:
        said = {} if headers is None else dict(headers[row])
        group = said.get(GROUP)
        original = None
        if logs is not None and origins is not None and group is not None:
            original = _original(int(logs[row]), int(origins[row]), group)
        found.append(Letter(offsets[row], original, redrives_in(said.get(REDRIVES))))


def _original(log_id: int, offset: int, group: bytes) -> Original | None:
    """Return what a record is a copy of: by its origin columns, which nobody but the broker can write."""
    if kind_of(log_id) is not LogKind.MESSAGES:
        return None
    return Original(*place_of(log_id), offset, group.decode())
