"""A session of Spark Connect that registers tidelog, then writes, reads and streams, and prints what it found as JSON.

    python -m tests.spark.connect_driver URL TOPIC FOLDER

The server is one that PySpark starts for this process, `local[2]`, and stops with it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark.conftest import SETTINGS
from tidelog.spark import recommended_conf, register

ROWS = 1000


def main(url: str, topic: str, folder: str) -> None:
    """Do all of it, each once."""
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {**SETTINGS, **recommended_conf()}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    rows = spark.range(ROWS).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    rows.write.format("tidelog").option("url", url).mode("append").save(topic)
    read = spark.read.format("tidelog").option("url", url).option("columns", "value,offset").load(topic)
    batch = read.selectExpr("count(*)", "count(distinct value)").collect()[0]
    few = read.where("offset >= 10 and offset < 20").count()
    stream = spark.readStream.format("tidelog").option("url", url).option("startingOffsets", "earliest").load(topic)
    path = str(Path(folder) / "rows")
    query = (
        stream.writeStream.format("parquet")
        .option("path", path)
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    ended = query.awaitTermination(60)
    found = {
        "session": type(spark).__module__,
        "rows": batch[0],
        "values": batch[1],
        "few": few,
        "ended": ended,
        "streamed": spark.read.parquet(path).count(),
    }
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
