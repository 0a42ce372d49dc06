"""An application that counts and hashes a topic in a cluster, and stops in the middle of it until it is told to go on.

    python -m tests.spark.cluster_driver MASTER URL TOPIC FOLDER [ZIP]

Its first attempt at partition 0 says in `FOLDER/reading` which executor runs it, and waits for `FOLDER/go`. With ZIP
the executors have tidelog from that file alone.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import Row, SparkSession

from tests.spark.cluster import CONF

MIDDLE = 5_000
"""So many rows of a task have been read when it stops."""

WAIT_S = 60.0

Found = tuple[int, int, int, str]


def main(master: str, url: str, topic: str, folder: str, package: str | None = None) -> None:
    """Print how many rows there are, the sum of their hashes, the most attempts at a task, and where tidelog is."""
    builder = SparkSession.builder.master(master).appName("tidelog-cluster-test").config(map=CONF)
    spark = builder.getOrCreate()
    if package is not None:
        spark.sparkContext.addPyFile(package)
    from tidelog.spark import register

    register(spark)
    frame = spark.read.format("tidelog").option("url", url).option("minPartitions", "4").option("batchRows", "1000")
    frame = frame.option("columns", "value,partition,offset").load(topic)

    def hashed(rows: Iterable[Row]) -> Iterator[Found]:
        import tidelog.spark

        context = TaskContext.get()
        assert context is not None
        count = total = 0
        for row in rows:
            count += 1
            total += zlib.crc32(bytes(row["value"])) * (row["partition"] + 1) + row["offset"]
            if count == MIDDLE and (context.partitionId(), context.attemptNumber()) == (0, 0):
                stop_until_told(Path(folder))
        yield count, total, context.attemptNumber(), tidelog.spark.__file__ or ""

    found = frame.rdd.mapPartitions(hashed).collect()
    print(
        json.dumps(
            {
                "rows": sum(each[0] for each in found),
                "hash": sum(each[1] for each in found),
                "attempts": 1 + max(each[2] for each in found),
                "tasks": len(found),
                "files": sorted({each[3] for each in found}),
            }
        )
    )
    spark.stop()


def stop_until_told(folder: Path) -> None:
    """Say which executor this is, and wait."""
    import os

    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    (folder / "reading.part").write_text(str(executor))
    (folder / "reading.part").rename(folder / "reading")
    deadline = time.monotonic() + WAIT_S
    while not (folder / "go").exists() and time.monotonic() < deadline:
        time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
