"""What all jobs do with Spark: a session of their own where there is none, and its errors in one line."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .errors import JobFailedError, NotInstalledError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = re.compile(r"tidelog\.[\w.]+\.(\w+Error): (.+)")
"""How an error that a task raised stands in what Spark says of it."""


def check_installed() -> None:
    """Raise NotInstalledError, which says what to install, where PySpark or Java is missing."""
    if importlib.util.find_spec("pyspark") is None:
        raise NotInstalledError('PySpark is missing: pip install "tidelog[spark]"')
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME") and "SPARK_REMOTE" not in os.environ:
        raise NotInstalledError("Java is missing: install a Java runtime of version 17 or later, or set JAVA_HOME")


@contextmanager
def session(name: str, master: str | None, conf: Mapping[str, str]) -> Generator[SparkSession]:
    """Give the session there is, or one with the recommended settings that ends here. Raises NotInstalledError."""
    check_installed()
    from pyspark.sql import SparkSession

    from ..session import recommended_conf, register

    running = SparkSession.getActiveSession()
    if running is not None:
        register(running)
        yield running
        return
    quiet = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false", "spark.ui.enabled": "false"}
    builder = SparkSession.builder.appName(name).config(map={**quiet, **recommended_conf(), **conf})
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_REMOTE" not in os.environ and "spark.master" not in conf and "MASTER" not in os.environ:
        builder = builder.master("local[*]")
    if runs_workers_here(master, conf, os.environ):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    found = builder.getOrCreate()
    try:
        register(found)
        yield found
    finally:
        found.stop()


def runs_workers_here(master: str | None, conf: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Whether workers are of this machine, and so of this Python: Spark would take the first python3 of the PATH, which
    is another one where an environment is not activated. What somebody chose stays."""
    if "SPARK_REMOTE" in environment or "PYSPARK_PYTHON" in environment or "spark.pyspark.python" in conf:
        return False
    return (master or conf.get("spark.master") or environment.get("MASTER") or "local").startswith("local")


@contextmanager
def spark_errors() -> Generator[None]:
    """Turn what Spark raises for a failed job into JobFailedError with the cause alone."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise JobFailedError(cause_of(str(error))) from error


def cause_of(text: str) -> str:
    """Return the line of Spark's many that says what went wrong: an error of ours where there is one."""
    found = _OURS.search(text)
    if found is not None:
        return f"{found[1]}: {found[2].strip()}"
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\t", "  File"))]
    return lines[0] if lines else "Spark gave no reason"
