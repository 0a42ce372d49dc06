"""Kills a driver of two streams, with its JVM and its workers, in the middle of both; in a thread, while others test.

It takes twenty seconds, most of them for the JVM to start and to warm up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.spark.killed_driver import COPIED
from tidelog import Client

ROWS = 200_000
"""Of both topics that the streams read."""

MOST_S = 120.0
"""On a machine that does other things too."""


class Killing:
    """The folder of a driver, which is killed as soon as both of its streams are in the middle."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url, self._folder = url, folder
        self._error: BaseException | None = None
        self._driver: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def folder(self) -> Path:
        """Return it once the driver is killed. Raises what kept it from getting so far."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._folder

    def stop(self) -> None:
        """Kill it at once, wherever it is."""
        driver = self._driver
        if driver is not None and driver.poll() is None:
            os.killpg(driver.pid, signal.SIGKILL)  # the JVM and its Python processes are in its group
        self._thread.join()

    def _run(self) -> None:
        try:
            with Client(self._url) as client:
                _fill(client)
                self._kill(client)
        except BaseException as error:
            self._error = error

    def _kill(self, client: Client) -> None:
        command = [sys.executable, "-m", "tests.spark.killed_driver", self._url, str(self._folder)]
        with (self._folder / "driver.log").open("wb") as log:
            driver = self._driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        deadline = time.monotonic() + MOST_S
        try:
            while finished(self._folder) < 2 or _written(client) < COPIED + COPIED // 10:
                assert driver.poll() is None, (self._folder / "driver.log").read_text()
                assert time.monotonic() < deadline, "both streams were to be in the middle by now"
                time.sleep(0.005)
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
            driver.wait()


def finished(folder: Path) -> int:
    """How many batches of files are complete."""
    return len([*(folder / "out").glob("*/_SUCCESS")])


def _fill(client: Client) -> None:
    for topic in ("source", "copy", "kept"):
        client.topics.create(topic, partitions=2)
    for partition in (0, 1):
        values = [b"%d" % at for at in range(partition, ROWS, 2)]
        client.produce_many("source", values, partition=partition)
        client.produce_many("kept", values, partition=partition)


def _written(client: Client) -> int:
    """How many records the copy has so far."""
    return sum(partition.end_offset for partition in client.topics.describe("copy").partitions)
