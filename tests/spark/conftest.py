"""One Spark session and one broker for the whole run: starting a session costs seconds, a query tenths of one."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tidelog
from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.spark.killing import Killing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parent.parent.parent

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

JAVA_OPTIONS = " ".join(
    (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn300m -XX:-UsePerfData",
        "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
    )
)
"""Tests are short: a JVM that compiles and collects less, and does not verify some 15,000 classes of Spark's, is sooner
through with them."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.streaming.minBatchesToRetain": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads that tries a task four times; workers and driver see this checkout."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs java: install a Java 17 runtime, or set JAVA_HOME")
    from pyspark.sql import SparkSession

    from tests.spark.spark_home import make_spark_home

    folder = tmp_path_factory.mktemp("spark")
    (folder / "home").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_HOME", str(make_spark_home(folder / "home")))
        patch.setenv("SPARK_LOCAL_DIRS", str(folder / "local"))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        builder = SparkSession.builder.master("local[2,4]").appName("tidelog-tests")
        for name, value in {**SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
            builder = builder.config(name, value)
        interrupt = signal.getsignal(signal.SIGINT)
        session = builder.getOrCreate()
        signal.signal(signal.SIGINT, interrupt)  # Spark's own would meet the Ctrl-C of the tests that come after
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A real broker that all tests share, each with topics of its own."""
    often = {"TIDELOG_LOG__RETENTION_CHECK_INTERVAL": "100ms"}
    with broker_process(tmp_path_factory.mktemp("broker"), environment=often) as running:
        yield running


@pytest.fixture(scope="session")
def killing(
    spark: SparkSession,
    broker: BrokerProcess,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Killing | None]:
    """A driver on its way to be killed; None where no test that is run asks for it."""
    del spark  # without Java this is skipped
    if not any(item.path.name == "test_killed_driver.py" for item in request.session.items):
        yield None
        return
    found = Killing(broker.url, tmp_path_factory.mktemp("killed"))
    try:
        yield found
    finally:
        found.stop()


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[tidelog.Client]:
    """A client of the shared broker."""
    with tidelog.Client(broker.url) as found:
        yield found
