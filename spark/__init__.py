"""The PySpark connector: `spark.read.format("tidelog")`, and the same for streams and for writing.

    df = spark.read.format("tidelog").option("url", "localhost:9440").option("subscribe", "orders").load()

Spark finds it by itself where tidelog is installed (the package `pyspark_tidelog`); `register(spark)` does the same by
hand, for clusters that get tidelog as a zip. README.md has the flow and what a crash at each step comes to. PySpark is
loaded when one of the names is first asked for: the help of `tidelog spark` needs none.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .datasource import TidelogDataSource
    from .session import recommended_conf, register

__all__ = ["TidelogDataSource", "recommended_conf", "register"]

_MODULES = {"TidelogDataSource": "datasource", "recommended_conf": "session", "register": "session"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
