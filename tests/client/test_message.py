"""Messages, headers and receipts as plain values."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import numpy as np
import pytest

from tidelog import Headers, Message, Receipt, ReceiptBatch

MOMENT = datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)


def message(**changes: object) -> Message:
    """Return a message with some fields set."""
    fields = {"topic": "t", "partition": 2, "offset": 5, "key": None, "value": b"", "timestamp_us": 17417356146413}
    return Message(**{**fields, "append_time_us": 0, **changes})  # type: ignore[arg-type]


def test_a_message_is_true_and_says_what_it_is() -> None:
    """Also one without a byte in it."""
    empty = message(value=b"")
    assert empty
    assert message(value=None)
    assert repr(empty).startswith("Message(topic='t', partition=2, offset=5, key=None, value=b''")


def test_ids_carry_namespace_and_count_where_they_say_something() -> None:
    """The default namespace and the first topic of a name are left out."""
    assert message().id == "t/2@5"
    assert message(topic="shop/t").id == "shop/t/2@5"
    assert message(topic_count=2).id == "t~2/2@5"
    assert message(headers=Headers([("tidelog.origin_id", b"t/0@1")])).origin_id == "t/0@1"
    assert message().origin_id == "t/2@5"


def test_the_bytes_of_a_value_are_its_raw_form() -> None:
    """With a codec or without: null is None."""
    assert (message(value=b"x").raw, message(value=b"").raw, message(value=None).raw) == (b"x", b"", None)


def test_a_repr_of_a_message_is_short() -> None:
    """Of long keys and values the beginning and the size; what is out of the ordinary is shown."""
    big = message(value=b"x" * 1000, priority=9, topic_count=2, headers=Headers([("a", None)]))
    assert repr(big) == (
        f"Message(topic='t', partition=2, offset=5, key=None, value={b'x' * 64!r}... (1,000 bytes),"
        " timestamp=1970-07-21T14:09:16.146413+00:00, priority=9, headers=Headers([('a', None)]), topic_count=2)"
    )
    assert "timestamp_us=2305843009213693952" in repr(message(timestamp_us=1 << 61))


def test_times_are_exact_and_aware() -> None:
    """Microseconds survive; a time beyond the calendar is an OverflowError, its microseconds are still there."""
    assert message().timestamp == MOMENT
    assert message(append_time_us=-1).append_time == datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    far = message(timestamp_us=1 << 61)
    with pytest.raises(OverflowError):
        far.timestamp  # noqa: B018
    assert far.timestamp_us == 1 << 61


def test_a_message_pickles_as_data() -> None:
    """What arrives in another process equals what was sent, headers included."""
    sent = message(key=b"k", value=b"v", headers=Headers([("a", b"1"), ("a", None)]), priority=9)
    copy = pickle.loads(pickle.dumps(sent))
    assert copy == sent
    assert copy.headers.getall("a") == [b"1", None]
    assert hash(copy) == hash(sent)


def test_headers_are_a_mapping_that_keeps_repeats() -> None:
    """First value by name, all by getall, pairs in order; whole names only."""
    headers = Headers([("x", b"1"), ("y", None), ("x", b"2")])
    assert (headers["x"], headers["y"], headers.get("z"), headers.get("z", b"d")) == (b"1", None, None, b"d")
    assert headers.getall("x") == [b"1", b"2"]
    assert headers.getall("z") == []
    assert ("x" in headers, "X" in headers, "" in headers) == (True, False, False)
    assert (list(headers), len(headers)) == (["x", "y", "x"], 3)
    assert list(headers.items()) == [("x", b"1"), ("y", None), ("x", b"2")]
    assert ("x", b"2") in headers.items()
    with pytest.raises(KeyError):
        headers["z"]
    assert headers == Headers([("x", b"1"), ("y", None), ("x", b"2")]) == [("x", b"1"), ("y", None), ("x", b"2")]
    assert headers != {"x": b"1", "y": None}
    assert Headers([("a", b"1")]) == {"a": b"1"}
    assert not Headers()
    assert repr(headers) == "Headers([('x', b'1'), ('y', None), ('x', b'2')])"


def test_receipts_by_row_and_by_column() -> None:
    """A batch of receipts is a sequence of them over its columns."""
    batch = ReceiptBatch(
        "t",
        topic_count=1,
        durability="synced",
        offsets=np.array([5, 6, 7], dtype=np.int64),
        partitions=np.array([0, 1, 0], dtype=np.int32),
        append_times_us=np.array([1, 2, 3], dtype=np.int64),
        duplicates=np.array([False, True, False]),
    )
    assert [receipt.id for receipt in batch] == ["t/0@5", "t/1@6", "t/0@7"]
    assert batch[1] == Receipt("t", 1, 6, 2, "synced", True)
    assert batch[-1].offset == 7
    assert [receipt.offset for receipt in batch[1:]] == [6, 7]
    assert repr(batch) == "<ReceiptBatch of 3 messages in t, synced>"
    with pytest.raises(IndexError):
        batch[3]
    assert pickle.loads(pickle.dumps(batch[0])) == batch[0]
    assert Receipt("t", 0, None, 0, "synced", schedule_id="t/0@s17").id == "t/0@s17"


def test_views_of_headers_keep_repeats() -> None:
    """Names, values and pairs in order; as sets they are what they hold, however often."""
    headers = Headers([("a", b"1"), ("a", b"2"), ("b", None)])
    assert list(headers.keys()) == ["a", "a", "b"]
    assert list(headers.values()) == [b"1", b"2", None]
    assert (b"2" in headers.values(), b"3" in headers.values(), len(headers.values())) == (True, False, 3)
    assert headers.keys() == {"a", "b"}
    assert headers.keys() <= {"a", "b"}
    assert not headers.keys() > {"a", "b"}
    assert headers.keys() < {"a", "b", "c"}
    assert headers.keys() & {"a", "c"} == {"a"}
    assert Headers([("a", b"1"), ("a", b"1")]).items() == {("a", b"1")}
    assert dict(headers) == {"a": b"1", "b": None}


def test_headers_are_made_of_what_headers_may_be() -> None:
    """A mapping, pairs, other headers; text becomes bytes, and anything else is refused in words."""
    expected = Headers([("ab", b"1"), ("c", None)])
    assert Headers({"ab": b"1", "c": None}) == Headers([["ab", bytearray(b"1")], ("c", None)]) == expected
    assert Headers(expected) == Headers({"ab": "1", "c": None}) == expected
    assert Headers({"ab": b"1"})["ab"] == b"1"
    for wrong in ("ab", b"ab", 5, None, ["ab"], [("a", b"1", b"2")], [(b"a", b"1")], {"a": 5}, {"a": np.int64(5)}):
        with pytest.raises(TypeError, match=r"headers.*: expected"):
            Headers(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"headers\['a'\]: expected text that UTF-8 can hold"):
        Headers({"a": "\ud800"})


def test_headers_equal_only_what_holds_the_same_pairs() -> None:
    """Empty ones equal no empty text; equal tuples hash alike."""
    assert Headers() != ""
    assert Headers() != b""
    assert Headers() == [] == Headers()
    assert Headers() == {}
    pairs = (("x", b"1"), ("x", b"2"))
    assert Headers(pairs) == pairs
    assert hash(Headers(pairs)) == hash(pairs)
