"""How a run of many tests is shared among worker processes (pytest-xdist): how many, and what stays on one of them."""

from __future__ import annotations

import os

import pytest
from xdist.scheduler import LoadScopeScheduling

WORKERS_MIN = 2
"""As below, on one core."""

WORKERS_PER_CORE = 1.5
"""For half of the time a test waits for another process or for a clock, so that more than one finds work on a core."""

WORKERS_MAX = 4
"""More gain nothing: the files that take longest are what is waited for then."""

TOGETHER = ("tests/spark",)
"""Folders whose tests share what is dear to start: a Java machine each would cost more than a second worker gains."""


class ByFile(LoadScopeScheduling):
    """Gives a worker a file at a time, as the tests of a file share brokers, and the folders of `TOGETHER` as one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if file.startswith(f"{folder}/")), file)


def worker_count(config: pytest.Config) -> int:
    """Return how many workers share the run; none when files are named or nothing is captured, as while debugging."""
    named = all("::" in argument or argument.endswith(".py") for argument in config.args)
    if named or config.option.capture == "no":
        return 0
    return min(max(int(len(os.sched_getaffinity(0)) * WORKERS_PER_CORE), WORKERS_MIN), WORKERS_MAX)
