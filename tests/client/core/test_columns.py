"""The columns of a `produce_many` before they are sent."""

import gc
import sys
import threading
from collections.abc import Iterator

import numpy as np

from tidelog.client.core.columns import Columns
from tidelog.client.core.entries import to_entries
from tidelog.client.core.partitioner import StickyPartitioner
from tidelog.protocol.columns import BinaryColumn


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


def test_the_interpreter_is_held_for_few_entries_only():
    """250,000 entries are copied at once, however small; of more an object each is kept, and they are sent the same."""
    values, sizes = to_entries([b""] * 250_000, "values")
    assert isinstance(values, BinaryColumn)
    more, more_sizes = to_entries([b""] * 250_001, "values")
    assert isinstance(more, np.ndarray)
    assert (len(values), len(sizes), len(more), len(more_sizes)) == (250_000, 250_000, 250_001, 250_001)


class Odd(list[bytes]):
    """A list with a length and entries of its own."""

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[bytes]:
        return iter([b"own", b"entries"])


def test_a_list_of_another_kind_is_what_it_yields():
    """What a subclass of list yields is sent, as of anything else that can be iterated over."""
    columns = Columns(Odd([b"x", b"y", b"z"]), keys=Odd([b"x"]))
    assert columns.table.keys is not None
    assert ([*columns.table.values], [*columns.table.keys]) == ([b"own", b"entries"], [b"own", b"entries"])


def test_a_list_that_another_thread_changes_is_one_of_its_states():
    """Its length when it is copied is its length: whatever is added or removed meanwhile, nothing else is raised."""
    values = [b"a"] * 100
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            values.append(b"a")
            values.pop()

    before = sys.getswitchinterval()
    thread = threading.Thread(target=change)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        found = {len(Columns(values)) for _ in range(3_000)}
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(before)
    assert found <= {100, 101}
