"""The client's part of the command line; see README.md in this folder."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the client's commands to the command line."""
    from . import consume, lookup, produce, topics

    lookup.register(app)
    topics.register(app)
    produce.register(app)
    consume.register(app)
