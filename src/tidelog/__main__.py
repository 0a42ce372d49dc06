"""The command `tidelog`: the broker's commands, the client's and the connector's, joined into one command line.

Only what the typed command needs is loaded: of all commands the module of that one, and nothing for `--version`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

COMPLETION_VARIABLE = "_TIDELOG_COMPLETE"
"""Set by a shell that asks what could come next; any command may be asked about."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (the process's own unless given) and return its exit code."""
    try:
        given = sys.argv[1:] if arguments is None else list(arguments)
        if given == ["--version"] and COMPLETION_VARIABLE not in os.environ and _show_version():
            return 0
        from .client.cli.run import run

        return run(commands(_verb(given)), given)
    except KeyboardInterrupt:  # while modules were still being loaded
        return 130


def commands(verb: str | None = None) -> typer.Typer:
    """Build the command line: all of it, or for speed with one command alone."""
    from .broker import cli as broker_commands
    from .client import cli as client_commands
    from .client.cli.run import new_app
    from .spark import cli as spark_commands

    app = new_app()
    broker_commands.register(app, verb)
    client_commands.register(app, verb)
    spark_commands.register(app, verb)
    return app


def _verb(arguments: Sequence[str]) -> str | None:
    """Return the command that is meant, or None where all must be known: for help, completion and suggestions."""
    from .broker import cli as broker_commands
    from .client import cli as client_commands
    from .spark import cli as spark_commands

    modules = client_commands.MODULES | broker_commands.MODULES | spark_commands.MODULES
    known = arguments[:1] and arguments[0] in modules
    return arguments[0] if known and COMPLETION_VARIABLE not in os.environ else None


def _show_version() -> bool:
    """Print the version and return True; where that fails, the whole command line finds out why and says so."""
    from .client.version import client_version

    with suppress(Exception):
        print(f"tidelog {client_version()}", flush=True)
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
