"""The client of this process: one for each broker, as long as the process lives.

Spark keeps a worker's process for later tasks and never says when one is the last, so there is nothing to close it by.
A task's read has a connection of its own, which ends with it.
"""

from __future__ import annotations

import os

from ..client.blocking.client import Client
from .last_resort import warn_at_least

_clients: dict[tuple[str, int], Client] = {}
"""By url and process: one that came by a fork is not used."""


def client_of(url: str) -> Client:
    """Return the client for a broker. Raises ValueError that shows how a url is written."""
    key = (url, os.getpid())
    found = _clients.get(key)
    if found is None:
        warn_at_least()
        found = _clients[key] = Client(url, client_name=f"spark-{os.getpid()}")
    return found
