"""The broker's own log: one event is one line, and nothing in it can pretend otherwise."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Iterator

import pytest

from tidelog.broker.logging import configure, escape, get_logger, silence

NASTY = "a\nb\r\x1b]52;c;ZWNobw==\x07\x1b[2J\x7f\x9b31m\u202e\u2028 =\"'\\ ключ"


@pytest.fixture(autouse=True)
def silent_again() -> Iterator[None]:
    """Leave the log as other tests find it."""
    yield
    silence()


def logged(level: str, style: str) -> io.StringIO:
    """Configure the log, and return what it writes to."""
    stream = io.StringIO()
    configure(level, style, stream)
    return stream


def test_console_is_key_value() -> None:
    """Time, level, event, then the fields in order; plain values stand without quotes."""
    stream = logged("info", "console")
    get_logger().warning("damage found", topic_id=3, folder="partitions/3-0", note="two words")
    line = stream.getvalue()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z warning damage found topic_id=3 folder=partitions/3-0"
        r' note="two words"\n',
        line,
    )


def test_json_is_one_object_a_line() -> None:
    """The same as an object with stable keys."""
    stream = logged("info", "json")
    get_logger().info("serving", partitions=6)
    event = json.loads(stream.getvalue())
    assert list(event) == ["time", "level", "event", "partitions"]
    assert (event["level"], event["event"], event["partitions"]) == ("info", "serving", 6)


@pytest.mark.parametrize("style", ["console", "json"])
def test_control_and_direction_characters_are_escaped(style: str) -> None:
    """What a client calls itself can neither forge a line nor drive a terminal, and is not lost."""
    stream = logged("info", style)
    get_logger().info("connection ended", client=NASTY)
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert line.isascii()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", line)
    value = json.loads(line)["client"] if style == "json" else json.loads(line.split("client=", 1)[1])
    assert value == NASTY


@pytest.mark.parametrize("style", ["console", "json"])
def test_a_traceback_is_part_of_its_line(style: str) -> None:
    """A bug's traceback does not spread over lines."""
    stream = logged("error", style)
    try:
        raise ZeroDivisionError("x\ny")
    except ZeroDivisionError:
        get_logger().exception("handler failed", api="FETCH")
    line = stream.getvalue()
    assert line.count("\n") == 1
    assert "ZeroDivisionError" in line
    assert "test_logging.py" in line


@pytest.mark.parametrize(("level", "seen"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_decides_what_is_seen(level: str, seen: int) -> None:
    """Events below the level leave no line."""
    stream = logged(level, "console")
    for method in (get_logger().debug, get_logger().info, get_logger().warning, get_logger().error):
        method("event")
    assert stream.getvalue().count("\n") == seen


def test_nothing_is_seen_unless_configured(capsys: pytest.CaptureFixture[str]) -> None:
    """A broker inside another program prints nothing."""
    silence()
    get_logger().error("event")
    assert capsys.readouterr() == ("", "")


def test_escape_keeps_plain_text_and_quotes() -> None:
    """Lines on standard error stay readable: only what is dangerous is changed."""
    assert escape('no topic "ordrs"; did you mean "orders"?') == 'no topic "ordrs"; did you mean "orders"?'
    assert escape("a\x1b[2J\nb\x7f") == "a\\u001b[2J\\nb\\u007f"


def test_a_log_that_nobody_reads_is_dropped() -> None:
    """When the other end of stderr is gone the broker goes on without a log."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        configure("info", "console", stream)
        get_logger().error("into a broken pipe")
        get_logger().error("again")
        with contextlib.suppress(BrokenPipeError):
            stream.close()
    get_logger().error("into a closed stream")
