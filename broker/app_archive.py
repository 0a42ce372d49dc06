"""Put the archive together for a broker that has one: its store, its threads, its name."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .archive import Archive, ArchiveSettings, ObjectStore
from .archive.identity import IDENTITY, load_identity
from .background import Workers
from .config import ArchiveSection
from .errors import storage_error
from .metrics import Values
from .object_store import open_store
from .services import Services
from .storage.files import Files
from .topics import Topics

READ_THREADS = 4
"""Archived segments fetched or looked into at a time."""


def draw_identity() -> str:
    """Draw the name of a data directory in the archive."""
    return secrets.token_hex(8)


def mark_of(data_dir: str, broker: str) -> str | None:
    """Return what a copy of a data directory does not have; None where the archive's name is not on that disk."""
    path = Path(data_dir) / IDENTITY
    try:
        return str(path.stat().st_ino) if path.read_text().strip() == broker else None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ArchiveParts:
    """The archive and the threads that belong to it."""

    archive: Archive
    workers: tuple[Workers, Workers]


def store_of(section: ArchiveSection) -> ObjectStore | None:
    """Return the store that the configuration names, if any. Raises ConfigError."""
    if section.url is None:
        return None
    return open_store(
        section.url, section.options, part_bytes=section.part_bytes, timeout_us=section.request_timeout_us
    )


def open_archive(
    store: ObjectStore,
    section: ArchiveSection,
    data_dir: str,
    services: Services,
    files: Files,
    end_turn: Callable[[], None],
) -> Callable[[Topics], ArchiveParts]:
    """Return what makes the archive once there are topics; blocks. Raises StorageError, CorruptError."""
    try:
        broker = load_identity(files, draw_identity)
    except OSError as error:
        raise storage_error(error, "opening the archive's folder") from error
    settings = ArchiveSettings(
        broker,
        section.interval_us,
        section.concurrency,
        section.max_backoff_us,
        section.cache_bytes,
        mark_of(data_dir, broker),
    )
    # What they do may take as long as the network wants, and is right wherever it ends: a stop does not wait for it.
    copiers = Workers(end_turn, section.concurrency, abandons=True)
    readers = Workers(end_turn, READ_THREADS, abandons=True)

    def make(topics: Topics) -> ArchiveParts:
        archive = Archive(
            services,
            store,
            settings,
            topics.all,
            topics.by_id,
            copy_offload=copiers,
            read_offload=readers,
            retain=topics.expire,
        )
        archive.start()
        topics.is_archived = archive.is_archived
        return ArchiveParts(archive, (copiers, readers))

    return make


def archive_gauges(archive: Archive | None) -> Values:
    """Return what the archive counts; zeros when there is none."""
    if archive is None:
        return dict.fromkeys(NAMES, 0)
    counted, cache = archive.archiver.statistics(), archive.cache
    figures = (
        counted.segments,
        counted.bytes,
        counted.errors,
        counted.waiting_segments,
        counted.held_segments,
        counted.lag_us / 1e6,
        cache.fetched_segments,
        cache.fetched_bytes,
        cache.damaged_segments,
        cache.held_bytes,
    )
    return dict(zip(NAMES, figures, strict=True))


NAMES = (
    "tidelog_archived_segments_total",
    "tidelog_archived_bytes_total",
    "tidelog_archive_errors_total",
    "tidelog_archive_waiting_segments",
    "tidelog_archive_held_segments",
    "tidelog_archive_lag_seconds",
    "tidelog_archive_fetched_segments_total",
    "tidelog_archive_fetched_bytes_total",
    "tidelog_archive_damaged_segments_total",
    "tidelog_archive_cache_bytes",
)
