"""Spark's own Kafka source over the same rows in a real Kafka.

It takes Kafka as `bench.peers.kafka` does, and the connector's jars in `~/.cache/tidelog-peers/spark-kafka/lib` (or the
folder `SPARK_KAFKA_LIB`): spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients and commons-pool2.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NotInstalledError
from ..spark.cases import SELECTIONS, Case
from ..spark.rows import TOPIC, Rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LIBRARY_VARIABLE = "SPARK_KAFKA_LIB"
DEFAULT_LIBRARY = Path("~/.cache/tidelog-peers/spark-kafka/lib")
DEFAULT_PYTHON = Path("~/.cache/tidelog-peers/v/bin/python")
NEEDED = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")


def jars() -> list[str]:
    """Return the jars that a session needs. Raises NotInstalledError."""
    folder = Path(os.environ.get(LIBRARY_VARIABLE) or DEFAULT_LIBRARY).expanduser()
    found = [sorted(folder.glob(f"{name}*.jar")) for name in NEEDED]
    if not all(found):
        raise NotInstalledError(f"Spark's Kafka source is not installed here: expected {', '.join(NEEDED)} in {folder}")
    return [str(path) for paths in found for path in paths]


def fill(address: str, rows: Rows) -> None:
    """Send the rows, by a Python that has confluent-kafka. Raises CalledProcessError."""
    found = DEFAULT_PYTHON.expanduser()
    python = str(found) if found.exists() else sys.executable
    numbers = map(str, (rows.count, rows.size, rows.partitions))
    command = [python, "-m", "bench.peers.spark_kafka_fill", address, *numbers]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])


def kafka_cases(spark: SparkSession, address: str) -> list[Case]:
    """Return what the source reads; it prunes no columns either."""

    def load(columns: tuple[str, ...]) -> DataFrame:
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", address).option("subscribe", TOPIC)
        reader = reader.option("includeHeaders", "true" if "headers" in columns else "false")
        return reader.load().select(*columns)

    return [Case("kafka", name, lambda columns=columns: load(columns)) for name, columns in SELECTIONS.items()]
