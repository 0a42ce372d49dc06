"""`tidelog produce --dedup-id`: a message that is stored once, however often the command is repeated."""

from __future__ import annotations

import json

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process


def test_a_repeated_command_stores_once(tidelog: CommandLine) -> None:
    """The same id stores the message once; the repeat gets the first one's receipt, and both say which it was."""
    command = ("produce", "once", "--dedup-id", "payment-17", "--receipts", "--output", "json")
    first = tidelog.run_process(*command, stdin=b"paid\n")
    second = tidelog.run_process(*command, stdin=b"paid\n")
    assert [json.loads(run.out)["duplicate"] for run in (first, second)] == [False, True]
    assert json.loads(first.out)["id"] == json.loads(second.out)["id"]
    assert [json.loads(run.err)["stored"] for run in (first, second)] == [1, 0]
    assert [json.loads(run.err)["duplicates"] for run in (first, second)] == [0, 1]
    assert tidelog.run("consume", "once").out == b"paid\n"


def test_the_summary_says_what_was_there(tidelog: CommandLine) -> None:
    """The summary for people tells a repeat from a message."""
    tidelog.run("produce", "told", "--dedup-id", "a", stdin=b"x\n")
    assert tidelog.run("produce", "told", "--dedup-id", "a", stdin=b"x\n").error == (
        "stored 0 messages in told (synced); 1 stored before"
    )


@pytest.mark.parametrize("stdin", [b"one\ntwo\n", b"one\ntwo\nthree"])
def test_a_second_message_is_refused(tidelog: CommandLine, topic: str, stdin: bytes) -> None:
    """An id is for one message: a second line would be its duplicate and vanish, so it is an error that names it."""
    error = tidelog.run("produce", topic, "--dedup-id", "a", stdin=stdin, code=1).error
    assert error == (
        "tidelog: INVALID_INPUT: line 2 of standard input: expected one message in all, because of --dedup-id "
        "(1 message was stored)"
    )
    assert tidelog.run("consume", topic).out == b"one\n"


def test_a_second_file_is_a_second_message(tidelog: CommandLine, topic: str) -> None:
    """The one message is one over all files."""
    for name in ("one", "two"):
        (tidelog.folder / name).write_bytes(name.encode())
    error = tidelog.run("produce", topic, "--dedup-id", "a", "one", "two", code=1).error
    assert "line 1 of two: expected one message in all" in error


def test_each_json_line_may_have_its_own(tidelog: CommandLine, topic: str) -> None:
    """With JSON every line may have a dedup_id, as text or base64: an import can be repeated as a whole."""
    lines = [{"value": str(n), "dedup_id": f"row-{n}"} for n in range(5)]
    lines += [{"value": "bytes", "dedup_id_base64": "/w=="}, {"value": "none", "dedup_id": None}, {"value": "plain"}]
    source = "\n".join(map(json.dumps, lines)).encode()
    tidelog.run("produce", topic, "--input", "json", stdin=source)
    again = tidelog.run("produce", topic, "--input", "json", stdin=source)
    assert again.error == f"stored 2 messages in {topic} (synced); 6 stored before"
    assert tidelog.run("consume", topic).lines == [*(b"%d" % n for n in range(5)), b"bytes", *([b"none", b"plain"] * 2)]


def test_an_id_is_any_bytes_but_none(tidelog: CommandLine, topic: str) -> None:
    """An id that is not UTF-8 is taken as its bytes; an empty one is refused, as a flag and as a field."""
    for _ in range(2):
        tidelog.run_process("produce", topic, "--dedup-id", b"\xff\x80", stdin=b"x\n")
    assert tidelog.run("consume", topic).out == b"x\n"
    assert "--dedup-id" in tidelog.run("produce", topic, "--dedup-id", "", stdin=b"x\n", code=2).error
    error = tidelog.run("produce", topic, "--input", "json", stdin=b'{"value": "", "dedup_id": ""}', code=1).error
    assert "dedup_id: expected at least one byte" in error
