"""The seam through which the core has work done in worker threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Offload(Protocol):
    """Runs `work` in a worker thread, then `done` on the loop. Neither raises; works may run side by side."""

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        """Start it; returns at once."""
        ...


def offload_inline(work: Callable[[], None], done: Callable[[], None]) -> None:
    """Be an `Offload` without threads: both are called before it returns."""
    work()
    done()
