"""Sealed segments in an object store: copied before retention removes them, and read back as if they were local."""

from .archive import Archive, ArchiveSettings
from .archiver import ArchiveStatistics, RunSummary
from .entry import Entry
from .store import ObjectStore

__all__ = ["Archive", "ArchiveSettings", "ArchiveStatistics", "Entry", "ObjectStore", "RunSummary"]
