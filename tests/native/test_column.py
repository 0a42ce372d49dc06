"""Columns put together in C, held against plain Python."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.native import _column
from tidelog.native.column import Flat, _split_slowly, flatten, pick, rises, split

MANY = 1 << 20

PLAIN = st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=50).filter(lambda text: text.isprintable())))


def plain_bytes(entry: object) -> bytes:
    """The bytes of an entry, said in Python."""
    return entry.encode() if isinstance(entry, str) else bytes(entry)  # type: ignore[arg-type]


def entries_of(column: Flat) -> list[bytes]:
    """The entries of a flat column."""
    return [column.data[start:end] for start, end in zip(column.offsets[:-1], column.offsets[1:], strict=True)]


@given(entries=PLAIN)
def test_flat_entries_are_the_bytes_and_texts_given(entries: list[bytes | str]):
    """Bytes stay what they are, text becomes UTF-8, in order, with nothing between."""
    column = flatten([*entries], MANY)
    assert column is not None
    assert entries_of(column) == [plain_bytes(entry) for entry in entries]
    assert (int(column.offsets[0]), int(column.offsets[-1])) == (0, len(column.data))


class Odd(bytes):
    """Bytes with a life of their own."""


@pytest.mark.parametrize("odd", [None, bytearray(b"x"), memoryview(b"x"), 5, Odd(b"x"), "\ud800", ["x"]])
@pytest.mark.parametrize("at", [0, 1, 20])
def test_what_is_not_plain_is_left_to_others(odd: object, at: int):
    """Not one of the entries is taken where one is neither bytes nor text, or text that has no UTF-8."""
    entries: list[object] = [b"x"] * 20
    entries.insert(at, odd)
    assert flatten(entries, MANY) is None


def test_the_limit_is_of_all_bytes_together():
    """So many bytes are taken, and not one more."""
    assert flatten([b"abc", "de"], 5) is not None
    assert flatten([b"abc", "de"], 4) is None
    empty = flatten([b""], 0)
    assert empty is not None
    assert (empty.offsets.tolist(), empty.data) == ([0, 0], b"")


def test_a_list_whose_length_changed_meanwhile_is_left_to_others():
    """Offsets for another number of entries, because a thread changed the list: nothing is read or written."""
    offsets = np.full(3, 7, dtype="<i4")
    for entries in ([b"a"], [b"a", b"b", b"c"], []):
        assert _column.flatten(entries, offsets, MANY) is None
    assert offsets.tolist() == [7, 7, 7]
    assert _column.flatten([b"a", b"bc"], offsets, MANY) == b"abc"


class Short(list[bytes]):
    """A list that says what it likes of itself."""

    def __len__(self) -> int:
        return 1


def test_a_list_of_another_kind_is_left_to_others():
    """Only what is exactly a list is read from where its entries lie."""
    assert flatten(Short([b"a", b"b"]), MANY) is None  # type: ignore[arg-type]


def test_few_texts_are_encoded_at_once():
    """20,000 texts beyond ASCII and not one more, as encoding one takes as long as ten others; ASCII is for nothing."""
    texts: list[object] = [f"é{at}" for at in range(20_000)]
    column = flatten([*texts, *["a"] * 9], MANY)
    assert column is not None
    assert column.data[:3] == "é0".encode()
    assert flatten([*texts, "é"], MANY) is None


def test_no_reference_is_kept():
    """An entry is held as often afterwards as before."""
    value = b"value" * 10
    before = sys.getrefcount(value)
    for _ in range(100):
        assert flatten([value, value], MANY) is not None
        assert flatten([value, None], MANY) is None
    assert sys.getrefcount(value) == before


@given(entries=st.lists(st.binary(max_size=20), min_size=1), data=st.data())
def test_picked_rows_are_those_rows(entries: list[bytes], data: st.DataObject):
    """Any rows, in any order and any number of times; also of a slice, whose offsets do not begin at 0."""
    column = flatten([*entries], MANY)
    assert column is not None
    first = data.draw(st.integers(0, len(entries) - 1))
    rows = data.draw(st.lists(st.integers(0, len(entries) - first - 1)))
    found = pick(Flat(column.offsets[first:], column.data), np.array(rows, dtype=np.int64))
    assert entries_of(found) == [entries[first + row] for row in rows]


@pytest.mark.parametrize("row", [-1, 2, 1 << 40])
def test_a_row_that_is_not_there_is_refused(row: int):
    """No byte is read outside of the column."""
    column = flatten([b"a", b"b"], MANY)
    assert column is not None
    with pytest.raises(IndexError, match="expected rows of the column"):
        pick(column, np.array([row], dtype=np.int64))


@pytest.mark.parametrize("offsets", [[0, 9], [-1, 2], [2, 1]])
def test_offsets_outside_of_the_data_are_refused(offsets: list[int]):
    """A column whose offsets point outside of its bytes, or backwards, is none."""
    with pytest.raises(IndexError, match="expected rows of the column"):
        pick(Flat(np.array(offsets, dtype="<i4"), b"abc"), np.array([0], dtype=np.int64))


# -- taking apart ------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["with the extension", "without"])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension, and what is there without it."""
    if request.param == "without":
        monkeypatch.setattr("tidelog.native.column._column", None)


def offsets_of(*places: int, boundary: int = 0) -> np.ndarray:
    """Offsets as they lie in a buffer, some bytes off a boundary."""
    buffer = bytes(boundary) + np.array(places, dtype="<i4").tobytes()
    return np.frombuffer(buffer, dtype="<i4", offset=boundary)


@given(entries=st.lists(st.binary(max_size=200)), first=st.integers(0, 3), boundary=st.integers(0, 3))
def test_split_entries_are_those_put_together(entries: list[bytes], first: int, boundary: int):
    """With and without the extension the entries are what they were, also of a slice, whose offsets do not begin at 0,
    and of a buffer that begins anywhere."""
    column = flatten([*entries], MANY)
    assert column is not None
    first = min(first, len(entries))
    offsets = offsets_of(*column.offsets[first:].tolist(), boundary=boundary)
    assert split(memoryview(column.data), offsets) == entries[first:]
    assert _split_slowly(memoryview(column.data), offsets) == entries[first:]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("places", [[0, 4], [-1, 2], [2, 1], [0, 3, 2], [1, 1 << 30], []])
def test_nothing_outside_of_the_data_is_split_off(places: list[int]):
    """Offsets that fall, or point outside of the bytes, or none at all."""
    with pytest.raises(IndexError, match="expected offsets into the data that never decrease"):
        split(memoryview(b"abc"), offsets_of(*places))


@pytest.mark.usefixtures("either_way")
def test_offsets_of_every_other_place_are_read_as_such():
    """A view with gaps, which C would read without them."""
    gaps = offsets_of(0, 9, 1, 9, 3)[::2]
    assert split(memoryview(b"abc"), gaps) == [b"a", b"bc"]
    assert rises(gaps)
    assert not rises(gaps[::-1])


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("places", "expected"),
    [([0], True), ([0, 0, 5], True), ([], False), ([1, 2], False), ([-1, 0], False), ([0, 5, 4, 6], False)],
)
def test_offsets_of_a_column_start_at_0_and_never_fall(places: list[int], expected: bool):
    """One offset is those of no entry; of none there is no column."""
    assert rises(offsets_of(*places)) is expected


def test_a_split_entry_is_held_by_its_list_alone():
    """Neither the buffer nor the offsets are kept, and an entry goes with the list."""
    data, offsets = b"abc" * 100, offsets_of(0, 300)
    before = sys.getrefcount(data), sys.getrefcount(offsets)
    for _ in range(100):
        (entry,) = split(memoryview(data), offsets)
        assert sys.getrefcount(entry) == 2
    assert (sys.getrefcount(data), sys.getrefcount(offsets)) == before
