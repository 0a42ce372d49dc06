"""The client's part of the command line; see README.md in this folder."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

MODULES = {
    "ping": "ping",
    "topics": "topics",
    "groups": "groups",
    "dlq": "dead_letters",
    "produce": "produce",
    "consume": "consume",
    "tail": "consume",
    "replay": "consume",
    "get": "get",
    "settle": "settle",
    "outcome": "outcome",
    "bench": "bench.verbs",
}
"""Which module of this folder has which command, in the order of the help."""


def register(app: typer.Typer, verb: str | None = None) -> None:
    """Add the client's commands to the command line, or of them only `verb` (and what shares its module)."""
    wanted = MODULES.values() if verb is None else {MODULES[verb]} if verb in MODULES else ()
    for module in dict.fromkeys(wanted):
        import_module(f"{__name__}.{module}").register(app)
