"""The broker's part of the command line: serve, config check, check, dump, archive.

Everything heavy (Trio, numpy, pydantic) is imported when a command runs, so that `tidelog --help` stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

MODULES = {"serve": "serve", "config": "config", "check": "check", "dump": "dump", "archive": "archive"}
"""Which module of this folder has which command, in the order of the help."""


def register(app: typer.Typer, verb: str | None = None) -> None:
    """Add the broker's commands to the command line, or of them only `verb`."""
    wanted = MODULES.values() if verb is None else {MODULES[verb]} if verb in MODULES else ()
    for module in dict.fromkeys(wanted):
        import_module(f"{__name__}.{module}").register(app)
