"""`tidelog config check FILE`: would a broker start with this configuration?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .problems import FAILED, say, say_all
from .rendering import Output, OutputFormat

if TYPE_CHECKING:
    from ..config.problems import Problem


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="The broker's configuration.", rich_markup_mode=None)
    group.command("check", epilog="\b\nExample:\n  tidelog config check tidelog.yaml")(check)
    app.add_typer(group, name="config")


def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The configuration, as for `serve --config`.")],
    output: Output = OutputFormat.TABLE,
) -> int:
    """Say whether a broker would start with this configuration, or everything that is wrong with it at once.

    What the environment adds is looked at too. With --output json each problem is an object, and the last one counts
    them.
    """
    from ..config import ConfigError, load

    try:
        archive = load(file).archive
        if archive.url is not None:
            from ..object_store import check_store

            check_store(archive.url, archive.options)
    except ConfigError as error:
        if output is OutputFormat.TABLE:
            return say_all(error)
        _show(file, error.problems)
        say(f"tidelog: {error.code}: {file}: problems: {len(error.problems)}")
        return FAILED
    if output is OutputFormat.JSON:
        _show(file, [])
    else:
        typer.echo(f"{file} is valid")
    return 0


def _show(file: str, problems: Sequence[Problem]) -> None:
    from .rendering import as_json

    for problem in problems:
        typer.echo(as_json({"what": "problem", "key": problem.key or None, "text": problem.text}))
    typer.echo(as_json({"what": "summary", "file": file, "problems": len(problems)}))
