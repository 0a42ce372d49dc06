"""The seam to the file system: nothing else in storage opens, maps, syncs, renames or unlinks."""

from .disk import DiskFiles
from .interface import Buffer, File, Files, write_durably
from .memory import MemoryFiles

__all__ = ["Buffer", "DiskFiles", "File", "Files", "MemoryFiles", "write_durably"]
