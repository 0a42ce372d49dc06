"""`tidelog produce TOPIC FILE...`: several inputs, one after the other (case 28)."""

from __future__ import annotations

import os
import threading

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process


def test_files_are_sent_in_order(tidelog: CommandLine, topic: str) -> None:
    """Case 28: two FILEs are two inputs; the last line of one, without a newline, does not run into the next."""
    (tidelog.folder / "one").write_bytes(b"a\r\nb\n\nc")
    (tidelog.folder / "two").write_bytes(b"\xef\xbb\xbfd\n")
    run = tidelog.run_process("produce", topic, "one", "two")
    assert run.error == f"stored 5 messages in {topic} (synced)"
    assert tidelog.run_process("consume", topic).lines == [b"a\r", b"b", b"", b"c", b"\xef\xbb\xbfd"]


def test_standard_input_stands_where_it_is_named(tidelog: CommandLine, topic: str) -> None:
    """`-` among the files is standard input, in its place."""
    (tidelog.folder / "one").write_bytes(b"one\n")
    tidelog.run("produce", topic, "one", "-", "one", stdin=b"typed\n")
    assert tidelog.run("consume", topic).lines == [b"one", b"typed", b"one"]


def test_lines_are_counted_in_each_file(tidelog: CommandLine, topic: str) -> None:
    """A bad line is named by its file and its number there; what stands before it in all files is stored."""
    (tidelog.folder / "one").write_bytes(b"a=1\nb=2\n")
    (tidelog.folder / "two").write_bytes(b"c=3\nbad\nd=4\n")
    error = tidelog.run("produce", topic, "--key-separator", "=", "one", "two", "one", code=1).error
    assert error.startswith("tidelog: INVALID_INPUT: line 2 of two: expected a key")
    assert error.endswith("(3 messages were stored)")
    assert tidelog.run("consume", topic).lines == [b"1", b"2", b"3"]


@pytest.mark.parametrize("missing", ["nosuch", "."])
def test_nothing_is_sent_when_a_file_is_missing(tidelog: CommandLine, topic: str, missing: str) -> None:
    """A file that cannot be read is said before the first line of another is sent."""
    (tidelog.folder / "one").write_bytes(b"a\n")
    error = tidelog.run("produce", topic, "one", missing, code=1).error
    assert error.startswith(f"tidelog: FILE_ERROR: cannot read {missing}: ")
    assert tidelog.run("consume", topic, code=3).out == b""


def test_a_named_pipe_is_a_file(tidelog: CommandLine, topic: str) -> None:
    """What a shell gives for `<(...)` is read like a file: opened once, and to its end."""
    path = tidelog.folder / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"through\na pipe\n",))
    writer.start()
    tidelog.run("produce", topic, "pipe")
    writer.join(30)
    assert tidelog.run("consume", topic).lines == [b"through", b"a pipe"]
