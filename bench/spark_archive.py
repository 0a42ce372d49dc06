"""Figures of the archive job: `python -m bench.spark_archive`. One JSON object a line; bench/README.md says what.

One session on two threads copies the same topic to Parquet alternately by `archive_topics` and by Spark's own writer
over our source: all columns, one codec, a task for each partition. Every folder is read back and must hold each row
once.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog import Client
from tidelog.spark.jobs import archive_topics, verify_archive
from tidelog.spark.schema import ALL_COLUMNS

from .command import leave_on_sigterm
from .e2e.broker import BrokerProcess
from .errors import VerificationError
from .spark.alternating import Line, Way, against, line, ratios, speeds, tell
from .spark.rows import TOPIC, Rows
from .spark.session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JOB, WRITER = "spark_archive_job", "spark_archive_parquet_writer"

TARGET = 2.0
"""What the job is to be in rows of Spark's writer, which takes every row through the JVM."""


class Archiving:
    """The ways to copy the topic to Parquet; each returns how many seconds it took."""

    def __init__(self, spark: SparkSession, url: str, sums: Mapping[str, int], folder: Path, compression: str) -> None:
        self._spark = spark
        self._url = url
        self._sums = sums
        self._folder = folder
        self._compression = compression
        self._passes = 0

    @property
    def ways(self) -> dict[str, Way]:
        """Return them by the name of the figure."""
        return {JOB: self.job, WRITER: self.writer}

    def job(self) -> float:
        """Copy by the archive job, to a new folder; its checksums are looked at as well."""

        def archive(folder: Path) -> None:
            archive_topics(self._spark, folder, [TOPIC], url=self._url, compression=self._compression)

        def check(folder: Path) -> None:
            if problems := verify_archive(folder):
                raise VerificationError(f"{JOB}: expected whole files, found {problems}")

        return self._into_folder(JOB, archive, check)

    def writer(self) -> float:
        """Copy by Spark's own Parquet writer, fed by our source."""

        def write(folder: Path) -> None:
            read = self._spark.read.format("tidelog").option("url", self._url).option("columns", ",".join(ALL_COLUMNS))
            read.load(TOPIC).write.option("compression", self._compression).parquet(str(folder))

        return self._into_folder(WRITER, write, lambda _: None)

    def _into_folder(self, name: str, copy: Callable[[Path], None], check: Callable[[Path], None]) -> float:
        self._passes += 1
        folder = self._folder / f"pass-{self._passes}"
        began = time.perf_counter()
        copy(folder)
        elapsed = time.perf_counter() - began
        check(folder)
        self._verify(name, folder)
        shutil.rmtree(folder)
        return elapsed

    def _verify(self, name: str, folder: Path) -> None:
        """Read a folder back: rows, and sums over offsets and hashes. Raises VerificationError."""
        forms = {"rows": "count(*)", "offset": "sum(offset)"}
        forms |= {column: f"sum(crc32({column}))" for column in ("key", "value")}
        row = self._spark.read.parquet(str(folder)).selectExpr(*forms.values()).collect()[0]
        found = {column: int(row[at]) for at, column in enumerate(forms)}
        expected = {column: self._sums[column] for column in forms}
        if found != expected:
            raise VerificationError(f"{name}: expected {expected}, found {found}")


def measure(archiving: Archiving, rows: int, rounds: int) -> Iterator[Line]:
    """Yield a line for each way, then one for the ratio."""
    samples = speeds(archiving.ways, rows, rounds)
    for name, found in samples.items():
        yield line(name, found)
    times = ratios(samples[JOB], samples[WRITER])
    yield line(f"{JOB} / {WRITER}", times, "ratio") | against(TARGET, times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines; 1 when a folder does not hold what the topic has."""
    leave_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m bench.spark_archive", description=__doc__)
    parser.add_argument("--messages", type=int, default=2_000_000, help="rows of one pass")
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--compression", choices=("zstd", "snappy", "none"), default="zstd")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    rows = Rows(options.messages, options.size, options.partitions)
    with tempfile.TemporaryDirectory(prefix="spark-archive-") as folder, BrokerProcess() as broker:
        with Client(broker.url) as client:
            rows.send(client)
        spark = start_session(Path(folder), [])
        try:
            archiving = Archiving(spark, broker.url, rows.sums(), Path(folder), options.compression)
            return tell(measure(archiving, rows.count, options.rounds))
        finally:
            spark.stop()


if __name__ == "__main__":
    sys.exit(main())
