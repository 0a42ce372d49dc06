"""What the command line does on a terminal: escaping, asking, progress (case 39)."""

from __future__ import annotations

import re

import pytest
from tests.helpers.command_line import CommandLine

pytestmark = pytest.mark.process

HOSTILE = b"\x1b]52;c;ZWNobw==\x07 \x1b[2J \x9b31m over\rwritten nul\x00 bidi\xe2\x80\xae end"
SHOWN = rb"\x1b]52;c;ZWNobw==\x07 \x1b[2J \x9b31m over\rwritten nul\x00 bidi\u202e end"


@pytest.mark.parametrize("command", [["consume"], ["replay", "--from", "earliest", "--to", "latest"]])
def test_a_terminal_shows_values_escaped(tidelog: CommandLine, topic: str, command: list[str]) -> None:
    """Case 39: no payload reaches the terminal as a control sequence; in a pipe it is byte-exact."""
    tidelog.run("produce", topic, stdin=HOSTILE)
    with tidelog.on_terminal(command[0], topic, *command[1:]) as terminal:
        assert terminal.finish() == 0
        assert terminal.shown == SHOWN + b"\r\n"
    assert tidelog.run(command[0], topic, *command[1:]).out == HOSTILE + b"\n"


@pytest.mark.parametrize("settle", ["ack", "none"])
def test_a_terminal_shows_messages_of_a_queue_escaped(tidelog: CommandLine, topic: str, settle: str) -> None:
    """Case 39: nor does a message of a queue group, nor the error that its consumer told of it."""
    tidelog.run("produce", topic, stdin=HOSTILE)
    group = f"{topic}-{settle}"
    command = ("consume", topic, "--group", group, "--mode", "queue", "--limit", "1", "--settle", settle)
    with tidelog.on_terminal(*command) as terminal:
        assert terminal.finish() == 0
        token, _, shown = terminal.shown.rpartition(b"\t")
        assert shown == SHOWN + b"\r\n"
    if settle == "ack":
        assert token == b""
        return
    tidelog.run("settle", token.decode(), "nack", "--error", "\x1b[2J\u202e", "--delay", "0s")
    assert rb"the last failed: \x1b[2J\u202e" in tidelog.run("get", f"{topic}/0@0").out
    assert tidelog.run(*command).out.partition(b"\t")[2] == HOSTILE + b"\n"


def test_json_is_escaped_everywhere(tidelog: CommandLine, topic: str) -> None:
    """Case 39: JSON escapes control and direction characters, on a terminal and in a pipe alike."""
    value = HOSTILE.replace(b"\x9b", "\x9b".encode())
    tidelog.run("produce", topic, stdin=value)
    piped = tidelog.run("consume", topic, "--output", "json").out
    assert b"\\u001b]52;c;ZWNobw==\\u0007 \\u001b[2J \\u009b31m over\\rwritten nul\\u0000 bidi\\u202e end" in piped
    with tidelog.on_terminal("consume", topic, "--output", "json") as terminal:
        assert terminal.finish() == 0
        assert terminal.shown == piped.replace(b"\n", b"\r\n")


def test_get_shows_every_part_escaped(tidelog: CommandLine, topic: str) -> None:
    """Case 39: key and headers are as untrusted as the value."""
    line = b'{"value": "v\\u001b[2J", "key": "k\\u001b[2J", "headers": [["n\\u001b[2J", "h\\u202e"]]}'
    tidelog.run("produce", topic, "--input", "json", stdin=line)
    shown = tidelog.run("get", f"{topic}/0@0").out
    assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", shown)
    for text in (rb"k\x1b[2J", rb"n\x1b[2J: h\u202e", rb"v\x1b[2J"):
        assert text in shown


def test_deleting_asks(tidelog: CommandLine, topic: str) -> None:
    """`topics delete` asks on a terminal; anything but yes changes nothing, yes deletes."""
    for answer, code in ((b"n\n", 1), (b"\x04", 1), (b"yes\n", 0)):
        with tidelog.on_terminal("topics", "delete", topic) as terminal:
            terminal.wait_for(rb"\[y/N\] $")
            terminal.type(answer)
            assert terminal.finish() == code
            if code:
                assert b"tidelog: ABORTED: nothing was changed" in terminal.shown
                tidelog.run("topics", "describe", topic)
    tidelog.run("topics", "describe", topic, code=1)


def test_ctrl_c_at_the_question_changes_nothing(tidelog: CommandLine, topic: str) -> None:
    """Ctrl-C at the question ends with 130 and leaves the topic."""
    with tidelog.on_terminal("topics", "delete", topic) as terminal:
        terminal.wait_for(rb"\[y/N\] $")
        terminal.interrupt()
        assert terminal.finish() == 130
    tidelog.run("topics", "describe", topic)


def test_nobody_is_asked_without_a_terminal(tidelog: CommandLine, topic: str) -> None:
    """Without a terminal to ask on, a missing --yes is wrong usage, also when the output is one."""
    assert "add --yes" in tidelog.run("topics", "delete", topic, stdin=b"y\n", code=2).error
    with tidelog.on_terminal("topics", "delete", topic, stdin_too=False) as terminal:
        assert terminal.finish() == 2
    tidelog.run("topics", "delete", topic, "--yes")
    tidelog.run("topics", "describe", topic, code=1)


def test_a_line_typed_at_a_terminal_is_sent(tidelog: CommandLine, topic: str) -> None:
    """Lines typed at a terminal are messages; Ctrl-D ends the input."""
    with tidelog.on_terminal("produce", topic, "--receipts") as terminal:
        terminal.type(b"typed\n")
        terminal.wait_for(f"{topic}/0@0".encode())
        terminal.type(b"\x04")
        assert terminal.finish() == 0
    assert tidelog.run("consume", topic).out == b"typed\n"


def test_errors_are_escaped(tidelog: CommandLine) -> None:
    """Case 39: a file name with control characters stays one printable line in the error."""
    error = tidelog.run("produce", "t", "no\x1b[2J\nsuch", code=1).error
    assert error.startswith(r"tidelog: FILE_ERROR: cannot read no\x1b[2J\nsuch: No such file")
