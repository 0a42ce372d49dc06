"""Any stored file as plain facts: what it is, then one entry for each thing in it.

    a segment (of other logs too)             its header page, then each batch, gap and record, fact or event
    an index folder (.offsets, .times)        its rows
    a lane index (.lanes)                     each priority, and the ranges of offsets that have it
    a snapshot                                its sections
    the `synced` mark                         what is proven

Bytes of records stay bytes; the command decides how they are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from ...protocol.batch import Attributes, BatchHeader, Codec, RecordBatch
from ...protocol.errors import CorruptError, StorageError, TidelogError
from ...protocol.offset_ranges import MAX_OFFSET
from ...protocol.quantities import format_duration
from ...protocol.segment_header import SEGMENT_HEADER_BYTES, LogKind
from ..delivery.events import Flag, decode_event
from ..delivery.offset_set import iter_spans
from ..meta.facts import decode_fact
from ..storage.entries import Entries, Int64s
from ..storage.files import Files
from ..storage.lane_index import LaneIndex
from ..storage.layout import INDEX_SUFFIXES, LANES_SUFFIX, SYNCED, index_base, snapshot_offset
from ..storage.scan import Gap, Place, has_data, scan_tail
from ..storage.snapshot import decode_snapshot
from ..storage.synced_mark import SyncedMark
from .segment_reading import SegmentFile, read_segment

Value = str | int | float | bool | bytes | None | Sequence["Value"] | Mapping[str, "Value"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a file; fields ending in `_us` are times."""

    what: str
    fields: dict[str, Value]


def dump(files: Files, name: str) -> Iterator[Entry]:
    """Yield what is in a file (or index folder) of the folder that `files` opened.

    Raises StorageError for a name that no broker gives, CorruptError for a file of which nothing can be read.
    """
    if name == SYNCED:
        yield from _dump_mark(files, name)
    elif snapshot_offset(name) is not None:
        yield from _dump_snapshot(files, name)
    elif name.endswith(INDEX_SUFFIXES):
        yield from _dump_index(files, name)
    elif name.endswith((".log", ".next", ".recovered")):
        yield from _dump_segment(read_segment(files, name))
    else:
        raise StorageError(
            f"expected a segment (.log), an index ({', '.join(INDEX_SUFFIXES)}), a snapshot or {SYNCED}, found {name!r}"
        )


def _dump_mark(files: Files, name: str) -> Iterator[Entry]:
    mark = SyncedMark(files, ".")
    value = mark.read()
    mark.close()
    if value is None:
        raise CorruptError(f"expected a slot with a good checksum in {name}, found {mark.bad_slots} bad ones")
    yield Entry(
        "mark",
        {
            "segment_base": value.segment_base,
            "segment_seed": value.segment_seed,
            "offset": value.offset,
            "position": value.position,
            "bad_slots": mark.bad_slots,
        },
    )


def _dump_snapshot(files: Files, name: str) -> Iterator[Entry]:
    data = files.read(name)
    log_id = int.from_bytes(data[8:16], "little")
    snapshot = decode_snapshot(data, log_id)
    place = snapshot.place
    fields: dict[str, Value] = {"log_id": log_id, "offset": snapshot.offset, "segment_base": place.segment_base}
    fields |= {"position": place.position, "epoch": place.epoch, "append_time_us": place.append_time_us}
    yield Entry("snapshot", fields)
    for section in snapshot.sections:
        yield Entry(
            "section",
            {"id": section.id, "version": section.version, "bytes": len(section.data), "optional": section.optional},
        )


def _dump_index(files: Files, name: str) -> Iterator[Entry]:
    tag = int.from_bytes(files.read(f"{name}/checksum")[8:16], "little")
    rows = files.open_array(name, tag)
    if rows is None:
        raise CorruptError(f"expected an index with a good checksum, found a damaged one in {name}")
    if name.endswith(LANES_SUFFIX):
        yield from _dump_lanes(name, tag, rows)
        return
    columns = ("base_offset", "position")
    if name.endswith(".times"):
        columns = ("append_time_us", "base_offset", "max_before_us", "min_since_us")
    yield Entry("index", {"segment_seed": tag, "rows": len(rows)})
    for row in rows.tolist():
        yield Entry("row", dict(zip(columns, row, strict=True)))


def _dump_lanes(name: str, tag: int, stored: Int64s) -> Iterator[Entry]:
    lanes = LaneIndex.from_stored(index_base(name) or 0, MAX_OFFSET, stored)
    if lanes is None:
        raise CorruptError(f"expected sets of offsets for several priorities, found something else in {name}")
    yield Entry("index", {"segment_seed": tag, "priorities": len(lanes.priorities)})
    for priority in reversed(lanes.priorities):
        offsets = lanes.of(priority)
        yield Entry("lane", {"priority": priority, "messages": len(offsets)})
        for start, end in iter_spans(offsets):
            yield Entry("run", {"start": start, "end": end})


# -- segments ----------------------------------------------------------------------------------------------------


def _dump_segment(segment: SegmentFile) -> Iterator[Entry]:
    for problem in segment.problems:
        yield Entry("problem", {"text": problem})
    header = segment.header
    if header is None:
        raise CorruptError(f"expected a segment header in {segment.path}, found no valid copy")
    yield Entry(
        "segment",
        {
            "log_id": header.log_id,
            "kind": header.kind.name.lower(),
            "base_offset": header.base_offset,
            "seed": header.seed,
            "version": header.version,
            "max_unsynced_bytes": header.max_unsynced_bytes,
            "bytes": len(segment.data),
        },
    )
    parts: list[Entries] = []
    start = Place(SEGMENT_HEADER_BYTES, header.base_offset)
    found = scan_tail(segment.bytes(), start, start, len(segment.data), parts.append)
    gaps = {gap.position: gap for gap in found.gaps}
    for entries in parts:
        for position in entries["position"].tolist():
            yield from _gap_before(gaps, position)
            yield from _dump_batch(segment, position, header.kind)
    has_more = has_data(segment.bytes(), found.position)
    yield Entry("end", {"position": found.position, "offset": found.offset, "bytes_that_are_no_batch_follow": has_more})


def _gap_before(gaps: dict[int, Gap], position: int) -> Iterator[Entry]:
    for gap in [gap for gap in gaps.values() if gap.end_position <= position]:
        del gaps[gap.position]
        yield Entry(
            "damage",
            {"position": gap.position, "bytes": gap.end_position - gap.position, "start": gap.start, "end": gap.end},
        )


def _dump_batch(segment: SegmentFile, position: int, kind: LogKind) -> Iterator[Entry]:
    header = BatchHeader.read(segment.data, position)
    fields: dict[str, Value] = {"position": position, "bytes": header.batch_length, "base_offset": header.base_offset}
    fields |= {"record_count": header.record_count, "append_time_us": header.append_time_us}
    fields |= {"leader_epoch": header.leader_epoch, "synced_upto": header.synced_upto, "priority": header.priority}
    fields |= {"codec": Codec(header.codec).name.lower(), "flags": _flags(header.attributes)}
    fields |= {"producer_id": header.producer_id, "producer_epoch": header.producer_epoch}
    fields |= {"base_sequence": header.base_sequence, "min_timestamp_us": header.min_timestamp_us}
    fields |= {"max_timestamp_us": header.max_timestamp_us, "payload_bytes": header.payload_length}
    yield Entry("batch", fields)
    try:
        batch = segment.batch(position)
        match kind:
            case LogKind.META:
                yield from _dump_facts(batch)
            case LogKind.DELIVERY:
                yield from _dump_events(batch)
            case _:
                yield from _dump_records(batch)
    except TidelogError as error:
        yield Entry("problem", {"text": f"the batch at byte {position} does not decode: {error.message}"})


def _flags(attributes: int) -> str:
    bits = {
        name: value for name, value in vars(Attributes).items() if isinstance(value, int) and value.bit_count() == 1
    }
    return ",".join(name.lower() for name, bit in bits.items() if bit & attributes)


def _dump_facts(batch: RecordBatch) -> Iterator[Entry]:
    for offset, value in zip(batch.offsets.tolist(), batch.values.to_list(), strict=True):
        fact = decode_fact(value or b"")
        yield Entry("fact", {"offset": offset, "kind": type(fact).__name__, **_fields(fact)})


def _dump_events(batch: RecordBatch) -> Iterator[Entry]:
    """Show what a delivery log says; fields that say nothing of an event are left out."""
    for offset, value in zip(batch.offsets.tolist(), batch.values.to_list(), strict=True):
        event = decode_event(value or b"")
        fields: dict[str, Value] = {"offset": offset, "kind": event.kind.name.lower(), "group": event.group}
        fields |= {"generation": event.generation, "ranges": [list(span) for span in event.spans]}
        for name in ("lease", "member", "number", "count", "time_us"):
            if getattr(event, name):
                fields[name] = getattr(event, name)
        if event.duration_us:
            fields["duration"] = format_duration(event.duration_us)
        if event.flags:
            fields["flags"] = ",".join((flag.name or "").lower() for flag in Flag if flag and flag in event.flags)
        if event.error is not None:
            fields["error"] = _fields(event.error)
        yield Entry("event", fields)


def _fields(struct: msgspec.Struct) -> dict[str, Value]:
    return {name: _plain(value) for name, value in msgspec.structs.asdict(struct).items()}


def _plain(value: object) -> Value:
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in cast("Sequence[object]", value)]
    return cast("Value", value)


def _dump_records(batch: RecordBatch) -> Iterator[Entry]:
    keys = batch.keys.to_list() if batch.keys is not None else [None] * len(batch)
    rows = zip(batch.offsets.tolist(), batch.timestamps_us.tolist(), keys, batch.values.to_list(), strict=True)
    for number, (offset, timestamp_us, key, value) in enumerate(rows):
        headers = batch.headers[number] if batch.headers is not None else []
        fields: dict[str, Value] = {"offset": offset, "timestamp_us": timestamp_us, "key": key, "value": value}
        fields["headers"] = [[name, data] for name, data in headers]
        yield Entry("record", fields)
