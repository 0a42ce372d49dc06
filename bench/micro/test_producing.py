"""What a client does with each message before it is in a batch."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from tidelog.client.core.cutting import Table, cut
from tidelog.client.core.entries import to_entries
from tidelog.client.core.partitioner import partition_of, partitions_of
from tidelog.client.core.record import make_record

from .content import values_of

COUNT = 10_000


def test_make_record(benchmark: BenchmarkFixture) -> None:
    """One message is checked."""
    record = benchmark(
        lambda: make_record(
            b"value", key="sensor-7", headers=None, priority=4, partition=None, timestamp=None, now_us=7
        )
    )
    assert (record.value, record.key, record.timestamp_us) == (b"value", b"sensor-7", 7)


def test_partition_of_one_key(benchmark: BenchmarkFixture) -> None:
    """One key is hashed to its partition."""
    assert benchmark(lambda: partition_of(b"sensor-7", 12)) == int(partitions_of([b"sensor-7"], 12)[0])


def test_partitions_of_a_column(benchmark: BenchmarkFixture) -> None:
    """A column of keys is hashed to partitions."""
    keys = [b"sensor-%d" % number for number in range(COUNT)]
    found = benchmark(lambda: partitions_of(keys, 12))
    assert found.tolist() == [partition_of(key, 12) for key in keys]


def test_flat_entries(benchmark: BenchmarkFixture) -> None:
    """A column of plain values is checked, measured and copied behind one another."""
    values = values_of(COUNT, 100)
    entries, sizes = benchmark(lambda: to_entries(values, "values"))
    assert ([*entries], sizes.tolist()) == (values, [100] * COUNT)


def test_object_entries(benchmark: BenchmarkFixture) -> None:
    """A column with None among its values is checked and measured, one entry after the other."""
    values = [None, *values_of(COUNT - 1, 100)]
    entries, sizes = benchmark(lambda: to_entries(values, "values"))
    assert ([*entries], sizes.tolist()) == (values, [0] + [100] * (COUNT - 1))


def test_cut(benchmark: BenchmarkFixture) -> None:
    """A column is cut into batches near 256 KiB."""
    values = values_of(COUNT, 100)
    table = Table(list(values), None, None, None)
    parts = benchmark(lambda: list(cut(table)))
    assert [value for _at, part in parts for value in part.values] == values
    assert [at for at, _part in parts] == [sum(len(part) for _at, part in parts[:place]) for place in range(len(parts))]
