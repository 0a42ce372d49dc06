"""Copies topics to a folder of Parquet files, each record once, and goes on where the last run ended.

A run plans exact ranges, has each written to a file that is named after its range, and adds all of them to the manifest
at the end, at once. If it dies before, the next run finds the plan, keeps the files that are complete, and writes the
others: same ranges, same names. So nothing is in the folder twice at any moment, and what the manifest lists is whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ..connection import client_of
from ..narrowing import Narrowing
from ..offsets import to_json
from ..options import ReadOptions
from ..places import Place
from ..planning import plan
from ..schema import ALL_COLUMNS
from .errors import JobStateError
from .folder import exclusive, folder_of, made, read_or_none, remove, remove_unfinished, write_whole
from .lineage import check_archived
from .manifest import ArchivedFile, ArchivedRange, Manifest, Plan, check_files, encode
from .own_options import check_given
from .parquet import WriteJob, checksum_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ...client.blocking.client import Client

MANIFEST, PLAN, LOCK = "_manifest.json", "_plan.json", "_lock"

RECORDS_PER_FILE = 10_000_000
"""A gigabyte of 100-byte records: one task's work for some seconds, and few files for long ranges."""

COMPRESSIONS = ("zstd", "snappy", "none")

Writing = Callable[[WriteJob, Sequence[ArchivedRange]], Iterable[ArchivedFile]]
"""Writes ranges to files: by tasks of Spark, or in a test by itself."""


@dataclass(frozen=True, slots=True)
class Archived:
    """What a run added to an archive."""

    folder: Path
    files: tuple[ArchivedFile, ...]
    finished: int
    """How many of the files belong to a run before this one, that did not come to its end."""

    @property
    def rows(self) -> int:
        """How many records."""
        return sum(each.rows for each in self.files)

    @property
    def bytes(self) -> int:
        """How many bytes of Parquet."""
        return sum(each.bytes for each in self.files)

    @property
    def lost(self) -> int:
        """How many records of the ranges were not there any more."""
        return sum(each.range.end - each.range.start - each.rows for each in self.files)


def archive_topics(
    spark: SparkSession,
    folder: str | PathLike[str],
    topics: Sequence[str],
    *,
    url: str,
    until: datetime | None = None,
    compression: str = "zstd",
    records_per_file: int = RECORDS_PER_FILE,
    fails_on_data_loss: bool = True,
    options: Mapping[str, str] | None = None,
) -> Archived:
    """Add to an archive all records of topics that it has not yet, appended before `until`.

    `options` are more of the data source's, such as `segmentDir`. Raises JobBusyError, JobStateError, JobFailedError,
    DataLossError where retention was faster, OptionError, and what the client raises.
    """
    from .archive_source import write_all

    check_given(options or {}, "archive")  # the url among them, which is an argument
    read = {"url": url, "failOnDataLoss": str(fails_on_data_loss).lower(), **(options or {})}
    return ArchiveRun(folder, read, compression, records_per_file).run(
        client_of(url), topics, until, lambda job, ranges: write_all(spark, job, ranges)
    )


def read_archive(
    spark: SparkSession,
    folder: str | PathLike[str],
    *,
    url: str | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return what the manifest lists, in the columns of the data source; with `url` also what the broker has since.

    Each record is there once: the read of the broker begins at the offsets where the archive ends. Raises JobStateError
    where it would be another topic's, or of a log that has lost what is archived; that is asked once, by this call.
    """
    check_given(options or {}, "archive", ("columns", "includeHeaders"))
    at = folder_of(folder)
    manifest = manifest_of(at)
    if not manifest.files:
        raise JobStateError(f"{at}: expected an archive with files, found none")
    given: dict[str, str] = {}
    if url is not None:
        given = {
            **(options or {}),
            "url": url,
            "subscribe": ",".join(sorted({each.range.topic for each in manifest.files})),
            "columns": ",".join(manifest.columns),
            "startingOffsets": _starting(manifest.ends()),
        }
        check_archived(at, manifest, client_of(url), ReadOptions.parse(given))
    archived = spark.read.parquet(*(str(at / each.file) for each in manifest.files))
    return archived.unionByName(spark.read.format("tidelog").options(**given).load()) if given else archived


def verify_archive(folder: str | PathLike[str]) -> list[str]:
    """Read every file of an archive again; return what is wrong with it, in words, for each file that is."""
    at = folder_of(folder)
    problems: list[str] = []
    for each in manifest_of(at).files:
        path = at / each.file
        if not path.exists():
            problems.append(f"{each.file}: missing")
        elif (size := path.stat().st_size) != each.bytes:
            problems.append(f"{each.file}: expected {each.bytes} bytes, found {size}")
        elif (found := checksum_of(path)) != each.checksum:
            problems.append(f"{each.file}: expected checksum {each.checksum}, found {found}")
    return problems


def manifest_of(folder: Path) -> Manifest:
    """Return the manifest of an archive; an empty one where there is none. Raises JobStateError for a damaged one."""
    data = read_or_none(folder / MANIFEST)
    return Manifest() if data is None else Manifest.decode(data, str(folder / MANIFEST))


class ArchiveRun:
    """One run, from planning to the manifest."""

    def __init__(
        self, folder: str | PathLike[str], read: Mapping[str, str], compression: str, records_per_file: int
    ) -> None:
        if compression not in COMPRESSIONS:
            raise ValueError(f"compression: expected {', '.join(COMPRESSIONS)}, found {compression!r}")
        if records_per_file < 1:
            raise ValueError(f"records_per_file: expected 1 or more, found {records_per_file}")
        self._folder = folder_of(folder)
        check_given({name: text for name, text in read.items() if name != "url"}, "archive")
        self._read = {"columns": ",".join(ALL_COLUMNS), **read}
        self._compression = compression
        self._records_per_file = records_per_file

    def run(self, client: Client, topics: Sequence[str], until: datetime | None, write: Writing) -> Archived:
        """Finish what an earlier run left, then archive what is there now."""
        options = self._options(topics, until, {})
        with exclusive(made(self._folder) / LOCK):
            remove_unfinished(self._folder)
            manifest = manifest_of(self._folder)
            self._check_columns(manifest)
            finished: tuple[ArchivedFile, ...] = ()
            if (left := read_or_none(self._folder / PLAN)) is not None:
                manifest, finished = self._carry_out(manifest, Plan.decode(left, str(self._folder / PLAN)), write)
                self._check_columns(manifest)
            names = check_archived(self._folder, manifest, client, options)
            ends = {place: end for place, end in manifest.ends().items() if place.topic in names}
            ranges = plan(client, self._options(topics, until, ends), Narrowing())
            check_archived(self._folder, manifest, client, options)  # again: what planning saw may be younger
            planned = Plan(self._columns, tuple(ArchivedRange.of(each) for each in ranges))
            if not planned.ranges:
                return Archived(self._folder, finished, len(finished))
            write_whole(self._folder / PLAN, encode(planned))
            _, files = self._carry_out(manifest, planned, write)
        return Archived(self._folder, (*finished, *files), len(finished))

    @property
    def _columns(self) -> tuple[str, ...]:
        return ReadOptions.columns_of(self._read)

    def _options(self, topics: Sequence[str], until: datetime | None, starts: Mapping[Place, int]) -> ReadOptions:
        given = {
            **self._read,
            "subscribe": ",".join(topics),
            "maxRecordsPerPartition": str(self._records_per_file),
        }
        if starts:
            given["startingOffsets"] = _starting(starts)
        if until is not None:
            given["endingTimestamp"] = until.isoformat()
        return ReadOptions.parse(given)

    def _check_columns(self, manifest: Manifest) -> None:
        """Raise JobStateError where the archive is of other columns."""
        if manifest.files and manifest.columns != self._columns:
            raise JobStateError(
                f"{self._folder}: expected an archive of the columns {', '.join(self._columns)}, found"
                f" {', '.join(manifest.columns)}"
            )

    def _carry_out(
        self, manifest: Manifest, planned: Plan, write: Writing
    ) -> tuple[Manifest, tuple[ArchivedFile, ...]]:
        """Write what a plan lacks, add it to the manifest, and be done with the plan."""
        listed = {each.range for each in manifest.files}
        missing = [each for each in planned.ranges if each not in listed]
        files: tuple[ArchivedFile, ...] = ()
        if missing:
            job = WriteJob(str(self._folder), {**self._read, "columns": ",".join(planned.columns)}, self._compression)
            files = check_files(missing, write(job, missing))
            manifest = msgspec.structs.replace(manifest.with_files(files), columns=planned.columns)
            manifest.ends()
            write_whole(self._folder / MANIFEST, encode(manifest))
        remove(self._folder / PLAN)
        return manifest, files


def _starting(ends: Mapping[Place, int]) -> str:
    return msgspec.json.encode(to_json(ends)).decode()
