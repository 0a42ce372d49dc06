"""The command `tidelog`: the broker's commands and the client's, joined into one command line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line (the process's own unless given) and return its exit code."""
    try:
        from .client.cli.run import run

        return run(commands(), sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:  # while modules were still being loaded
        return 130


def commands() -> typer.Typer:
    """Build the command line."""
    from .broker import cli as broker_commands
    from .client import cli as client_commands
    from .client.cli.run import new_app

    app = new_app()
    broker_commands.register(app)
    client_commands.register(app)
    return app


if __name__ == "__main__":
    sys.exit(main())
