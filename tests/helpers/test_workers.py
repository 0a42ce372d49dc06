"""How tests are shared among workers."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.helpers.workers import ByFile, worker_count


def test_a_file_stays_on_one_worker_and_spark_on_one() -> None:
    """The tests of a file, with classes or not, are one piece of work, and so is all of Spark, which starts Java."""
    scheduler = ByFile.__new__(ByFile)
    found = Counter(
        scheduler._split_scope(test)
        for test in (
            "tests/cli/test_usage.py::test_a[x::y]",
            "tests/cli/test_usage.py::TestB::test_c",
            "tests/cli/test_times.py::test_d",
            "tests/spark/test_rows.py::test_e",
            "tests/spark/test_offsets.py::test_f",
            "tests/sparkle/test_g.py::test_g",
        )
    )
    assert found == {
        "tests/cli/test_usage.py": 2,
        "tests/cli/test_times.py": 1,
        "tests/spark": 2,
        "tests/sparkle/test_g.py": 1,
    }


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
