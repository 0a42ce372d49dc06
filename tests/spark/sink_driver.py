"""A driver of a stream into a topic in a process of its own, to be killed: `python -m tests.spark.sink_driver URL FOLDER`.

It copies the topic `source` into `copy`, the same numbers in each batch whenever it runs.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

BATCH = 100_000


def start(spark: SparkSession, url: str, checkpoint: Path) -> StreamingQuery:
    """Copy what is available, `BATCH` records at a time."""
    source = spark.readStream.format("tidelog").option("url", url).option("columns", "partition,value")
    source = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(BATCH))
    writer = source.load("source").writeStream.format("tidelog").option("url", url).option("topic", "copy")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()


def main(url: str, checkpoint: str) -> None:
    """Run it to its end, under the settings of the tests."""
    from pyspark.sql import SparkSession

    from tests.spark.conftest import SETTINGS

    builder = SparkSession.builder.master("local[2,4]")
    for name, setting in SETTINGS.items():
        builder = builder.config(name, setting)
    start(builder.getOrCreate(), url, Path(checkpoint)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
