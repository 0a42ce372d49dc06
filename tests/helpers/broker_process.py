"""A real broker process, by the command line as a user starts it: killed, stopped, paused, started again."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from tests.helpers.nursery import Forked, nursery
from tests.helpers.raw_peer import RawClient

START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30
_READY = re.compile(r"tidelog serving on tidelog://127\.0\.0\.1:([0-9]+)\n")


class BrokerProcess:
    """`python -m tidelog serve` on a data folder (None: in memory), ended by its own process id and no other's.

    What it logs, over all its starts, is in the file `log`. Unless it is `fresh`, or has an environment of its own, it is
    forked from a process that has loaded the same command already, which takes a tenth of a start.
    """

    def __init__(
        self,
        data_dir: Path | None,
        *,
        log: Path | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> None:
        where = ["--in-memory"] if data_dir is None else ["--data-dir", str(data_dir)]
        if log is None:
            assert data_dir is not None, "a broker in memory needs a log file"
            log = data_dir.parent / "broker.log"
        self.log = log
        self.starts = 0
        self.ready_line = ""
        self.port = 0  # any free one at first; the same one over restarts
        self._arguments = [*where, *arguments]
        self._environment = {**os.environ, **(environment or {})}
        self._fresh = fresh or environment is not None or sys.platform != "linux"
        self._process: subprocess.Popen[bytes] | Forked | None = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        if error is not None:
            error.add_note("the broker's last lines:\n" + self._last_lines())

    @property
    def process(self) -> subprocess.Popen[bytes] | Forked:
        """The running process."""
        assert self._process is not None, "the broker is not running"
        return self._process

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return ("127.0.0.1", self.port)

    @property
    def url(self) -> str:
        """What a client takes."""
        return f"tidelog://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start on the folder, and return when it says that it serves."""
        assert self._process is None, "the broker is running already"
        command = ["serve", "--listen", f"127.0.0.1:{self.port}", *self._arguments]
        with self.log.open("ab") as stderr:
            self._process = self._run(command, stderr) if self._fresh else nursery().fork(command, stderr.fileno())
        self.starts += 1
        self.ready_line = self._read_line()
        match = _READY.fullmatch(self.ready_line)
        if match is None:
            self.kill()
            raise AssertionError(f"the broker did not start: {self.ready_line!r}\n{self._last_lines()}")
        self.port = int(match[1])

    def _run(self, command: list[str], stderr: BinaryIO) -> subprocess.Popen[bytes]:
        whole = [sys.executable, "-m", "tidelog", *command]
        return subprocess.Popen(
            whole, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr, env=self._environment
        )

    def _read_line(self) -> str:
        output = self.process.stdout
        assert output is not None
        poll = select.poll()  # not select(), which refuses numbers from 1024 on
        poll.register(output, select.POLLIN)
        return output.readline().decode() if poll.poll(START_TIMEOUT_S * 1000) else ""

    def _last_lines(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def connect(self) -> RawClient:
        """Return a connection that has said Hello."""
        client = RawClient(self.address)
        client.greet()
        return client

    def status(self, field: str) -> int:
        """Return a number of /proc/PID/status."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(rf"^{field}:\s+(\d+)", text, re.MULTILINE)
        assert match is not None, f"no {field} in {text}"
        return int(match[1])

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self.send_signal(signal.SIGKILL)
        self.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to stop; return its exit code."""
        self.send_signal(number)
        return self.wait()

    def restart(self) -> None:
        """Kill -9, and start again on the same folder and port."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stay, nothing answers."""
        self.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: int) -> None:
        """Send a signal, if it is still there to take it."""
        with suppress(ProcessLookupError):
            self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until it has ended; return its exit code."""
        process, self._process = self.process, None
        code = process.wait(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()
        return code


@contextmanager
def broker_process(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, fresh: bool = False
) -> Iterator[BrokerProcess]:
    """Run a broker on `folder`/data, or in memory, and see to it that it is gone afterwards."""
    data_dir = None if "--in-memory" in arguments else folder / "data"
    others = [argument for argument in arguments if argument != "--in-memory"]
    log = folder / "broker.log"
    with BrokerProcess(data_dir, log=log, arguments=others, environment=environment, fresh=fresh) as broker:
        yield broker
