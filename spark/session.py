"""What is done to a Spark session: registering the data source, and the settings that suit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .datasource import TidelogDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_ARROW_BATCH_BYTES = 64 << 20
"""What a batch of rows on its way to Python may hold: Spark keeps several in memory at once."""

ALL_BYTES = (1 << 31) - 1
"""The one value of maxBytesPerBatch with which Spark does not measure a batch before every row, which is quadratic in
lists with nulls."""


def register(spark: SparkSession) -> None:
    """Make `format("tidelog")` known to a session that does not find it by itself."""
    spark.dataSource.register(TidelogDataSource)


def recommended_conf(row_bytes: int = 1024) -> dict[str, str]:
    """Return the settings of a session that suit the connector, for rows of about that size when writing.

    Pass them to `SparkSession.builder.config(map=...)`: the first counts only before the session starts.
    """
    if row_bytes < 1:
        raise ValueError(f"row_bytes: expected 1 or more, found {row_bytes}")
    rows = max(1, min(50_000, MAX_ARROW_BATCH_BYTES // row_bytes))
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ALL_BYTES),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(rows),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
    }
