"""What the jobs' commands decide before there is a session."""

from __future__ import annotations

import pytest

from tidelog.spark.jobs.running import runs_workers_here


@pytest.mark.parametrize(
    ("master", "conf", "environment", "here"),
    [
        (None, {}, {}, True),
        ("local[4]", {}, {"MASTER": "yarn"}, True),
        ("spark://host:7077", {}, {}, False),
        (None, {"spark.master": "yarn"}, {}, False),
        (None, {}, {"MASTER": "k8s://host"}, False),
        (None, {}, {"SPARK_REMOTE": "sc://host"}, False),
        (None, {}, {"PYSPARK_PYTHON": "/other/python3"}, False),
        (None, {"spark.pyspark.python": "/other/python3"}, {}, False),
    ],
)
def test_workers_of_this_machine_run_in_this_python(
    master: str | None, conf: dict[str, str], environment: dict[str, str], here: bool
) -> None:
    """Whether or not its environment is activated; a cluster's workers, and a Python that was chosen, stay as they are."""
    assert runs_workers_here(master, conf, environment) is here
