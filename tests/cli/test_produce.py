"""What `tidelog produce` makes of its input, seen through `tidelog consume` (cases 2, 4, 23, 25, 28)."""

from __future__ import annotations

import json
import os
from typing import cast

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process

Fields = dict[str, object]


def stored(tidelog: CommandLine, topic: str) -> list[Fields]:
    """Every message of a topic as consume's JSON says it."""
    run = tidelog.run("consume", topic, "--output", "json", code=None)
    assert run.code in (0, 3)
    return [cast(Fields, json.loads(line)) for line in run.lines]


def test_lines_are_messages_byte_for_byte(tidelog: CommandLine, topic: str) -> None:
    """Case 28: a CR, a NUL, an empty line and a last line without newline arrive as they were."""
    tidelog.run("produce", topic, stdin=b"a\r\nb\n\nnul\x00 \xff\xef\xbb\xbf\nc")
    assert tidelog.run("consume", topic).out == b"a\r\nb\n\nnul\x00 \xff\xef\xbb\xbf\nc\n"


def test_a_byte_order_mark_stays(tidelog: CommandLine, topic: str) -> None:
    """Case 28: a byte order mark is part of the first line."""
    tidelog.run("produce", topic, stdin=b"\xef\xbb\xbffirst\n")
    assert tidelog.run("consume", topic).out == b"\xef\xbb\xbffirst\n"


def test_an_empty_input_is_done(tidelog: CommandLine, topic: str) -> None:
    """Case 28: an empty file holds no message, which is no error."""
    assert tidelog.run("produce", topic).error == f"stored 0 messages in {topic}"
    assert tidelog.run("consume", topic, code=3).out == b""


def test_the_summary_says_what_is_promised(tidelog: CommandLine, topic: str) -> None:
    """The summary on standard error counts the messages and says how durable they are."""
    assert tidelog.run("produce", topic, stdin=b"a\nb\n").error == f"stored 2 messages in {topic} (synced)"


def test_a_file_is_read_and_named(tidelog: CommandLine, topic: str) -> None:
    """FILE is read instead of standard input, whatever bytes its name holds."""
    name = b"odd \xff.txt"
    (tidelog.folder / name.decode("utf-8", "surrogateescape")).write_bytes(b"from a file\n")
    tidelog.run("produce", topic, os.fsdecode(name))
    assert tidelog.run("consume", topic).out == b"from a file\n"


@pytest.mark.parametrize(("name", "reason"), [("nosuch.txt", "No such file"), (".", "Is a directory")])
def test_a_file_that_cannot_be_read_is_one_line(tidelog: CommandLine, topic: str, name: str, reason: str) -> None:
    """A file that is not there, or is a folder, ends with 1 and its name."""
    error = tidelog.run("produce", topic, name, code=1).error
    assert error.startswith(f"tidelog: FILE_ERROR: cannot read {name}: {reason}")


def test_flags_go_with_every_message(tidelog: CommandLine, topic: str) -> None:
    """Case 23: key, headers and priority come from the flags; values may begin with a dash, a header may repeat."""
    tidelog.run(
        "produce", topic, "--key", "-x", "--header", "k=-v", "--header", "k=", "--header", "=e", "--priority", "9",
        stdin=b"a\nb\n",
    )  # fmt: skip
    assert [(m["key"], m["headers"], m["priority"], m["value"]) for m in stored(tidelog, topic)] == [
        ("-x", [["k", "-v"], ["k", ""], ["", "e"]], 9, "a"),
        ("-x", [["k", "-v"], ["k", ""], ["", "e"]], 9, "b"),
    ]


@pytest.mark.parametrize("stdin", [b"", b"line\n"])
@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("tidelog.x=1", 'header names that begin with "tidelog." are the broker\'s own'),
        ("n" * 70_000 + "=1", "expected header names of at most"),
    ],
    ids=["reserved", "long"],
)
def test_a_header_that_nobody_may_send_is_wrong_usage(
    tidelog: CommandLine, topic: str, stdin: bytes, header: str, message: str
) -> None:
    """Case 17: a --header that can never be sent is refused before a line is read, so also for an empty input."""
    error = tidelog.run("produce", topic, "--header", header, stdin=stdin, code=2).error
    assert error.startswith(f"tidelog: USAGE: produce: --header: {message}")


def test_a_partition_that_is_not_there_is_said_before_a_line_is_read(tidelog: CommandLine, topic: str) -> None:
    """--partition is looked up first: one that is not there is an error also for an empty input."""
    for stdin in (b"", b"line\n"):
        error = tidelog.run("produce", topic, "--partition", "99", stdin=stdin, code=1).error
        assert error == f"tidelog: UNKNOWN_PARTITION: expected a partition of {topic} from 0 to 0, found 99"
    tidelog.run("produce", topic, "--partition", "0", stdin=b"line\n")
    assert tidelog.run("consume", topic).out == b"line\n"


def test_a_partition_of_a_topic_yet_to_be_made_is_no_error(tidelog: CommandLine) -> None:
    """Produce makes its topic: that it is not there yet says nothing against --partition 0."""
    tidelog.run("produce", "made-by-produce", "--partition", "0", stdin=b"line\n")
    assert [m["id"] for m in stored(tidelog, "made-by-produce")] == ["made-by-produce/0@0"]


def test_a_key_is_the_bytes_that_were_typed(tidelog: CommandLine, topic: str) -> None:
    """Case 28: a key that is not UTF-8, and an emoji under LANG=C, arrive as their bytes."""
    environment = {"LANG": "C", "LC_ALL": "C"}
    tidelog.run_process("produce", topic, "--key", b"\xff\x80", stdin=b"a\n", environment=environment)
    tidelog.run_process("produce", topic, "--key", "🔑".encode(), stdin=b"b\n", environment=environment)
    first, second = stored(tidelog, topic)
    assert first["key_base64"] == "/4A="
    assert second["key"] == "🔑"


def test_a_separator_cuts_keys_off(tidelog: CommandLine, topic: str) -> None:
    """With --key-separator a line is a key, the first separator, and a value that may hold more of them."""
    tidelog.run("produce", topic, "--key-separator", "::", stdin=b"k1::v1\n::\nk3::a::b\n")
    assert [(m["key"], m["value"]) for m in stored(tidelog, topic)] == [("k1", "v1"), ("", ""), ("k3", "a::b")]


def test_a_line_without_separator_is_named(tidelog: CommandLine, topic: str) -> None:
    """A line without its separator stops the command; what stood before it is stored, nothing after it."""
    error = tidelog.run("produce", topic, "--key-separator", "=", stdin=b"a=1\nb=2\nc\nd=4\n", code=1).error
    assert error.startswith("tidelog: INVALID_INPUT: line 3 of standard input: expected a key")
    assert error.endswith("(2 messages were stored)")
    assert [m["value"] for m in stored(tidelog, topic)] == ["1", "2"]


def test_a_line_that_is_too_long_is_named(tidelog: CommandLine, topic: str) -> None:
    """Case 28: a line of 20 MiB ends with 1 and its number; the lines before it are stored."""
    error = tidelog.run("produce", topic, stdin=b"first\nsecond\n" + b"x" * (20 << 20) + b"\nlast\n", code=1).error
    assert error.startswith("tidelog: MESSAGE_TOO_LARGE: line 3 of standard input: ")
    assert error.endswith("(2 messages were stored)")
    assert tidelog.run("consume", topic).out == b"first\nsecond\n"


def test_a_line_above_the_topics_own_limit_is_named(tidelog: CommandLine) -> None:
    """A topic's smaller max_message_bytes is held line by line: key, value and headers together."""
    tidelog.run("topics", "create", "small-messages", "--partitions", "3", "--set", "max_message_bytes=100")
    lines = [b"%03d" % n for n in range(300)]
    lines[257] = b"y" * 99
    error = tidelog.run("produce", "small-messages", "--header", "h=1", stdin=b"\n".join(lines), code=1).error
    assert error.startswith("tidelog: MESSAGE_TOO_LARGE: line 258 of standard input: expected messages of at most 100 ")
    assert error.endswith("(257 messages were stored)")
    assert sorted(tidelog.run("consume", "small-messages").lines) == lines[:257]


def test_a_message_of_exactly_the_limit_is_stored(tidelog: CommandLine, topic: str) -> None:
    """16 MiB, the largest message there is, passes through a pipe unchanged."""
    value = bytes(range(11, 256)) * (1 + (16 << 20) // 245)
    value = value[: 16 << 20]
    tidelog.run("produce", topic, stdin=value)
    assert tidelog.run("consume", topic).out == value + b"\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"vlaue": "x"}', "expected the fields"),
        (b'{"value": {"a": 1}}', "value: expected text or null, found an object"),
        (b"not json", "expected a JSON object"),
        (b'{"value": "", "headers": [["tidelog.redrives", "99"]]}', "tidelog."),
        (b'{"value": "", "timestamp": "2025-01-14T15:00:00"}', "with its zone"),
    ],
)
def test_a_bad_json_line_is_named(tidelog: CommandLine, topic: str, line: bytes, message: str) -> None:
    """A line that is no message is named with what is wrong; the one before it is stored, the one after it is not."""
    lines = b'{"value": "good"}\n\n' + line + b'\n{"value": "later"}\n'
    error = tidelog.run("produce", topic, "--input", "json", stdin=lines, code=1).error
    assert "line 3 of standard input" in error
    assert message in error
    assert error.endswith("(1 message was stored)")
    assert tidelog.run("consume", topic).out == b"good\n"


def test_json_out_is_json_in(tidelog: CommandLine, topic: str) -> None:
    """Cases 2, 4, 25: what consume prints, produce reads: null and empty, bytes, headers, priority, time to the us."""
    messages: list[Fields] = [
        {"key": key, "value": value, "headers": [], "priority": 4}
        for key in (None, "", "x")
        for value in (None, "", "multi\nline\t\u001b[2J\u202e")
    ]
    messages.append(
        {
            "key_base64": "/4A=",
            "value_base64": "AP/+",
            "headers": [["x", "1"], ["y", ""], ["x", "2"], ["z", None], ["", "e"], ["ключ🔑", {"base64": "/w=="}]],
            "priority": 9,
            "timestamp": "1970-07-21T14:09:16.146413Z",
        }
    )
    source = "".join(json.dumps(each) + "\n" for each in messages).encode()
    tidelog.run("produce", topic, "--input", "json", stdin=source)
    first = tidelog.run("consume", topic, "--output", "json").out
    tidelog.run("topics", "create", f"{topic}-copy", "--partitions", "1")
    tidelog.run("produce", f"{topic}-copy", "--input", "json", stdin=first)
    told = ("key", "key_base64", "value", "value_base64", "headers", "priority", "timestamp")
    copies = [{k: v for k, v in m.items() if k in told} for m in stored(tidelog, f"{topic}-copy")]
    originals = [{k: v for k, v in cast(Fields, json.loads(line)).items() if k in told} for line in first.splitlines()]
    assert sorted(map(json.dumps, copies)) == sorted(map(json.dumps, originals))
    for message in messages:
        assert [copy for copy in copies if message.items() <= copy.items()], message


def test_partitions_are_kept_only_when_asked_for(tidelog: CommandLine) -> None:
    """The partition of a JSON line counts with --keep-partition alone; --partition sends everything to one."""
    tidelog.run("topics", "create", "kept", "--partitions", "3")
    lines = b"".join(b'{"value": "%d", "partition": %d}\n' % (n, n % 3) for n in range(6))
    tidelog.run("produce", "kept", "--input", "json", "--keep-partition", stdin=lines)
    tidelog.run("produce", "kept", "--input", "json", "--partition", "1", stdin=b'{"value": "p1", "partition": 2}\n')
    found = {(m["value"], m["partition"]) for m in stored(tidelog, "kept")}
    assert found == {(str(n), n % 3) for n in range(6)} | {("p1", 1)}


def test_a_partition_of_a_line_that_is_not_there_is_said(tidelog: CommandLine, topic: str) -> None:
    """A line for a partition the topic does not have stores nothing and says which there are."""
    line = b'{"value": "v", "partition": 3}\n'
    error = tidelog.run("produce", topic, "--input", "json", "--keep-partition", stdin=line, code=1).error
    assert "expected 0 to 0" in error
    assert error.endswith("(0 messages were stored)")


def test_receipts_are_ids_that_get_takes(tidelog: CommandLine, topic: str) -> None:
    """--receipts prints the id of each message in the order of the lines; `get` finds the message by it."""
    assert tidelog.run("produce", topic, "--receipts", stdin=b"a\nb\n").lines == [
        f"{topic}/0@0".encode(),
        f"{topic}/0@1".encode(),
    ]
    assert json.loads(tidelog.run("get", f"{topic}/0@1", "--output", "json").out)["value"] == "b"


def test_receipts_as_json(tidelog: CommandLine, topic: str) -> None:
    """With --output json a receipt says where, when and how durable, and the summary is JSON too."""
    run = tidelog.run("produce", topic, "--receipts", "--output", "json", stdin=b"a\n")
    receipt = cast(Fields, json.loads(run.out))
    assert str(receipt.pop("append_time")).endswith("Z")
    assert receipt == {
        "id": f"{topic}/0@0",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "durability": "synced",
        "duplicate": False,
    }
    assert json.loads(run.err) == {"topic": topic, "stored": 1, "duplicates": 0, "durability": "synced"}


def test_producing_makes_the_topic(tidelog: CommandLine) -> None:
    """A topic that does not exist is made by producing to it, as the broker allows by default."""
    tidelog.run("produce", "made-by-producing", stdin=b"v\n")
    assert tidelog.run("consume", "made-by-producing").out == b"v\n"


def test_many_headers_and_large_ones(tidelog: CommandLine, topic: str) -> None:
    """Case 4: 10,000 headers, and one of 1 MiB, come back; one more is refused with the line and the limit."""
    many = [[f"h{n % 7}", str(n)] for n in range(10_000)]
    large = [["large", "x" * (1 << 20)]]
    lines = [json.dumps({"value": "v", "headers": headers}) for headers in (many, large, [*many, ["one", "more"]])]
    error = tidelog.run("produce", topic, "--input", "json", stdin="\n".join(lines).encode(), code=1).error
    assert "line 3 of standard input" in error
    assert "at most 10000 headers" in error
    assert [message["headers"] for message in stored(tidelog, topic)] == [many, large]
