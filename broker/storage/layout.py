"""The names inside a log's folder."""

from ...protocol.segment_header import LogKind

SYNCED = "synced"
NEXT_SUFFIX = ".next"
RECOVERED_SUFFIX = ".recovered"
UNFINISHED_SUFFIXES = (RECOVERED_SUFFIX, ".rewritten", ".tmp")
LANES_SUFFIX = ".lanes"
INDEX_SUFFIXES = (".offsets", ".times", LANES_SUFFIX)

_SEGMENT_SUFFIX = ".log"
_SNAPSHOT_PREFIX = "snapshot-"
_DIGITS = 20

_TOPIC_SHIFT, _PARTITION_SHIFT = 32, 2
"""Of a log's id: see `protocol.segment_header`."""


def segment_path(folder: str, base_offset: int) -> str:
    """Return the path of a segment."""
    return f"{folder}/{base_offset:0{_DIGITS}d}{_SEGMENT_SUFFIX}"


def recovered_path(folder: str, base_offset: int) -> str:
    """Return the path of a tail copy that is not in place yet."""
    return f"{folder}/{base_offset:0{_DIGITS}d}{RECOVERED_SUFFIX}"


def next_path(folder: str, number: int) -> str:
    """Return the path of a prepared segment; its base offset is not known yet."""
    return f"{folder}/{number:04d}{NEXT_SUFFIX}"


def index_paths(folder: str, base_offset: int) -> tuple[str, str]:
    """Return the paths of a segment's offset index and time index, which every sealed one has."""
    offsets, times, _lanes = all_index_paths(folder, base_offset)
    return offsets, times


def lanes_path(folder: str, base_offset: int) -> str:
    """Return the path of a segment's lane index; only one with several priorities has it."""
    return f"{folder}/{base_offset:0{_DIGITS}d}{LANES_SUFFIX}"


def all_index_paths(folder: str, base_offset: int) -> tuple[str, ...]:
    """Return the paths of all indexes that a segment may have."""
    return tuple(f"{folder}/{base_offset:0{_DIGITS}d}{suffix}" for suffix in INDEX_SUFFIXES)


def snapshot_path(folder: str, offset: int) -> str:
    """Return the path of the snapshot that covers everything below `offset`."""
    return f"{folder}/{_SNAPSHOT_PREFIX}{offset:0{_DIGITS}d}"


def segment_base(name: str) -> int | None:
    """Return the base offset in a segment's name, or None for other names."""
    return _number(name.removesuffix(_SEGMENT_SUFFIX)) if name.endswith(_SEGMENT_SUFFIX) else None


def index_base(name: str) -> int | None:
    """Return the base offset in the name of an index folder, or None for other names."""
    stem, dot, suffix = name.partition(".")
    return _number(stem) if dot + suffix in INDEX_SUFFIXES else None


def snapshot_offset(name: str) -> int | None:
    """Return the offset in a snapshot's name, or None for other names."""
    return _number(name.removeprefix(_SNAPSHOT_PREFIX)) if name.startswith(_SNAPSHOT_PREFIX) else None


def log_id_of(topic_id: int, partition: int, kind: LogKind) -> int:
    """Return the id of a partition's log; never used again."""
    return topic_id << _TOPIC_SHIFT | partition << _PARTITION_SHIFT | kind


def place_of(log_id: int) -> tuple[int, int]:
    """Return the topic id and the partition of a log."""
    return log_id >> _TOPIC_SHIFT, (log_id & ((1 << _TOPIC_SHIFT) - 1)) >> _PARTITION_SHIFT


def kind_of(log_id: int) -> LogKind:
    """Return the kind of log that an id names: its last two bits, and 0 is `meta`."""
    return LogKind(log_id & ((1 << _PARTITION_SHIFT) - 1)) if log_id else LogKind.META


def _number(text: str) -> int | None:
    return int(text) if len(text) == _DIGITS and text.isascii() and text.isdigit() else None
