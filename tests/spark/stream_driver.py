"""A driver of a streaming query in a process of its own, to be killed: `python -m tests.spark.stream_driver URL TOPIC
FOLDER`. Each batch replaces its own folder, which is what makes batches that run twice count once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def start(spark: SparkSession, url: str, topic: str, folder: Path, **options: str) -> StreamingQuery:
    """Copy a topic from its beginning into `FOLDER/out/ID`, 40,000 records a batch, until all that is available is
    copied."""

    def keep(frame: DataFrame, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(str(folder / "out" / str(batch_id)))

    source = spark.readStream.format("tidelog").option("url", url).option("columns", "partition,offset,value")
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "40000").options(**options)
    writer = source.load(topic).writeStream.foreachBatch(keep).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def main(url: str, topic: str, folder: str) -> None:
    """Run it to its end, under the settings of the tests."""
    from pyspark.sql import SparkSession

    from tests.spark.conftest import SETTINGS

    builder = SparkSession.builder.master("local[2,4]")
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    start(builder.getOrCreate(), url, topic, Path(folder)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
