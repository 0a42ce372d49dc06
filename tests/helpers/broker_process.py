"""A real broker process that a test starts, kills, stops, continues and starts again on the same folder."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

_READY = re.compile(r"tidelog serving on (tidelog://([0-9.]+):([0-9]+))")
START_TIMEOUT_S = 30.0


class BrokerProcess:
    """`python -m tidelog serve` on a data folder, ended by its own process id and no other's."""

    def __init__(
        self,
        data_dir: Path,
        *,
        listen: str = "127.0.0.1:0",
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.starts = 0
        self.output: list[str] = []
        self._listen = listen
        self._arguments = list(arguments)
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._readers: list[threading.Thread] = []
        self._ready = threading.Event()  # it serves, or its output ended
        self._serving = False
        self._address: tuple[str, int] | None = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill()
        if error is not None and hasattr(error, "add_note"):
            error.add_note("the broker's last lines:\n" + "\n".join(self.output[-40:]))

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; the port stays the same over restarts."""
        assert self._address is not None, "the broker was never ready"
        return self._address

    @property
    def url(self) -> str:
        """What a client takes."""
        return "tidelog://{}:{}".format(*self.address)

    def start(self) -> None:
        """Start on the folder, and return when the broker says that it serves."""
        assert self._process is None, "the broker is running already"
        self._ready, self._serving = threading.Event(), False
        command = [sys.executable, "-m", "tidelog", "serve"]
        command += ["--data-dir", str(self.data_dir), "--listen", self._listen, *self._arguments]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self._environment,
        )
        self.starts += 1
        self._readers = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (self._process.stdout, self._process.stderr)
        ]
        for reader in self._readers:
            reader.start()
        if not self._ready.wait(START_TIMEOUT_S) or not self._serving:
            self.kill()
            raise AssertionError("the broker did not start:\n" + "\n".join(self.output[-40:]))
        self._listen = "{}:{}".format(*self._address)

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        self._reap()

    def terminate(self, timeout: float = 30.0) -> int:
        """Ask it to stop (SIGTERM); return its exit code."""
        self._signal(signal.SIGTERM)
        return self.wait(timeout)

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for it to end by itself; return its exit code."""
        assert self._process is not None, "the broker is not running"
        self._process.wait(timeout)
        return self._reap()

    def restart(self) -> None:
        """Kill -9 and start again on the same folder and port."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Stop it in its tracks (SIGSTOP): connections stay, nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on (SIGCONT)."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        assert self._process is not None, "the broker is not running"
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    def _reap(self) -> int:
        assert self._process is not None
        code = self._process.wait(30)
        for reader in self._readers:
            reader.join(5)
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        self._process = None
        return code

    def _read(self, stream: object) -> None:
        for line in stream:  # type: ignore[attr-defined]
            self.output.append(line.rstrip("\n"))
            match = _READY.search(line)
            if match:
                self._address = (match[2], int(match[3]))
                self._serving = True
                self._ready.set()
        self._ready.set()  # the stream's end, too, ends the waiting
