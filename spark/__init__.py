"""The PySpark connector: `spark.read.format("tidelog")`, and the same for streams and for writing.

    df = spark.read.format("tidelog").option("url", "localhost:9440").option("subscribe", "orders").load()

Spark finds it by itself where tidelog is installed (the package `pyspark_tidelog`); `register(spark)` does the same by
hand, for clusters that get tidelog as a zip. README.md has the flow and what a crash at each step comes to.
"""

from __future__ import annotations

from .datasource import TidelogDataSource
from .session import recommended_conf, register

__all__ = ["TidelogDataSource", "recommended_conf", "register"]
