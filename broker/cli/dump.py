"""`tidelog dump FILE`: a stored file in readable form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .rendering import Output, OutputFormat

EXAMPLE = """\b
Example:
  tidelog dump data/partitions/1-0/messages/00000000000000000000.log
"""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("dump", epilog=EXAMPLE)(dump)


def dump(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A segment, an index folder, a snapshot or a `synced` mark.")
    ],
    output: Output = OutputFormat.TABLE,
) -> int:
    """Show what is in a stored file, record by record. The broker may be running: a segment ends where it ends now."""
    from ...protocol.errors import StorageError
    from ..inspection import ReadOnlyFiles
    from ..inspection.dump import dump as entries_of
    from .rendering import as_json, as_text

    path = Path(file)
    if not path.exists():
        raise StorageError(f"expected a stored file, found none at {file}")
    files = ReadOnlyFiles(path.parent)
    try:
        for entry in entries_of(files, path.name):
            if output is OutputFormat.JSON:
                typer.echo(as_json({"what": entry.what, **entry.fields}))
            else:
                typer.echo(as_text(entry.what, entry.fields))
    finally:
        files.close()
    return 0
