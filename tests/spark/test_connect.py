"""The data source over Spark Connect, in a process of its own: a client without a JVM, and a server with one."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.broker_process import BrokerProcess
from tidelog import Client

pytestmark = [pytest.mark.process, pytest.mark.spark]

ROOT = Path(__file__).parent.parent.parent

NEEDED = ("pandas", "grpc", "grpc_status", "google.rpc", "zstandard")
"""What the client of Spark Connect imports."""


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.fixture
def connect(soak: int) -> None:
    """What Spark Connect takes, or the reason why it is not tried."""
    if soak < 2:
        pytest.skip("a server of its own takes half a minute: run with --soak 2")
    if missing := [each for each in NEEDED if not _is_there(each)]:
        pytest.skip(f"needs {', '.join(missing)}: pip install 'pyspark[connect]'")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("needs java: install a Java 17 runtime, or set JAVA_HOME")


@pytest.mark.usefixtures("connect")
def test_spark_connect_registers_writes_reads_and_streams(
    broker: BrokerProcess, client: Client, tmp_path: Path
) -> None:
    """1000 rows that a Connect session writes are in the topic, in its batch read, and in the files of its stream; a
    filter of offsets finds ten in each of two partitions."""
    client.topics.create("connect", partitions=2)
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path / "local"),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_driver", broker.url, "connect", str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout.decode().splitlines()[-1]) == {
        "session": "pyspark.sql.connect.session",
        "rows": 1000,
        "values": 1000,
        "few": 20,
        "ended": True,
        "streamed": 1000,
    }
    assert sum(len(batch) for batch in client.replay("connect")) == 1000
