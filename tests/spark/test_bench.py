"""The benchmark of Spark's reading runs, and has no figure for rows that are not those that were sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.errors import VerificationError
from bench.spark.cases import parquet_cases, tidelog_cases, write_parquet
from bench.spark.measuring import measure
from bench.spark.rows import Rows
from bench.spark_archive import Archiving
from bench.spark_archive import measure as measure_archiving

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


@pytest.mark.process
@pytest.mark.spark
def test_an_archive_is_read_back_before_it_has_a_figure(spark: SparkSession, tmp_path: Path) -> None:
    """Two ways to Parquet at a small size: a line for each and their ratio, and an error instead when a sum is another;
    no folder is left."""
    rows = Rows(4_000, 100, 2)
    (tmp_path / "archives").mkdir()
    (tmp_path / "broker").mkdir()
    with broker_process(tmp_path / "broker") as broker, Client(broker.url) as client:
        rows.send(client)
        archiving = Archiving(spark, broker.url, rows.sums(), tmp_path / "archives", "zstd")
        lines = [*measure_archiving(archiving, rows.count, rounds=1)]
        assert [line["figure"] for line in lines] == [
            "spark_archive_job",
            "spark_archive_parquet_writer",
            "spark_archive_job / spark_archive_parquet_writer",
        ]
        assert all(float(str(line["value"])) > 0 for line in lines)
        assert list((tmp_path / "archives").iterdir()) == []
        sums = {**rows.sums(), "value": 1}
        way = Archiving(spark, broker.url, sums, tmp_path / "others", "zstd").ways["spark_archive_parquet_writer"]
        with pytest.raises(VerificationError, match=r"spark_archive_parquet_writer: expected .*'value': 1\}"):
            way()
