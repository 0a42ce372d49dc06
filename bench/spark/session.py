"""The Spark session of the benchmark: two threads, 4 GB, the settings that tidelog recommends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog.spark import recommended_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start_session(folder: Path, jars: Sequence[str]) -> SparkSession:
    """Start one, with the jars of other sources."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **recommended_conf(),
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **({"spark.jars": ",".join(jars)} if jars else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("tidelog-bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
