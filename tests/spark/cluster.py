"""A Spark cluster on this machine: a master and workers as processes of their own, ended by their process ids."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.spark.conftest import JAVA_OPTIONS
from tests.spark.spark_home import make_spark_home

START_TIMEOUT_S = 60.0

MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "CoarseGrainedExecutorBackend"

_SERVES = re.compile(r"Starting Spark master at (spark://127\.0\.0\.1:[0-9]+)")
_REGISTERED = "Successfully registered with master"

CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.catalogImplementation": "in-memory",
    "spark.log.level": "ERROR",
}
"""Of an application: an executor in each worker, as small as Spark allows."""


class Cluster:
    """A master and its workers. Everything they say is in files of `folder`."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.url = ""
        self.home = make_spark_home(folder)
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start all of it, and return when every worker has registered."""
        self._run("master", MASTER, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self._wait_for("master", _SERVES)
        for number in range(self._workers):
            where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "600M"]
            work = ["--work-dir", str(self._folder / f"work-{number}")]
            self._run(f"worker-{number}", WORKER, *where, *work, self.url)
        for number in range(self._workers):
            self._wait_for(f"worker-{number}", re.compile(f"({_REGISTERED})"))

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of what runs in the cluster."""
        return {
            **os.environ,
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            **(more or {}),
        }

    def kill_executor(self, pid: int) -> None:
        """Kill -9 an executor, if it is one of this cluster's."""
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert EXECUTOR.encode() in command, command
        assert self.url.encode() not in command
        assert _parent(pid) in {process.pid for process in self._processes}
        os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End every process that was started here, the last one first, and what executors are left of the workers."""
        executors = [pid for process in self._processes for pid in _children(process.pid)]
        for process in reversed(self._processes):
            process.kill()
            process.wait(30)
        for pid in executors:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def said(self, name: str) -> str:
        """What a process has logged."""
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _run(self, name: str, *command: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            program = str(self.home / "bin/spark-class")
            self._processes.append(
                subprocess.Popen(
                    [program, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment()
                )
            )

    def _wait_for(self, name: str, pattern: re.Pattern[str]) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while (found := pattern.search(self.said(name))) is None:
            assert time.monotonic() < deadline, self.said(name)
            time.sleep(0.05)
        return found[1]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _children(pid: int) -> list[int]:
    found = list[int]()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(each) for each in task.read_text().split()]
    return found


@contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """Run a cluster, and see to it that nothing of it is left."""
    folder.mkdir(exist_ok=True)
    cluster = Cluster(folder, workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
