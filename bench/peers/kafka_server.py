"""A real Kafka to measure: one node (KRaft) on free ports of 127.0.0.1 and a fresh folder, ended by its process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ..errors import NotInstalledError

LIBRARY_VARIABLE = "KAFKA_LIB"
DEFAULT_LIBRARY = Path("~/.cache/tidelog-peers/kafka/lib")
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
START_SECONDS = 60.0
STOP_SECONDS = 20.0

HOW_TO_INSTALL = f"""Kafka is not installed here: {{missing}}.
It takes Java 17 or later, Kafka's jars, and a Python with confluent-kafka. Either unpack a release from
https://kafka.apache.org/downloads and set {LIBRARY_VARIABLE} to its folder libs/, or fetch the jars with Maven:
    mvn -f bench/peers/kafka.pom.xml dependency:copy-dependencies -DoutputDirectory={DEFAULT_LIBRARY}
    pip install 'confluent-kafka>=2.6'      or: pip install -e '.[bench]'"""

PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=1
"""
FLUSHED = "log.flush.interval.messages=1\n"
"""Makes Kafka sync every append before it answers; by default it leaves that to the kernel."""


def library() -> Path:
    """Return the folder of Kafka's jars. Raises NotInstalledError that says how to get them."""
    folder = Path(os.environ.get(LIBRARY_VARIABLE) or DEFAULT_LIBRARY).expanduser()
    if shutil.which("java") is None:
        raise NotInstalledError(HOW_TO_INSTALL.format(missing="no java on the PATH"))
    if not list(folder.glob("kafka_*.jar")):
        raise NotInstalledError(HOW_TO_INSTALL.format(missing=f"no kafka_*.jar in {folder}"))
    return folder


def version() -> str:
    """Return the version of the jars."""
    return next(library().glob("kafka_*.jar")).stem.rsplit("-", 1)[1]


class KafkaServer:
    """One broker; `flushed` syncs each append."""

    def __init__(self, *, flushed: bool) -> None:
        self._library = library()
        self._flushed = flushed
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> KafkaServer:
        self._folder = Path(tempfile.mkdtemp(prefix="kafka-bench-"))
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process is not None:
                self._process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(STOP_SECONDS)
        finally:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> None:
        broker, controller = _free_port(), _free_port()
        properties = self._folder / "server.properties"
        text = PROPERTIES.format(broker=broker, controller=controller, data=self._folder / "data")
        properties.write_text(text + (FLUSHED if self._flushed else ""))
        java = ["java", "-Xms1g", "-Xmx1g", "-cp", f"{self._library}/*"]
        with (self._folder / "log").open("wb") as log:
            storage = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
            subprocess.run(storage, check=True, stdout=log, stderr=log)
            self._process = subprocess.Popen([*java, "kafka.Kafka", str(properties)], stdout=log, stderr=log)
        self.address = f"127.0.0.1:{broker}"
        self._wait_until_it_listens(broker)

    def _wait_until_it_listens(self, port: int) -> None:
        assert self._process is not None
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"Kafka did not start: {(self._folder / 'log').read_text()[-2000:]}")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
