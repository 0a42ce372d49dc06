"""Which version of the client this is."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def client_version() -> str:
    """Return the installed version; looked up on the disk once."""
    return version("tidelog")
