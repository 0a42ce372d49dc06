"""A read over a real cluster of two workers, one of which loses its executor in the middle of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.spark.cluster import Cluster, spark_cluster
from tidelog import Client
from tidelog.spark.jobs.package import write_package

pytestmark = [pytest.mark.process, pytest.mark.spark]

ROOT = Path(__file__).parent.parent.parent

ROWS = 200_000


@pytest.fixture
def cluster(tmp_path: Path, soak: int) -> Iterator[Cluster]:
    """A master and two workers."""
    if soak < 2:
        pytest.skip("six JVMs take half a minute: run with --soak")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs java: install a Java 17 runtime, or set JAVA_HOME")
    with spark_cluster(tmp_path / "cluster") as running:
        yield running


def test_a_killed_executor_costs_no_row_and_adds_none(
    cluster: Cluster, broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """200,000 rows are counted and hashed exactly, though the executor that reads the first quarter is killed -9 in
    the middle; the executors have tidelog from a zip and nothing else of it."""
    client.topics.create("cluster", partitions=2)
    values = [b"%d" % at + b"x" * 100 for at in range(ROWS // 2)]
    for partition in range(2):
        client.produce_many("cluster", values, partition=partition)
    expected = sum(
        zlib.crc32(value) * (partition + 1) + at for partition in range(2) for at, value in enumerate(values)
    )
    package = write_package(tmp_path / "tidelog.zip")
    shim = tmp_path / "shim"
    shim.mkdir()
    (shim / "sitecustomize.py").write_text(HIDING)
    path = os.pathsep.join([str(shim), str(ROOT)])
    environment = cluster.environment({"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path})
    arguments = [cluster.url, broker.url, "cluster", str(tmp_path), str(package)]
    command = [sys.executable, "-m", "tests.spark.cluster_driver", *arguments]
    driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "reading").exists():
            assert driver.poll() is None, driver.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        cluster.kill_executor(int((tmp_path / "reading").read_text()))
        (tmp_path / "go").touch()
        out, err = driver.communicate(timeout=90)
    finally:
        driver.kill()
        driver.wait()
    assert driver.returncode == 0, err.decode()
    found = json.loads(out)
    assert (found["rows"], found["hash"], found["tasks"], found["attempts"]) == (ROWS, expected, 4, 2)
    assert [file.rpartition("tidelog.zip")[2] for file in found["files"]] == ["/tidelog/spark/__init__.py"]


HIDING = """
import sys
from pathlib import Path

# Executors must find tidelog in the zip alone: take away an installed one, editable or not.
if any("pyspark" in argument for argument in sys.orig_argv):
    sys.meta_path[:] = [each for each in sys.meta_path if "tidelog" not in getattr(each, "__module__", "")]
    sys.path[:] = [each for each in sys.path if not (Path(each) / "tidelog").is_dir() or each.endswith(".zip")]
"""
