"""How tests are shared among workers."""

from __future__ import annotations

from collections import Counter, OrderedDict
from pathlib import Path

import pytest

from tests.helpers.workers import TOGETHER, ByFile, worker_count


def test_a_file_stays_on_one_worker_and_those_of_a_spark_session_too() -> None:
    """The tests of a file, with classes or not, are one piece of work, and so are the files that share a Java machine."""
    scheduler = ByFile.__new__(ByFile)
    found = Counter(
        scheduler._split_scope(test)
        for test in (
            "tests/cli/test_usage.py::test_a[x::y]",
            "tests/cli/test_usage.py::TestB::test_c",
            "tests/cli/test_times.py::test_d",
            "tests/spark/test_rows.py::test_e",
            "tests/spark/test_sink_spark.py::test_f",
            "tests/spark/test_bench.py::test_g",
            "tests/spark/test_jobs_spark.py::test_h",
        )
    )
    assert found == {
        "tests/cli/test_usage.py": 2,
        "tests/cli/test_times.py": 1,
        "tests/spark/test_rows.py": 1,
        "tests/spark/test_bench.py": 2,
        "tests/spark/test_batch_read.py": 1,
    }


def test_no_file_starts_a_java_machine_of_its_own() -> None:
    """Whatever asks for the Spark session is among the files that share one."""
    root = Path(__file__).parent.parent
    asking = {
        f"tests/spark/{file.name}" for file in root.glob("spark/test_*.py") if "spark: SparkSession" in file.read_text()
    }
    assert asking == {file for files in TOGETHER for file in files}


def test_what_takes_longest_is_given_out_first() -> None:
    """A session's files come before those that were next."""
    given: list[list[int]] = []

    class Node:
        def send_runtest_some(self, tests: list[int]) -> None:
            given.append(tests)

    node = Node()
    scheduler = ByFile.__new__(ByFile)
    tests = ["tests/cli/test_times.py::test_d", "tests/spark/test_batch_read.py::test_a"]
    scheduler.workqueue = OrderedDict((scheduler._split_scope(test), {test: False}) for test in tests)
    scheduler.assigned_work, scheduler.registered_collections = {}, {node: tests}
    scheduler._assign_work_unit(node)
    scheduler._assign_work_unit(node)
    assert given == [[1], [0]]


@pytest.mark.parametrize(
    ("arguments", "capture", "cores", "workers"),
    [
        (["tests"], "fd", 1, 2),
        (["tests"], "fd", 2, 3),
        (["tests"], "fd", 3, 4),
        (["tests"], "fd", 64, 4),
        (["tests/cli", "tests/test_docs.py"], "fd", 2, 3),
        (["tests"], "no", 2, 0),
        (["tests/test_docs.py"], "fd", 2, 0),
        (["tests/test_docs.py::test_a", "tests/test_tidy.py"], "fd", 2, 0),
    ],
)
def test_folders_are_shared_and_named_files_are_not(
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    arguments: list[str],
    capture: str,
    cores: int,
    workers: int,
) -> None:
    """Two to four workers, three for two cores, run folders; what is named, or not captured, runs in pytest's own process."""
    monkeypatch.setattr(pytestconfig, "args", arguments)
    monkeypatch.setattr(pytestconfig.option, "capture", capture)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: set(range(cores)))
    assert worker_count(pytestconfig) == workers
