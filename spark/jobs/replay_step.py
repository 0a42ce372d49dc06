"""A step of a replay as a job of Spark: a batch read, and a batch write of the same rows in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..offsets import Offsets, to_json
from .running import spark_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .progress import Progress
    from .replay import ReplayRun, Times, Writing

COPIED = ("key", "value", "partition", "timestamp", "headers", "priority")


def copying(spark: SparkSession, job: ReplayRun, url: str, to_url: str, sink_options: dict[str, str]) -> Writing:
    """Return what copies the records between two offsets. It raises JobFailedError."""

    def copy(progress: Progress, start: Offsets, end: Offsets, times: Times) -> None:
        from pyspark.sql import functions

        places = [place for place in start if end[place] > start[place]]
        assign = {job.source: [place.partition for place in places]}
        columns = [*COPIED, "offset"] if job.once else COPIED
        given = {
            **job.options,
            "url": url,
            "assign": msgspec.json.encode(assign).decode(),
            "startingOffsets": _json({place: start[place] for place in places}),
            "endingOffsets": _json({place: end[place] for place in places}),
            "columns": ",".join(columns),
        }
        with spark_errors():
            frame = spark.read.format("tidelog").options(**given).load()
            if times is not None:
                stamp = functions.unix_micros("timestamp")
                frame = frame.where((stamp >= times[0]) & (stamp < times[1]))
            if job.once:
                dedup_id = functions.concat_ws("/", functions.lit(progress.id), "partition", "offset")
                frame = frame.withColumn("dedup_id", dedup_id).drop("offset")
            if not job.keeps_partitions:
                frame = frame.drop("partition")
            sink = frame.write.format("tidelog").mode("append").options(**sink_options)
            sink = sink.option("partitioner", "source" if job.keeps_partitions else "key")
            sink.option("url", to_url).option("topic", job.target).save()

    return copy


def _json(offsets: Offsets) -> str:
    return msgspec.json.encode(to_json(offsets)).decode()
