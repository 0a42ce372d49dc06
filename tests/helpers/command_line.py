"""Runs `tidelog`: inside the test's process, as a process of its own, or on a terminal of its own.

Starting Python and its libraries takes most of a second, so `run`, which most tests use, calls the command's own
`main` with standard streams, environment and folder of its own. What is about the process itself (signals, pipes,
terminals, the locale) starts one.
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tidelog.__main__ import main

TIMEOUT_S = 30.0


def open_terminal() -> tuple[int, int]:
    """Make a pseudo-terminal; the test is skipped where the machine has none, as in a bare chroot."""
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"this machine has no pseudo-terminals: {error}")


@dataclass(frozen=True)
class Finished:
    """How a command ended, and what it wrote."""

    code: int
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[bytes]:
        """The lines of standard output; the last newline ends the last line."""
        assert not self.out or self.out.endswith(b"\n")
        return self.out.split(b"\n")[:-1]

    @property
    def error(self) -> str:
        """The one line on standard error."""
        text = self.err.decode()
        assert text.endswith("\n"), text
        assert text.count("\n") == 1, text
        return text[:-1]


class CommandLine:
    """`tidelog` against one broker."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a command: the broker's address, and no bytecode of this test run's own."""
        return {**os.environ, "TIDELOG_URL": self.url, "COLUMNS": "200", **(more or {})}

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        code: int | None = 0,
    ) -> Finished:
        """Run a command to its end in this process; unless `code` is None it must end with that exit code."""
        with (
            pytest.MonkeyPatch.context() as patch,
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(stdin)
            given.seek(0)
            for name, value in self.environment(environment).items():
                patch.setenv(name, value)
            patch.chdir(self.folder)
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.FileIO(given.fileno(), closefd=False), "utf-8"))
            for name, file in (("stdout", out), ("stderr", err)):
                patch.setattr(sys, name, io.TextIOWrapper(io.FileIO(file.fileno(), "w", closefd=False), "utf-8"))
            found = main(arguments)
            sys.stdout.flush()
            sys.stderr.flush()
            out.seek(0)
            err.seek(0)
            finished = Finished(found, out.read(), err.read())
        assert code is None or found == code, f"exit code {found}\n{finished.out!r}\n{finished.err!r}"
        return finished

    def run_process(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        code: int | None = 0,
    ) -> Finished:
        """Run a command to its end in a process of its own."""
        run = subprocess.run(
            [sys.executable, "-m", "tidelog", *arguments],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            cwd=self.folder,
            env=self.environment(environment),
        )
        assert code is None or run.returncode == code, f"exit code {run.returncode}\n{run.stdout!r}\n{run.stderr!r}"
        return Finished(run.returncode, run.stdout, run.stderr)

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a command with pipes; it is killed at the end if it still runs."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=self.folder,
            env=self.environment(),
        )
        with process:
            try:
                yield process
            finally:
                process.kill()

    @contextlib.contextmanager
    def on_terminal(self, *arguments: str, stdin_too: bool = True) -> Iterator[Terminal]:
        """Start a command whose standard streams are a terminal."""
        ours, theirs = open_terminal()
        process = subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=theirs if stdin_too else subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            cwd=self.folder,
            env=self.environment({"TERM": "xterm"}),
            start_new_session=True,
        )
        os.close(theirs)
        with process:
            try:
                yield Terminal(ours, process)
            finally:
                process.kill()
                os.close(ours)


class Terminal:
    """The other end of a command's terminal."""

    def __init__(self, descriptor: int, process: subprocess.Popen[bytes]) -> None:
        self._descriptor = descriptor
        self._process = process
        self.shown = b""

    def type(self, keys: bytes) -> None:
        """Press keys."""
        os.write(self._descriptor, keys)

    def interrupt(self) -> None:
        """Send what Ctrl-C sends."""
        self._process.send_signal(signal.SIGINT)

    def wait_for(self, pattern: bytes) -> None:
        """Read until something matches."""
        deadline = time.monotonic() + TIMEOUT_S
        while not re.search(pattern, self.shown):
            assert self._read(deadline), f"{pattern!r} was never shown: {self.shown!r}"

    def finish(self) -> int:
        """Read until the command ends; return its exit code."""
        deadline = time.monotonic() + TIMEOUT_S
        while self._read(deadline):
            pass
        return self._process.wait(TIMEOUT_S)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"nothing more was shown: {self.shown!r}"
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the command closed its end
            return False
        self.shown += data
        return bool(data)
