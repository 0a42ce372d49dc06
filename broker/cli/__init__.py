"""The broker's part of the command line: serve, config check, check, dump.

Everything heavy (Trio, numpy, pydantic) is imported when a command runs, so that `tidelog --help` stays quick.
"""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the broker's commands to the command line."""
    from . import check, config, dump, serve

    serve.register(app)
    config.register(app)
    check.register(app)
    dump.register(app)
