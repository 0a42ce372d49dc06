"""Runs a command line and turns every way it can end into an exit code and at most one line on standard error.

| code | meaning |
| --- | --- |
| 0 | done; a reader that stopped reading (`| head`) counts as done, unless something is left half done |
| 1 | failed: `tidelog: CODE: message` |
| 2 | wrong usage: `tidelog: USAGE: command: message` |
| 3 | nothing found, or timed out |
| 130 | interrupted by Ctrl-C |
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from ...protocol.errors import NotFoundError, TidelogError, TimedOutError
from .command import Group
from .errors import OutputClosed
from .output import abandon_stdout, flush_stdout, say

DONE, FAILED, WRONG_USAGE, NOTHING_FOUND, INTERRUPTED = 0, 1, 2, 3, 130
PROGRAM = "tidelog"


def new_app() -> typer.Typer:
    """Return a command line without commands."""
    app = typer.Typer(cls=Group, rich_markup_mode=None)
    app.callback()(_root)
    return app


def run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run a command line; return its exit code. Never raises."""
    try:
        code = _run(app, arguments)
    except (KeyboardInterrupt, SystemExit, Exception) as error:
        code = _report(error)
    try:
        flush_stdout()
    except Exception as error:
        code = code or _report(error)
        abandon_stdout()
    return code


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"{PROGRAM} {version(PROGRAM)}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """A partitioned log broker that keeps time."""


def _run(app: typer.Typer, arguments: Sequence[str]) -> int:
    outcome: object = app(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
    return outcome if isinstance(outcome, int) else DONE


def _report(error: BaseException) -> int:
    if os.environ.get("TIDELOG_TRACEBACK"):
        traceback.print_exception(error)
    match error:
        case KeyboardInterrupt() | typer.Abort():
            return INTERRUPTED
        case SystemExit(__context__=BrokenPipeError()):  # typer's own answer to a reader that has gone
            return DONE
        case SystemExit():
            return error.code if isinstance(error.code, int) else FAILED
        case OutputClosed():
            return DONE
        case typer.TyperException():
            return _wrong_usage(error.format_message(), getattr(error, "ctx", None))
        case TidelogError():
            say(f"{PROGRAM}: {error.code}: {error.message}")
            return NOTHING_FOUND if isinstance(error, NotFoundError | TimedOutError) else FAILED
        case OSError():
            say(f"{PROGRAM}: FILE_ERROR: {error}")
            return FAILED
        case _:
            say(
                f"{PROGRAM}: INTERNAL: {type(error).__name__}: {error}; this is a bug (TIDELOG_TRACEBACK=1 shows where)"
            )
            return FAILED


def _wrong_usage(message: str, context: object) -> int:
    """Say in one line what is wrong, for which command, and where its help is."""
    path = str(getattr(context, "command_path", PROGRAM))
    command = path.removeprefix(PROGRAM).strip()
    text = " ".join(message.replace(": Value error, ", ": ").split()).removesuffix(".")
    where = f"{command}: " if command else ""
    say(f"{PROGRAM}: USAGE: {where}{_uncapitalised(text)}; see {path} --help")
    return WRONG_USAGE


def _uncapitalised(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
