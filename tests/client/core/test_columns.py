"""The columns of a `produce_many` before they are sent."""

import gc

from tidelog.client.core.columns import Columns
from tidelog.client.core.partitioner import StickyPartitioner


def test_the_garbage_collector_does_not_look_at_each_message():
    """What is kept of a long list while it is sent is nothing that a collection walks through."""
    columns = Columns([b"%d" % row for row in range(5000)], keys=[b"%d" % (row % 7) for row in range(5000)])
    chunks = [*columns.chunks("orders", 3, StickyPartitioner(0), 1 << 20)]
    kept = [columns.table, *(chunk.table for chunk in chunks)]
    assert max(len(gc.get_referents(column)) for table in kept for column in (table.values, table.keys)) <= 4


def test_sizes_are_those_of_the_entries():
    """Each entry has its size, wherever it lies and whatever it was made of."""
    values = ["é", None, b"", b"abc", bytearray(5), memoryview(b"1234")] * 400
    columns = Columns(values, keys=[b"k" * (row % 3) for row in range(2400)])
    assert columns.table.value_sizes is not None
    assert columns.table.value_sizes.tolist() == [2, 0, 0, 3, 5, 4] * 400
    assert [*columns.table.values] == ["é".encode(), None, b"", b"abc", bytes(5), b"1234"] * 400
    assert columns.table.key_sizes is not None
    assert columns.table.key_sizes.tolist() == [0, 1, 2] * 800


def test_rows_taken_by_partition_keep_their_sizes():
    """Rows that are grouped by partition are encoded with the sizes that are theirs."""
    keys = [b"%d" % (row % 7) for row in range(500)]
    columns = Columns([b"v" * (row % 11) for row in range(500)], keys=keys)
    for chunk in columns.chunks("orders", 3, StickyPartitioner(0), 1 << 20):
        table = chunk.table
        assert table.value_sizes is not None
        assert table.value_sizes.tolist() == [len(value or b"") for value in table.values]
