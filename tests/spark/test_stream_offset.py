"""What a checkpoint holds of a stream, and what is refused as one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.spark.errors import OptionError
from tidelog.spark.places import Place
from tidelog.spark.stream_offset import NEW, StreamOffset

A, B = Place("orders", 0), Place("orders", 1)
places = st.builds(Place, st.sampled_from(["a", "shop/b"]), st.integers(0, 12))
offsets = st.dictionaries(places, st.integers(0, (1 << 62) - 1), max_size=6)


def test_what_a_checkpoint_holds() -> None:
    """Offsets by topic and partition, when the topics were made, and where partitions begin, if any do."""
    found = StreamOffset({B: 40, A: 23}, {"orders": 17}, {B: 5}, {A: 3})
    assert found.to_json() == {
        "orders": {"0": 23, "1": 40},
        "@topics": {"orders": 17},
        "@epochs": {"orders": {"0": 3}},
        "@from": {"orders": {"1": 5}},
    }
    assert StreamOffset({A: 23}, {"orders": 17}).to_json() == {"orders": {"0": 23}, "@topics": {"orders": 17}}
    assert StreamOffset().to_json() == {"@topics": {}}
    assert (NEW.to_json(), StreamOffset.parse({}).is_new, StreamOffset.parse({"@topics": {}}).is_new) == (
        {},
        True,
        False,
    )


def test_where_a_batch_begins() -> None:
    """Where the last one ended, unless its end says otherwise."""
    before, after = StreamOffset({A: 3, B: 9}), StreamOffset({A: 7, B: 5}, {}, {B: 2})
    assert [after.start_of(place, before) for place in (A, B)] == [3, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"orders": 3},
        {"orders": {"x": 3}},
        {"@topics": []},
        {"@topics": {"orders": "now"}},
        {"@topics": {}, "@from": {"orders": {"0": -1}}},
        {"@from": 3},
        {"@epochs": {"orders": 3}},
    ],
    ids=str,
)
def test_another_sources_checkpoint(wrong: dict[str, object]) -> None:
    """Is refused in one line, and is not a stream that has not begun."""
    with pytest.raises(OptionError, match="in the checkpoint, found") as caught:
        StreamOffset.parse(wrong)
    assert "\n" not in str(caught.value)


@given(offsets, st.dictionaries(st.sampled_from(["a", "shop/b"]), st.integers(0, 1 << 60)), offsets, offsets)
def test_a_checkpoint_is_read_as_it_was_written(
    ends: dict[Place, int], made: dict[str, int], begins: dict[Place, int], epochs: dict[Place, int]
) -> None:
    """By way of text; equal offsets are equal text, by which Spark compares."""
    found = StreamOffset(ends, made, begins, epochs)
    text = json.dumps(found.to_json())
    assert StreamOffset.parse(json.loads(text)) == found
    shuffled = StreamOffset(dict(reversed(ends.items())), dict(reversed(made.items())), begins, epochs)
    assert json.dumps(shuffled.to_json()) == text
