"""A broker process to measure: started on a fresh folder, killed, started again, ended by its own process id."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

READY_PREFIX = "tidelog serving on "


class BrokerProcess:
    """`tidelog serve` on a free port of 127.0.0.1 and a folder of its own."""

    def __init__(self, *options: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tidelog-bench-"))
        self._options = options
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it serves. Raises RuntimeError with what it printed when it does not."""
        command = [sys.executable, "-m", "tidelog", "serve", "--data-dir", str(self.folder / "data")]
        command += ["--listen", "127.0.0.1:0", *self._options]
        # Where the machine says to keep no bytecode a start would be the time to compile everything.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        with (self.folder / "log").open("a") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith(READY_PREFIX):
            raise RuntimeError(f"the broker did not start: {line}{(self.folder / 'log').read_text()[-2000:]}")
        self.url = line.removeprefix(READY_PREFIX).strip()

    def kill(self) -> None:
        """End the process with SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """End the process with SIGTERM. Raises RuntimeError when it does not end well."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            code = self._process.wait()
            self._process = None
            if code != 0:
                raise RuntimeError(f"the broker ended with {code}: {(self.folder / 'log').read_text()[-2000:]}")

    def anonymous_bytes(self) -> int:
        """Return RssAnon: memory that is not a page of some file."""
        return self._status_bytes("RssAnon")

    def peak_bytes(self) -> int:
        """Return VmHWM: the most that was resident at once, pages of files too."""
        return self._status_bytes("VmHWM")

    def _status_bytes(self, field: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) * 1024

    def cpu_seconds(self) -> float:
        """Return the processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
