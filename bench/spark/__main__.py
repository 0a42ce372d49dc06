"""Measure Spark's reading of the same rows from sealed segments, through the broker, from Parquet and from Kafka.

One session on two threads reads them alternately, in rounds, into Spark's sink `noop`; every source is counted and its
columns are summed before the first round and after the last. Where they differ there is no figure. A line of the
output is one JSON object.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tidelog import Client

from ..command import EXIT_NOT_INSTALLED, leave_on_sigterm
from ..e2e.broker import BrokerProcess
from ..errors import NotInstalledError
from ..peers import spark_kafka
from ..peers.kafka_server import KafkaServer
from .alternating import Line, tell
from .cases import parquet_cases, tidelog_cases, write_parquet
from .measuring import measure
from .rows import Rows
from .session import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run(options: argparse.Namespace) -> Iterator[Line]:
    """Yield all lines."""
    rows = Rows(options.messages, options.size, options.partitions)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-bench-")))
        jars = [] if options.without_kafka else spark_kafka.jars()
        broker = stack.enter_context(BrokerProcess())
        with Client(broker.url) as client:
            rows.send(client)
        address = ""
        if jars:
            address = stack.enter_context(KafkaServer(flushed=False)).address
            spark_kafka.fill(address, rows)
        spark: SparkSession = start_session(folder, jars)
        stack.callback(spark.stop)
        cases = tidelog_cases(spark, broker.url, str(broker.folder / "data"))
        write_parquet(cases[0].load(), str(folder / "parquet"))
        cases += parquet_cases(spark, str(folder / "parquet"))
        cases += spark_kafka.kafka_cases(spark, address) if jars else []
        yield from measure(cases, rows.sums(), broker.url, options.rounds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the lines; 1 when something is not as it was sent, 3 when Kafka's jars are not there."""
    leave_on_sigterm()
    parser = argparse.ArgumentParser(prog="python -m bench.spark", description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of one value")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-kafka", action="store_true", help="leave the peer out")
    options = parser.parse_args(arguments)
    try:
        return tell(run(options))
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return EXIT_NOT_INSTALLED


if __name__ == "__main__":
    sys.exit(main())
