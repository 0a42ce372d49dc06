"""The name under which a data directory archives, drawn once and kept in it.

Two brokers that archive into the same place never meet there: topic ids are counted by each for itself, so they lie
below this name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...protocol.errors import CorruptError
from ..storage.files import Files, write_durably
from .cache import ARCHIVE_FOLDER

IDENTITY = f"{ARCHIVE_FOLDER}/id"

_FORM = re.compile(rb"[0-9a-f]{16}\n")


def load_identity(files: Files, draw: Callable[[], str]) -> str:
    """Return the name, drawn at the first start with an archive; blocks. Raises OSError, CorruptError."""
    if not files.exists(IDENTITY):
        files.make_folder(ARCHIVE_FOLDER)
        files.sync_folder("")
        write_durably(files, IDENTITY, draw().encode() + b"\n")
    found = files.read(IDENTITY)
    if not _FORM.fullmatch(found):
        raise CorruptError(
            f"expected 16 hexadecimal digits in {IDENTITY}, found {found[:40]!r}; the archive's first folder has the"
            " right name"
        )
    return found.decode().strip()
