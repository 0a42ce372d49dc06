"""A driver of two streams in a process of its own, to be killed: `python -m tests.spark.killed_driver URL FOLDER`.

One copies the topic `source` into the topic `copy`, the other keeps the topic `kept` in files. Both make the same batches
whenever they run; in one process, for a JVM that is started and warmed up takes longer than all that it is killed in.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

COPIED = 100_000
"""Records in a batch of the copy."""

KEPT = 10_000
"""Records in a batch of the files."""


def copy(spark: SparkSession, url: str, folder: Path) -> StreamingQuery:
    """Copy what is available, `COPIED` records at a time, at least once."""
    source = spark.readStream.format("tidelog").option("url", url).option("columns", "partition,value")
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(COPIED))
    writer = source.load("source").writeStream.format("tidelog").option("url", url).option("topic", "copy")
    return writer.option("checkpointLocation", str(folder / "copying")).trigger(availableNow=True).start()


def keep(spark: SparkSession, url: str, folder: Path, batch: int = KEPT) -> StreamingQuery:
    """Keep what is available in `FOLDER/out/ID`, `batch` records at a time; a batch that runs again replaces its own
    folder, which is what makes it count once."""

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "out" / str(batch_id)))

    source = spark.readStream.format("tidelog").option("url", url).option("columns", "partition,offset,value")
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(batch))
    writer = source.load("kept").writeStream.foreachBatch(write).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "keeping")).start()


def main(url: str, folder: str) -> None:
    """Run both to their ends, under the settings of the tests."""
    from pyspark.sql import SparkSession

    from tests.spark.conftest import SETTINGS

    builder = SparkSession.builder.master("local[2,4]")
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    spark = builder.getOrCreate()
    for query in [copy(spark, url, Path(folder)), keep(spark, url, Path(folder))]:
        query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
