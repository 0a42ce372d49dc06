"""How a run of many tests is shared among worker processes (pytest-xdist): how many, and what stays on one of them."""

from __future__ import annotations

import os

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

WORKERS_MIN = 2
"""As below, on one core."""

WORKERS_PER_CORE = 1.5
"""For half of the time a test waits for another process or for a clock, so that more than one finds work on a core."""

WORKERS_MAX = 4
"""More gain nothing: the files that take longest are what is waited for then."""

TOGETHER = (
    (
        "tests/spark/test_batch_read.py",
        "tests/spark/test_jobs_spark.py",
        "tests/spark/test_killed_driver.py",
    ),
    (
        "tests/spark/test_bench.py",
        "tests/spark/test_sink_spark.py",
        "tests/spark/test_spark_page.py",
        "tests/spark/test_stream_spark.py",
    ),
)
"""Files that share a Spark session: a Java machine takes ten seconds to start and to warm up, so not one for each file,
and not one for all, for then that is what a run waits for."""


EARLY = (*(files[0] for files in TOGETHER), "tests/test_docs.py")
"""Begun last, what takes a minute by itself would be what the other workers wait for."""


class ByFile(LoadScopeScheduling):
    """Gives a worker a file at a time, as the tests of a file share brokers, and first those of `EARLY`."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return next((files[0] for files in TOGETHER if file in files), file)

    def _assign_work_unit(self, node: WorkerController) -> None:
        file = next((file for file in EARLY if file in self.workqueue), None)
        if file is not None:
            self.workqueue.move_to_end(file, last=False)
        super()._assign_work_unit(node)


def worker_count(config: pytest.Config) -> int:
    """Return how many workers share the run; none when files are named or nothing is captured, as while debugging."""
    named = all("::" in argument or argument.endswith(".py") for argument in config.args)
    if named or config.option.capture == "no":
        return 0
    return min(max(int(len(os.sched_getaffinity(0)) * WORKERS_PER_CORE), WORKERS_MIN), WORKERS_MAX)
