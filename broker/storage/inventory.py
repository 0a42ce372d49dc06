"""What a log's folder holds at start: leftovers are removed, segments listed."""

from dataclasses import dataclass, field

from ...protocol.segment_header import SEGMENT_HEADER_BYTES, SegmentHeader, examine_segment_header
from ..errors import CorruptError
from .files import Files
from .layout import (
    NEXT_SUFFIX,
    SYNCED,
    UNFINISHED_SUFFIXES,
    index_base,
    segment_base,
    segment_path,
    snapshot_offset,
)
from .segment import Segment


@dataclass(slots=True)
class Inventory:
    """The segments in order, the last one still open at its end."""

    segments: list[Segment] = field(default_factory=list[Segment])
    bad_headers: list[str] = field(default_factory=list[str])
    unplaced: str | None = None  # the last one, when its roll was interrupted before it had its name
    window: int = 0  # the largest max_unsynced_bytes that any header names
    last_window: int = 0  # what the last one's header names


def ensure_folder(files: Files, folder: str) -> None:
    """Make a folder and those above it, each name durable."""
    parts = folder.split("/")
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        if not files.exists(path):
            files.make_folder(path)
            files.sync_folder("/".join(parts[: depth - 1]))


def holds_log(files: Files, folder: str) -> bool:
    """Say whether anything in a folder tells of a log: a log that was opened once has left a segment and its mark."""
    names = files.list_folder(folder) if files.exists(folder) else []
    return any(name == SYNCED or segment_base(name) is not None or snapshot_offset(name) is not None for name in names)


def take_inventory(files: Files, folder: str, log_id: int) -> Inventory:
    """Tidy the folder up and read every header page."""
    inventory = Inventory()
    names = files.list_folder(folder)
    for name in names:
        if name.endswith(UNFINISHED_SUFFIXES):
            # Its source is still whole.
            _remove(files, f"{folder}/{name}")
    bases = sorted(base for name in names if (base := segment_base(name)) is not None)
    for name in names:
        if (base := index_base(name)) is not None and base not in bases:
            files.remove_folder(f"{folder}/{name}")
    _list_segments(files, folder, log_id, bases, inventory)
    for name in names:
        if name.endswith(NEXT_SUFFIX):
            _take_next(files, f"{folder}/{name}", log_id, inventory)
    return inventory


def _take_next(files: Files, path: str, log_id: int, inventory: Inventory) -> None:
    """List a prepared segment that was on its way into place as the last one; remove any other."""
    segments = inventory.segments
    header = _next_header(files, path, log_id, segments[-1].base_offset if segments else -1)
    if header is None:
        files.unlink(path)
        return
    # Everything before it was synced when its header was written.
    if segments:
        segments[-1].end_offset, segments[-1].is_sealed = header.base_offset, True
    segments.append(Segment(path, header.base_offset, header.seed))
    inventory.window = max(inventory.window, header.max_unsynced_bytes)
    inventory.unplaced = path


def _remove(files: Files, path: str) -> None:
    try:
        files.unlink(path)
    except OSError:
        files.remove_folder(path)  # a half-stored index is a folder


def _next_header(files: Files, path: str, log_id: int, last_base: int) -> SegmentHeader | None:
    """Return the header of a prepared segment whose roll had come to it; such a roll is completed."""
    file = files.open(path, writable=False)
    try:
        header = examine_segment_header(file.read_at(0, SEGMENT_HEADER_BYTES)).header
    except CorruptError:
        return None
    finally:
        file.close()
    return header if header.log_id == log_id and header.base_offset > last_base else None


def _list_segments(files: Files, folder: str, log_id: int, bases: list[int], inventory: Inventory) -> None:
    for place, base in enumerate(bases):
        path = segment_path(folder, base)
        end_offset = bases[place + 1] if place + 1 < len(bases) else None
        header = _read_header(files, path, inventory.bad_headers)
        if header is not None and (header.log_id != log_id or header.base_offset != base):
            inventory.bad_headers.append(
                f"{path}: expected log {log_id} and base offset {base}, found log {header.log_id}"
                f" and {header.base_offset}"
            )
            header = None
        segment = Segment(path, base, header.seed if header else 0, end_offset=end_offset)
        segment.is_readable = header is not None
        if header is not None:
            inventory.last_window = header.max_unsynced_bytes
            inventory.window = max(inventory.window, header.max_unsynced_bytes)
        inventory.segments.append(segment)


def _read_header(files: Files, path: str, bad_headers: list[str]) -> SegmentHeader | None:
    file = files.open(path, writable=False)
    try:
        examined = examine_segment_header(file.read_at(0, SEGMENT_HEADER_BYTES))
    except CorruptError as error:
        bad_headers.append(f"{path}: {error}")
        return None
    finally:
        file.close()
    bad_headers.extend(f"{path}: {damage}" for damage in examined.damage)
    return examined.header
