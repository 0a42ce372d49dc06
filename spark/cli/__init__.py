"""The connector's part of the command line: `tidelog spark archive | replay | report`.

PySpark is loaded when a job begins, and not for help.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

MODULES = {"spark": "verbs"}
"""Which module of this folder has which command, in the order of the help."""


def register(app: typer.Typer, verb: str | None = None) -> None:
    """Add the connector's commands to the command line, or of them only `verb`."""
    wanted = MODULES.values() if verb is None else {MODULES[verb]} if verb in MODULES else ()
    for module in dict.fromkeys(wanted):
        import_module(f"{__name__}.{module}").register(app)
