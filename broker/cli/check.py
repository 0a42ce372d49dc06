"""`tidelog check DATA_DIR`: is everything that is stored intact? Reads all of it, changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .problems import say
from .rendering import Output, OutputFormat

if TYPE_CHECKING:
    from ..inspection import Finding, Findings

DONE, FAILED = 0, 1


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check", epilog="\b\nExample:\n  tidelog check /var/lib/tidelog")(check)


def check(
    data_dir: Annotated[str, typer.Argument(metavar="DATA_DIR", help="Of a broker that is stopped.")],
    output: Output = OutputFormat.TABLE,
) -> int:
    """Verify every checksum and index under the data directory of a stopped broker, and change nothing.

    Exit code 1 means that something that was stored is lost.
    """
    from ...protocol.errors import StorageError
    from ..inspection import ReadOnlyFiles, check_data

    if not Path(data_dir).is_dir():
        raise StorageError(f"expected a data directory, found no folder {data_dir}")
    files = ReadOnlyFiles(data_dir)
    try:
        files.lock("LOCK")
        findings = check_data(files)
    finally:
        files.close()
    for finding in findings.found:
        typer.echo(_show(finding, output))
    typer.echo(_summary(findings, output))
    if not findings.damages:
        return DONE
    say(f"tidelog: CORRUPT: {len(findings.damages)} damaged places in {data_dir}")
    return FAILED


def _show(finding: Finding, output: OutputFormat) -> str:
    from ..logging import escape
    from .rendering import as_json

    severity = finding.severity.value
    if output is OutputFormat.JSON:
        fields = {"severity": severity, "path": finding.path, "text": finding.text}
        return as_json({"what": "finding", **fields, "start": finding.start, "end": finding.end})
    offsets = "" if finding.start is None else f" (offsets {finding.start} to {finding.end})"
    return escape(f"{severity}: {finding.path}: {finding.text}{offsets}")


def _summary(findings: Findings, output: OutputFormat) -> str:
    from .rendering import as_json

    if output is OutputFormat.JSON:
        counts = {"logs": findings.logs, "segments": findings.segments, "batches": findings.batches}
        counts |= {"records": findings.records, "bytes": findings.bytes}
        return as_json({"what": "summary", **counts, "damages": len(findings.damages)})
    state = f"{len(findings.damages)} damaged places" if findings.damages else "intact"
    return (
        f"{findings.logs} logs, {findings.segments} segments, {findings.batches} batches, {findings.records} records: "
        f"{state}"
    )
