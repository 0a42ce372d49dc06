"""`tidelog config check FILE`: would a broker start with this configuration?"""

from __future__ import annotations

from typing import Annotated

import typer

from .problems import say_all


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="The broker's configuration.", rich_markup_mode=None)
    group.command("check", epilog="\b\nExample:\n  tidelog config check tidelog.yaml")(check)
    app.add_typer(group, name="config")


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The configuration, as for `serve --config`.")],
) -> int:
    """Say whether a broker would start with this configuration, or everything that is wrong with it at once.

    What the environment adds is looked at too.
    """
    from ..config import ConfigError, load

    try:
        load(file)
    except ConfigError as error:
        return say_all(error)
    typer.echo(f"{file} is valid")
    return 0
