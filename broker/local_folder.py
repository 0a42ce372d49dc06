"""An archive's store that is a local folder: what obstore does not do there.

It syncs nothing, and a put that was killed leaves the file that it wrote into (`NAME#1`), which no listing shows.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

_STAGED = re.compile(r".+#[0-9]+")
"""Files that obstore writes into before it renames them."""


class LocalFolder:
    """The folder of a store, by its objects' names; every method blocks and raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __repr__(self) -> str:
        return f"<LocalFolder {self._path}>"

    def sync(self, name: str) -> None:
        """Make an object durable, and the names of the folders it lies in.

        Where that fails the object goes: its pages count as clean from then on, so a later sync would say nothing.
        """
        path = self._path / name
        _sync_path(path, os.O_RDONLY, path)
        for parent in path.parents:
            _sync_path(parent, os.O_RDONLY | os.O_DIRECTORY, path)
            if parent == self._path:
                return

    def sweep(self, prefix: str) -> int:
        """Remove what killed puts left below a folder; return how many. Nobody may put anything there meanwhile."""
        count = 0
        for folder, _folders, names in os.walk(self._path / prefix):
            for name in filter(_STAGED.fullmatch, names):
                (Path(folder) / name).unlink(missing_ok=True)
                count += 1
        return count


def _sync_path(path: Path, flags: int, sought: Path) -> None:
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            sought.unlink()
        raise
    finally:
        os.close(fd)
