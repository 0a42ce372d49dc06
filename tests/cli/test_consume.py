"""`tidelog consume`, `tail` and `replay`: ranges, limits, output and how they end."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from tests.helpers.command_line import TIMEOUT_S, CommandLine

pytestmark = pytest.mark.process

TIDELOG = [sys.executable, "-m", "tidelog"]


def fill(tidelog: CommandLine, topic: str, count: int) -> None:
    """Produce the numbers from 0 up, one a message."""
    tidelog.run("produce", topic, stdin=b"".join(b"%d\n" % n for n in range(count)))


def numbers(*found: int) -> list[bytes]:
    """The lines that such messages are printed as."""
    return [b"%d" % n for n in found]


def read_line(process: subprocess.Popen[bytes]) -> bytes:
    """Read the next line of a running command, which must come."""
    assert process.stdout is not None
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], TIMEOUT_S)
        assert ready, f"no further output after {line!r}"
        piece = os.read(process.stdout.fileno(), 1)
        assert piece, f"the output ended after {line!r}"
        line += piece
    return line


def feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    """Write to a running command's standard input, which stays open."""
    assert process.stdin is not None
    process.stdin.write(data)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ([], numbers(0, 1, 2, 3, 4)),
        (["--limit", "2"], numbers(0, 1)),
        (["--limit", "9"], numbers(0, 1, 2, 3, 4)),
        (["--from", "3"], numbers(3, 4)),
        (["--from", "1", "--to", "3"], numbers(1, 2)),
        (["--to", "2"], numbers(0, 1)),
        (["--from", "earliest", "--to", "latest"], numbers(0, 1, 2, 3, 4)),
        (["--from", "-1h", "--to", "now"], numbers(0, 1, 2, 3, 4)),
        (["--from=-1h"], numbers(0, 1, 2, 3, 4)),
        (["--from", "2001-01-01T00:00:00Z", "--to", "2099-01-01T00:00:00+01:00"], numbers(0, 1, 2, 3, 4)),
        (["--follow", "--from", "earliest", "--limit", "5"], numbers(0, 1, 2, 3, 4)),
        (["--timeout", "30s"], numbers(0, 1, 2, 3, 4)),
    ],
)
def test_consume_prints_the_range(tidelog: CommandLine, topic: str, flags: list[str], expected: list[bytes]) -> None:
    """Case 23: whatever the bounds are given as, exactly the messages between them are printed."""
    fill(tidelog, topic, 5)
    assert tidelog.run("consume", topic, *flags).lines == expected


@pytest.mark.parametrize("flags", [["--from", "latest"], ["--from", "now"], ["--to", "-1h"], ["--to", "0"]])
def test_an_empty_range_is_nothing_found(tidelog: CommandLine, topic: str, flags: list[str]) -> None:
    """A range without a message prints nothing and ends with 3."""
    fill(tidelog, topic, 3)
    run = tidelog.run("consume", topic, *flags, code=3)
    assert run.out == b""
    assert run.error == f"tidelog: NOT_FOUND: no message of {topic} is in that range"


@pytest.mark.parametrize(
    "bounds",
    [("now", "-1h"), ("2", "1"), ("2025-01-14T15:00:00Z", "2025-01-14T15:00:00+01:00"), ("latest", "earliest")],
)
def test_a_range_written_backwards_is_wrong_usage(tidelog: CommandLine, topic: str, bounds: tuple[str, str]) -> None:
    """A range that ends before it begins is a slip, which an empty answer would hide."""
    for command in ("consume", "replay"):
        error = tidelog.run(command, topic, "--from", bounds[0], "--to", bounds[1], code=2).error
        assert "expected --from to be before --to" in error


def test_an_unknown_topic_suggests_the_nearest(tidelog: CommandLine) -> None:
    """Reading a topic that does not exist makes none; it says what the name may have been."""
    tidelog.run("topics", "create", "orders")
    for command in (["consume", "ordrs"], ["tail", "ordrs"], ["replay", "ordrs", "--from", "-1h", "--to", "now"]):
        error = tidelog.run(*command, code=1).error
        address = tidelog.url.removeprefix("tidelog://")
        assert error == f'tidelog: UNKNOWN_TOPIC: no topic "ordrs" on {address}; did you mean "orders"?'
    assert b"ordrs" not in tidelog.run("topics", "list").out


def test_an_offset_needs_its_partition(tidelog: CommandLine) -> None:
    """A bare number is an offset of one partition: with several it is wrong usage without --partition."""
    tidelog.run("topics", "create", "three", "--partitions", "3")
    tidelog.run("produce", "three", "--partition", "2", stdin=b"a\nb\nc\n")
    error = tidelog.run("consume", "three", "--from", "1", code=2).error
    assert "an offset needs --partition: three has 3 partitions" in error
    assert tidelog.run("consume", "three", "--from", "1", "--partition", "2").lines == [b"b", b"c"]
    assert tidelog.run("consume", "three", "--partition", "0", code=3).out == b""
    assert "UNKNOWN_PARTITION" in tidelog.run("consume", "three", "--partition", "3", code=1).error


def test_an_offset_past_the_end(tidelog: CommandLine, topic: str) -> None:
    """A --to past the end is the end, and nothing comes after it; a --from past it is an error, followed or not."""
    fill(tidelog, topic, 3)
    assert tidelog.run("consume", topic, "--from", "1", "--to", "9").lines == numbers(1, 2)
    for flags in ([], ["--to", "9"]):
        assert "NOT_FOUND" in tidelog.run("consume", topic, "--from", "3", *flags, code=3).error
    for flags in ([], ["--to", "9999"], ["--to", "latest"], ["--follow", "--timeout", "2s"]):
        error = tidelog.run("consume", topic, "--from", "9", *flags, code=1).error
        assert error.startswith("tidelog: OFFSET_OUT_OF_RANGE: ")


def test_a_range_that_is_not_there_is_said_in_words_of_the_command_line(tidelog: CommandLine, topic: str) -> None:
    """A replay past the end says what there is, and advises nothing that only a program could write."""
    fill(tidelog, topic, 3)
    error = tidelog.run("replay", topic, "--from", "1", "--to", "9", code=1).error
    assert error == f"tidelog: RANGE_NOT_AVAILABLE: {topic}/0: expected offsets 1 to 9, found 0 to 3"


def test_json_has_every_field(tidelog: CommandLine, topic: str) -> None:
    """--output json prints one object a message, under the same names every time."""
    tidelog.run("produce", topic, "--key", "k", "--header", "a=1", "--priority", "7", stdin=b"v\n")
    message = cast("dict[str, object]", json.loads(tidelog.run("consume", topic, "--output", "json").out))
    for name in ("timestamp", "append_time"):
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(message.pop(name)))
    assert message == {
        "id": f"{topic}/0@0",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "priority": 7,
        "key": "k",
        "value": "v",
        "headers": [["a", "1"]],
    }


def test_a_replayed_range_is_exact_and_repeatable(tidelog: CommandLine, topic: str) -> None:
    """Case 25: [t, t + 1 us) of one append time yields exactly that batch, and --to is exclusive."""
    for value in (b"first\n", b"second\n", b"third\n"):
        tidelog.run("produce", topic, stdin=value)
    lines = tidelog.run("consume", topic, "--output", "json").lines
    second = str(json.loads(lines[1])["append_time"])
    moment = datetime.fromisoformat(second)
    after = (moment + timedelta(microseconds=1)).astimezone(UTC).isoformat()
    for _ in range(2):
        assert tidelog.run("replay", topic, "--from", second, "--to", after).lines == [b"second"]
    assert tidelog.run("replay", topic, "--from", "earliest", "--to", second).lines == [b"first"]
    assert tidelog.run("replay", topic, "--from", second, "--to", "latest", "--limit", "1").lines == [b"second"]
    assert tidelog.run("replay", topic, "--from", "-1h", "--to", "-30m", code=3).out == b""


def test_following_sees_a_line_while_its_producer_types(tidelog: CommandLine, topic: str) -> None:
    """Case 28: a line is stored and seen while the producer's standard input stays open."""
    with (
        tidelog.start("consume", topic, "--follow", "--from", "earliest") as reader,
        tidelog.start("produce", topic) as writer,
    ):
        feed(writer, b"first\nsec")
        assert read_line(reader) == b"first\n"
        assert writer.poll() is None
        feed(writer, b"ond\n")
        assert read_line(reader) == b"second\n"


def test_tail_begins_at_the_end(tidelog: CommandLine, topic: str) -> None:
    """`tail` prints what comes after it began, and nothing older."""
    fill(tidelog, topic, 3)
    with tidelog.start("tail", topic, "--limit", "1") as reader:
        ticks = 0
        while reader.poll() is None and ticks < 200:
            tidelog.run("produce", topic, stdin=b"new %d\n" % ticks)
            ticks += 1
            assert reader.stdout is not None
            if select.select([reader.stdout], [], [], 0.05)[0]:
                break
        assert read_line(reader).startswith(b"new ")
        assert reader.wait(TIMEOUT_S) == 0


def test_a_silence_ends_with_timed_out(tidelog: CommandLine, topic: str) -> None:
    """--timeout ends a follower that hears nothing with 3 and says so; what came before is printed."""
    fill(tidelog, topic, 2)
    run = tidelog.run("consume", topic, "--follow", "--from", "earliest", "--timeout", "200ms", code=3)
    assert run.lines == numbers(0, 1)
    assert run.error == "tidelog: TIMED_OUT: expected a message within 0.2 s, found none"
    run = tidelog.run("tail", topic, "--limit", "1", "--timeout", "200ms", code=3)
    assert run.out == b""


def test_ctrl_c_ends_a_follower(tidelog: CommandLine, topic: str) -> None:
    """Ctrl-C ends with 130 and without a traceback."""
    fill(tidelog, topic, 1)
    with tidelog.start("consume", topic, "--follow", "--from", "earliest") as reader:
        assert read_line(reader) == b"0\n"
        reader.send_signal(signal.SIGINT)
        _, err = reader.communicate(timeout=TIMEOUT_S)
        assert (reader.returncode, err) == (130, b"")


def test_ctrl_c_ends_a_producer_with_its_summary(tidelog: CommandLine, topic: str) -> None:
    """Ctrl-C while producing ends with 130 and says how much is stored."""
    with tidelog.start("produce", topic, "--receipts") as writer:
        feed(writer, b"a\n")
        assert read_line(writer) == f"{topic}/0@0\n".encode()
        writer.send_signal(signal.SIGINT)
        _, err = writer.communicate(timeout=TIMEOUT_S)
        assert (writer.returncode, err) == (130, f"stored 1 message in {topic} (synced)\n".encode())


@pytest.mark.parametrize("flags", [["--output", "json"], ["--follow", "--from", "earliest"]])
def test_head_is_silent(tidelog: CommandLine, topic: str, flags: list[str]) -> None:
    """A reader that stops early (`| head`) ends the command with 0 and not a word."""
    fill(tidelog, topic, 50_000)
    with tidelog.start("consume", topic, *flags) as reader:
        assert read_line(reader)
        assert reader.stdout is not None
        reader.stdout.close()
        assert reader.wait(TIMEOUT_S) == 0
        assert reader.stderr is not None
        assert reader.stderr.read() == b""


def test_a_follower_notices_that_nobody_reads(tidelog: CommandLine, topic: str) -> None:
    """A follower whose reader has gone ends by itself, without waiting for a message that may never come."""
    fill(tidelog, topic, 1)
    with tidelog.start("consume", topic, "--follow", "--from", "earliest") as reader:
        assert read_line(reader) == b"0\n"
        assert reader.stdout is not None
        reader.stdout.close()
        assert reader.wait(TIMEOUT_S) == 0


def test_a_full_disk_is_an_error(tidelog: CommandLine, topic: str) -> None:
    """Output that cannot be written ends with 1 and the reason, never with a silent 0."""
    fill(tidelog, topic, 1)
    with Path("/dev/full").open("wb") as full:
        run = subprocess.run(
            [*TIDELOG, "consume", topic],
            stdout=full,
            stderr=subprocess.PIPE,
            env=tidelog.environment(),
            timeout=TIMEOUT_S,
        )
    assert run.returncode == 1
    assert run.stderr == b"tidelog: FILE_ERROR: cannot write standard output: No space left on device\n"


@pytest.mark.parametrize(
    ("closing", "command", "message"),
    [
        (">&-", "consume", "cannot write standard output: it is closed"),
        ("<&-", "produce", "cannot read standard input: it is closed"),
    ],
)
def test_a_closed_stream_is_an_error(
    tidelog: CommandLine, topic: str, closing: str, command: str, message: str
) -> None:
    """A standard stream that the shell closed is said in one line."""
    run = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "sh", *TIDELOG, command, topic],
        stderr=subprocess.PIPE,
        env=tidelog.environment(),
        timeout=TIMEOUT_S,
    )
    assert run.returncode == 1
    assert run.stderr.decode() == f"tidelog: FILE_ERROR: {message}\n"
