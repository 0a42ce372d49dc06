"""What a command that changes something says when its output is closed, ends early or is full."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from tests.helpers.command_line import TIMEOUT_S, CommandLine

pytestmark = pytest.mark.process

CHANGES = [
    (["topics", "create", "made"], "made was created"),
    (["topics", "set", "there", "retention=1d"], "the settings of there were changed"),
    (["topics", "reopen", "there"], "there was reopened"),
    (["topics", "delete", "there", "--yes"], "there was deleted"),
    (["produce", "there", "--receipts"], "1 message was stored"),
]
"""Commands that change something and print, and what they have done by then."""

CLOSED = "cannot write standard output: it is closed"


def shell(tidelog: CommandLine, redirection: str, *arguments: str) -> tuple[int, str]:
    """Run a command with its output redirected by a shell; return its exit code and what it said."""
    run = subprocess.run(
        ["sh", "-c", f'echo line | "$@" {redirection}', "sh", sys.executable, "-m", "tidelog", *arguments],
        stderr=subprocess.PIPE,
        env=tidelog.environment(),
        timeout=TIMEOUT_S,
    )
    return run.returncode, run.stderr.decode()


def state(tidelog: CommandLine) -> list[dict[str, object]]:
    """All topics: names, numbers of messages and settings."""
    return [json.loads(line) for line in tidelog.run("topics", "list", "--output", "json").lines]


@pytest.mark.parametrize("command", [*(command for command, _ in CHANGES), ["bench", "produce", "--topic", "made"]])
def test_a_closed_output_prevents_the_change(tidelog: CommandLine, command: list[str]) -> None:
    """With standard output closed (`>&-`) nothing is changed, and one line says why."""
    tidelog.run("topics", "create", "there", "--partitions", "1", code=None)
    before = state(tidelog)
    assert shell(tidelog, ">&-", *command) == (1, f"tidelog: FILE_ERROR: {CLOSED}\n")
    assert state(tidelog) == before


@pytest.mark.parametrize(("command", "done"), CHANGES)
@pytest.mark.parametrize("output", ["table", "json"])
def test_a_full_disk_does_not_hide_the_change(tidelog: CommandLine, command: list[str], done: str, output: str) -> None:
    """Where the change was made before the output failed, the error says so."""
    tidelog.run("topics", "delete", "made", "--yes", code=None)
    tidelog.run("topics", "create", "there", "--partitions", "1", code=None)
    code, said = shell(tidelog, ">/dev/full", *command, "--output", output)
    expected = f"tidelog: FILE_ERROR: cannot write standard output: No space left on device ({done})\n"
    assert (code, said) == (1, expected)


def test_a_reader_of_receipts_that_stops_early_ends_producing(tidelog: CommandLine, topic: str) -> None:
    """Nothing more is sent, exit code 1, and one line that says how many messages are stored and where it stopped."""
    (tidelog.folder / "lines").write_bytes(b"line\n" * 200_000)
    with tidelog.start("produce", topic, "lines", "--receipts") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 1
        said = process.stderr.read().decode()
    match = re.fullmatch(
        r"tidelog: FILE_ERROR: cannot write standard output: whoever read it has gone; "
        r"stopped before line (\d+) of lines \((\d+) messages were stored\)\n",
        said,
    )
    assert match is not None, said
    assert int(match[1]) == int(match[2]) + 1
    (found,) = [each["messages"] for each in state(tidelog) if each["name"] == topic]
    assert found == int(match[2]) < 200_000


def test_a_reader_of_receipts_that_stops_when_all_is_sent_is_no_failure(tidelog: CommandLine, topic: str) -> None:
    """Where every line was stored, it is done, as the summary says."""
    with tidelog.start("produce", topic, "--receipts") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        process.stdin.write(b"a\nb\n")
        process.stdin.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr.read().decode() == f"stored 2 messages in {topic} (synced)\n"
