"""The walk-through of docs/spark.md as it stands there, with real data, and what the page says of settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.markdown import blocks_of
from tests.spark.test_jobs_docs import PAGE, section
from tidelog.spark import recommended_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.process
@pytest.mark.spark
def test_the_walk_through_runs_and_prints_what_the_page_says(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """1461 days of weather become a topic, a table, Parquet files and a topic again; both outputs are the page's."""
    text = section("A walk-through", 2)
    blocks = [block for block in blocks_of(PAGE) if block.text in text]
    assert [block.language for block in blocks] == ["python", "python", "text", "python", "python", "text"]
    names: dict[str, object] = {"spark": spark}
    printed: list[str] = []
    for block in blocks:
        if block.language == "python":
            code = block.text.replace("tidelog://localhost:9440", broker.url).replace("/data/", f"{tmp_path}/")
            exec(compile(code, f"{PAGE}:{block.line}", "exec"), names)
            printed.append(capsys.readouterr().out.strip())
    assert [each for each in printed if each] == [block.text.strip() for block in blocks if block.language == "text"]
    assert spark.read.parquet(f"{tmp_path}/weather").selectExpr("count(DISTINCT date)").collect()[0][0] == 1461


def test_the_page_names_every_recommended_setting() -> None:
    """Each setting stands there with its value and a reason, and each size of row with its number."""
    text = section("Recommended settings and why", 2)
    told = dict(re.findall(r"^\| `(spark\.[a-zA-Z.]+)` \| `([^`]+)` \| [^|]{20,} \|$", text, re.M))
    assert told == recommended_conf()
    sizes = re.findall(r"^\| ([0-9,]+)[^|]* \| ([0-9,]+) \|$", text, re.M)
    assert len(sizes) == 5
    for size, rows in sizes:
        settings = recommended_conf(int(size.replace(",", "")))
        assert settings["spark.sql.execution.arrow.maxRecordsPerBatch"] == rows.replace(",", ""), size
