"""What a session's processes hold in memory at most while something runs: looked at ten times a second."""

from __future__ import annotations

import os
import re
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

INTERVAL_S = 0.1
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


class PeakMemory:
    """Watches the processes below this one. Shared pages count in proportion (PSS), as workers are forks."""

    def __init__(self) -> None:
        self.jvm_mb = 0.0
        self.python_mb = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            jvm, python = _held()
            self.jvm_mb, self.python_mb = max(self.jvm_mb, jvm), max(self.python_mb, python)
            if self._is_over.wait(INTERVAL_S):
                return


def _held() -> tuple[float, float]:
    """Return the megabytes of the JVM and of the Python processes below it."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            text = path.read_text()
            pid = int(path.parent.name)
            names[pid] = text[text.index("(") + 1 : text.rindex(")")]
            parents[pid] = int(text[text.rindex(")") + 1 :].split()[1])
    jvms = [pid for pid, parent in parents.items() if parent == os.getpid() and names[pid] == "java"]
    below = {pid for pid in parents if any(_is_below(pid, jvm, parents) for jvm in jvms)}
    return sum(map(_pss_mb, jvms)), sum(map(_pss_mb, below - {*jvms}))


def _is_below(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def _pss_mb(pid: int) -> float:
    try:
        found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    except OSError:  # it ended
        return 0.0
    return int(found[1]) / 1024 if found else 0.0
