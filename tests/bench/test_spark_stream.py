"""What the benchmark of Spark streams takes for right: every record, in order, whole."""

from __future__ import annotations

import pytest
from bench.errors import VerificationError
from bench.spark_stream import WARM_UP_BATCHES, PacedArrivals


def value(index: int, sent_ms: int) -> bytes:
    """Return a value as it is sent."""
    return (b"%d:%d:" % (index, sent_ms * 1_000_000)).ljust(60, b".")


def test_latencies_are_of_each_record_behind_the_first_batches() -> None:
    """Median and 95th percentile, in milliseconds; batches in which the JVM starts are not timed."""
    count = WARM_UP_BATCHES + 100
    arrivals = PacedArrivals(count, 60)
    for index in range(WARM_UP_BATCHES):
        arrivals.take([value(index, 0)], 10**15)
    arrivals.take([], 0)
    arrivals.take([value(index, index) for index in range(WARM_UP_BATCHES, count)], count * 1_000_000)
    assert arrivals.percentiles_ms() == (50.5, 96.0)


@pytest.mark.parametrize(
    "found",
    [value(1, 0), value(0, 0)[:-1], b"0:0:".ljust(59, b".") + b"x", b""],
    ids=["another", "cut", "changed", "empty"],
)
def test_a_record_that_is_not_the_next_one(found: bytes) -> None:
    """Gives no figure."""
    with pytest.raises(VerificationError, match="expected message 0 of 60 bytes"):
        PacedArrivals(2, 60).take([found], 0)


def test_a_record_that_is_missing() -> None:
    """Gives no figure."""
    arrivals = PacedArrivals(2, 60)
    arrivals.take([value(0, 0)], 1)
    with pytest.raises(VerificationError, match="expected 2 messages, received 1"):
        arrivals.percentiles_ms()
