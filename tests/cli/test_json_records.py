"""The JSON form of messages: out and back (cases 2, 4, 25)."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.client.cli import json_records
from tidelog.client.cli.json_records import Record

NO_DEFAULTS = Record(value=None)

ODD_HEADERS = (
    ("x", b"1"),
    ("y", b""),
    ("x", b"2"),
    ("z", None),
    ("", b"e"),
    ("ключ🔑", b"\xff"),
)


def line_of(record: Record) -> bytes:
    """The line that consume would print of such a message, without where it is stored."""
    fields: dict[str, object] = {"priority": record.priority}
    fields |= json_records.bytes_fields("key", record.key)
    fields |= json_records.bytes_fields("value", record.value)
    fields["headers"] = json_records.header_list(record.headers)
    return json_records.encode_object(fields).encode()


@pytest.mark.parametrize("key", [None, b"", b"x"])
@pytest.mark.parametrize("value", [None, b"", b"x"])
def test_null_and_empty_stay_apart(key: bytes | None, value: bytes | None) -> None:
    """Case 2: None, empty and text come back as themselves, in every pair of key and value."""
    record = Record(value=value, key=key)
    assert json_records.decode_record(line_of(record), NO_DEFAULTS) == record


def test_null_and_empty_look_different() -> None:
    """Null is `null`, empty is `""`: a reader of the JSON can tell them apart too."""
    assert json_records.bytes_fields("value", None) == {"value": None}
    assert json_records.bytes_fields("value", b"") == {"value": ""}


def test_bytes_that_are_no_text_are_base64() -> None:
    """Bytes that are not UTF-8 get a field of their own name, so that text never needs guessing."""
    assert json_records.bytes_fields("value", b"\xff\x80") == {"value_base64": "/4A="}


def test_headers_keep_order_repeats_and_nulls() -> None:
    """Case 4: the odd list of headers survives as a list of pairs."""
    assert json_records.header_list(ODD_HEADERS) == [
        ["x", "1"],
        ["y", ""],
        ["x", "2"],
        ["z", None],
        ["", "e"],
        ["ключ🔑", {"base64": "/w=="}],
    ]
    record = Record(value=b"v", headers=ODD_HEADERS)
    assert json_records.decode_record(line_of(record), NO_DEFAULTS) == record


@given(
    st.none() | st.binary(),
    st.none() | st.binary(),
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | st.binary())),
    st.integers(0, 9),
)
def test_any_message_makes_the_round_trip(
    value: bytes | None, key: bytes | None, headers: list[tuple[str, bytes | None]], priority: int
) -> None:
    """Whatever a message holds, its line is one line and reads back equal."""
    record = Record(value=value, key=key, headers=tuple(headers), priority=priority)
    line = line_of(record)
    assert b"\n" not in line
    assert json_records.decode_record(line, NO_DEFAULTS) == record


def test_what_is_left_out_comes_from_the_flags() -> None:
    """A field the object does not have is taken from the command's flags; one it has wins, null included."""
    defaults = Record(value=None, key=b"flag", headers=(("h", b"1"),), priority=9)
    assert json_records.decode_record(b'{"value": "v"}', defaults) == Record(b"v", b"flag", (("h", b"1"),), 9)
    line = b'{"value": "v", "key": null, "headers": [], "priority": 0}'
    assert json_records.decode_record(line, defaults) == Record(b"v", None, (), 0)


def test_times_read_back_exactly() -> None:
    """Case 25: a timestamp is exact to the microsecond both ways."""
    assert json_records.time_fields("timestamp", 17417356146413) == {"timestamp": "1970-07-21T14:09:16.146413Z"}
    record = json_records.decode_record(b'{"value": "", "timestamp": "1970-07-21T14:09:16.146413Z"}', NO_DEFAULTS)
    assert record.timestamp == datetime(1970, 7, 21, 14, 9, 16, 146413, tzinfo=UTC)


def test_a_time_without_a_year_is_a_number() -> None:
    """A producer's timestamp outside the calendar is shown as whole microseconds."""
    assert json_records.time_fields("timestamp", 1 << 61) == {"timestamp_us": 1 << 61}


@pytest.mark.parametrize(
    "line",
    [
        b'{"value":"{\\"key\\":1,\\"key\\" :2}","key":"\\\\"}',
        b'{"value" :"", "key"\t: ": \\":" }',
        b'{"value":"\\":\\":","headers":[["value","1"],["value",{"base64":"/w=="}],["\\":",null]]}',
    ],
)
def test_what_only_looks_like_a_field_twice_is_read(line: bytes) -> None:
    """JSON within a value, spaces round a colon and repeated headers are no repeated fields."""
    fields = json.loads(line)
    record = json_records.decode_record(line, NO_DEFAULTS)
    assert (record.value, record.key) == (fields["value"].encode(), fields["key"].encode() if "key" in fields else None)


def test_where_a_message_was_is_not_read() -> None:
    """The fields that say where a message was stored do not stop its line from being produced again."""
    line = json.dumps(
        {"id": "t/1@2", "topic": "t", "offset": 2, "append_time": "2025-01-14T15:00:00Z", "partition": 1, "value": "v"}
    )
    assert json_records.decode_record(line.encode(), NO_DEFAULTS) == Record(b"v", partition=1)


def test_output_escapes_what_moves_a_terminal() -> None:
    """Case 39: JSON holds no raw control or direction character, on a terminal or not."""
    line = json_records.encode_object({"value": "\x1b[2J\x9b31m\u202e\U000e0041"})
    assert line == r'{"value":"\u001b[2J\u009b31m\u202e\udb40\udc41"}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "expected a JSON object"),
        (b"{", "expected a JSON object"),
        (b"\xff", "expected a JSON object"),
        (b"[1]", "found a list"),
        (b"[" * 100_000, "expected a JSON object"),
        (b'{"value": "a\\ud800b"}', "value: expected text that is valid Unicode, found a lone surrogate"),
        (b'{"value": "", "key": "\\udc00"}', "key: expected text that is valid Unicode, found a lone surrogate"),
        (b'{"value": "", "headers": [["\\ud800", ""]]}', "a header's name: expected text that is valid Unicode"),
        (b'{"value": "", "id": "\\ud800"}', "expected text that is valid Unicode, found a lone surrogate"),
        (b'["\\ud800"]', "expected text that is valid Unicode, found a lone surrogate"),
        (b'{"value": NaN}', "expected a JSON object"),
        (b'{"value": "a", "value": "b"}', "expected each field once, found 'value' twice"),
        (b'{"value" : "a","value"\t:"b"}', "expected each field once, found 'value' twice"),
        (b'{"value":"a","v\\u0061lue":"b"}', "expected each field once, found 'value' twice"),
        (b'{"value":"{\\"a\\": 1}","key":"\\\\","key":"b"}', "expected each field once, found 'key' twice"),
        (b'{"value":"","headers":[["a",{"base64":"","base64":"/w=="}]]}', "once, found 'base64' twice"),
        (b"null", "found null"),
        (b"{}", "expected a value"),
        (b'{"vlaue": "x"}', "found 'vlaue'"),
        (b'{"value": {"a": 1}}', "value: expected text or null, found an object"),
        (b'{"value": 1}', "value: expected text or null, found a number"),
        (b'{"value": "a", "value_base64": "YQ=="}', "found both"),
        (b'{"value_base64": "=="}', "value_base64: expected base64"),
        (b'{"value_base64": null}', "value_base64: expected base64, found null"),
        (b'{"value": "", "headers": {"a": "b"}}', "headers: expected pairs"),
        (b'{"value": "", "headers": [["a"]]}', "headers: expected pairs"),
        (b'{"value": "", "headers": [[null, "a"]]}', "a header's name"),
        (b'{"value": "", "headers": [["a", 1]]}', "a header's value: expected text or null"),
        (b'{"value": "", "priority": 10}', "priority: expected a whole number from 0 to 9, found 10"),
        (b'{"value": "", "priority": -1}', "found -1"),
        (b'{"value": "", "priority": true}', "found true or false"),
        (b'{"value": "", "priority": 4.5}', "found 4.5"),
        (b'{"value": "", "priority": "9"}', "found text"),
        (b'{"value": "", "priority": 50}', "found 50"),
        (b'{"value": "", "priority": null}', "found null"),
        (b'{"value": "", "timestamp": "2025-01-14T15:00:00"}', "with its zone"),
        (b'{"value": "", "timestamp": 5}', "timestamp: expected a time"),
        (
            b'{"value": "", "timestamp": "now"}',
            "^timestamp: expected a time such as 2025-01-14T15:00:00Z, found 'now'$",
        ),
        (b'{"value": "", "timestamp_us": 4611686018427387903}', "years 1 to 9999"),
        (b'{"value": "", "partition": -1}', "partition: expected a whole number"),
    ],
)
def test_a_wrong_object_says_what_is_wrong(line: bytes, message: str) -> None:
    """What is no message is refused with the field and the form; nothing is clamped, dropped or guessed."""
    with pytest.raises(ValueError, match=message):
        json_records.decode_record(line, NO_DEFAULTS)
