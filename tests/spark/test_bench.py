"""The benchmark of Spark's reading runs, and has no figure for rows that are not those that were sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.errors import VerificationError
from bench.spark.cases import parquet_cases, tidelog_cases, write_parquet
from bench.spark.measuring import measure
from bench.spark.rows import Rows

from tests.helpers.broker_process import broker_process
from tidelog import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.process
@pytest.mark.spark
def test_it_measures_what_it_has_verified(spark: SparkSession, tmp_path: Path) -> None:
    """Three sources at a small size: a line for each, ratios, and an error instead when a sum is another."""
    rows = Rows(20_000, 100, 2)
    assert rows.sums()["offset"] == 199_990_000
    with broker_process(tmp_path) as broker, Client(broker.url) as client:
        rows.send(client)
        cases = tidelog_cases(spark, broker.url, str(tmp_path / "data"))
        write_parquet(cases[0].load(), str(tmp_path / "parquet"))
        cases += parquet_cases(spark, str(tmp_path / "parquet"))
        chosen = [case for case in cases if case.name in ("segments_value", "parquet_value")]
        lines = [*measure(chosen, rows.sums(), broker.url, rounds=1)]
        assert [line["figure"] for line in lines] == [
            "spark_read_segments_value",
            "spark_read_parquet_value",
            "client_batches",
            "segments_value / parquet_value",
        ]
        assert all(float(str(line["value"])) > 0 for line in lines)
        assert int(str(lines[0]["peak_jvm_mb"])) > 100
        with pytest.raises(VerificationError, match=r"segments_value: expected .*'rows': 20001"):
            next(measure(chosen, {**rows.sums(), "rows": 20_001}, broker.url, rounds=1))
