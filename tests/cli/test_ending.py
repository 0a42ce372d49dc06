"""How long verbs end: by Ctrl-C, by a reader that stops, by --timeout at a broker that hangs."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import TIMEOUT_S, CommandLine, open_terminal
from tests.helpers.open_files import open_files

pytestmark = pytest.mark.process

MANY = 400_000
"""Messages whose output fills any pipe."""


@pytest.fixture(scope="module")
def large(shared_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A topic that takes a while to print."""
    tidelog = CommandLine(shared_broker.url, tmp_path_factory.mktemp("large"))
    lines = b"".join(b"%d\n" % number for number in range(MANY))
    tidelog.run("produce", "large", "--partition", "0", stdin=lines)
    return "large"


def segment_of(broker: BrokerProcess) -> Path:
    """The largest stored file."""
    match = re.search(r"'--data-dir', '([^']+)'", repr(broker.process.args))
    assert match is not None
    return max(Path(match[1]).rglob("messages/*.log"), key=lambda path: path.stat().st_blocks)


LONG = [
    ["consume", "large"],
    ["consume", "large", "--output", "json"],
    ["replay", "large", "--from", "earliest", "--to", "latest"],
    ["replay", "large", "--from", "-1h", "--to", "now", "--output", "json"],
]


@pytest.mark.parametrize("command", [*LONG, ["dump"]], ids=" ".join)
@pytest.mark.usefixtures("large")
def test_ctrl_c_ends_any_output(tidelog: CommandLine, shared_broker: BrokerProcess, command: list[str]) -> None:
    """Ctrl-C in the middle of a long output ends with 130 and not a word."""
    arguments = [*command, str(segment_of(shared_broker))] if command == ["dump"] else command
    with tidelog.start(*arguments) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (130, b"")


@pytest.mark.parametrize("command", [*LONG, ["dump"], ["--help"]], ids=" ".join)
@pytest.mark.usefixtures("large")
def test_head_is_silent_everywhere(tidelog: CommandLine, shared_broker: BrokerProcess, command: list[str]) -> None:
    """Whoever stops reading any output (`| head`) ends the command with 0 and not a word."""
    arguments = [*command]
    if command == ["dump"]:
        arguments.append(str(segment_of(shared_broker)))
    with tidelog.start(*arguments) as process:
        assert process.stdout is not None
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[CommandLine]:
    """A broker that has a topic, and then stops in its tracks."""
    with BrokerProcess(tmp_path / "data") as broker:
        tidelog = CommandLine(broker.url, tmp_path)
        tidelog.run("produce", "there", stdin=b"line\n")
        broker.pause()
        yield tidelog
        broker.resume()


def test_every_verb_gives_up_after_its_timeout(hung: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """--timeout ends every command at a broker that hangs, with 3 and one line that says how long it waited."""
    monkeypatch.setattr("tidelog.client.cli.consume.LEAST_PATIENCE_S", 0.3)  # instead of 3 s, twice
    commands = [
        ["ping"],
        ["get", "there/0@0"],
        ["topics", "list"],
        ["topics", "describe", "there"],
        ["topics", "create", "other"],
        ["topics", "set", "there", "retention=1d"],
        ["topics", "reopen", "there"],
        ["topics", "delete", "there", "--yes"],
        ["produce", "there", "/dev/null"],
        ["consume", "there"],
        ["tail", "there"],
        ["replay", "there", "--from", "-1h", "--to", "now"],
        ["bench", "produce"],
        ["bench", "consume"],
        ["bench", "latency"],
    ]
    for command in commands:
        run = hung.run(*command, "--timeout", "200ms", code=3)
        assert (run.out, run.error.startswith("tidelog: TIMED_OUT: ")) == (b"", True), command


def on_error_terminal(tidelog: CommandLine, *arguments: str) -> tuple[int, bytes, bytes]:
    """Run a command whose standard error alone is a terminal; return exit code, output and what was shown."""
    ours, theirs = open_terminal()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidelog", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=theirs,
        cwd=tidelog.folder,
        env=tidelog.environment({"TERM": "xterm"}),
    )
    os.close(theirs)
    out, shown = bytearray(), bytearray()
    assert process.stdout is not None
    waiting = {process.stdout.fileno(): out, ours: shown}
    with process:
        while waiting:
            ready, _, _ = select.select(list(waiting), [], [], TIMEOUT_S)
            assert ready, "the command hangs"
            for descriptor in ready:
                try:
                    piece = os.read(descriptor, 65536)
                except OSError:  # the command closed its terminal
                    piece = b""
                waiting[descriptor] += piece
                if not piece:
                    del waiting[descriptor]
    os.close(ours)
    return process.wait(TIMEOUT_S), bytes(out), bytes(shown)


@pytest.mark.parametrize("verb", [["consume", "large"], ["replay", "large", "--from", "earliest", "--to", "latest"]])
@pytest.mark.usefixtures("large")
def test_a_bar_beside_piped_output_leaves_it_exact(tidelog: CommandLine, verb: list[str]) -> None:
    """Where only standard error is a terminal, a bar may be shown there; the output stays what it is."""
    code, out, shown = on_error_terminal(tidelog, *verb)
    assert (code, out.count(b"\n")) == (0, MANY)
    assert out.startswith(b"0\n1\n2\n")
    assert not shown or b"large" in shown


def test_a_short_run_on_a_terminal_shows_its_summary_alone(tidelog: CommandLine, topic: str) -> None:
    """Producing a small file on a terminal shows no bar, and the summary."""
    (tidelog.folder / "small").write_bytes(b"a\nb\n")
    code, _, shown = on_error_terminal(tidelog, "produce", topic, "small")
    assert (code, shown) == (0, f"stored 2 messages in {topic} (synced)\r\n".encode())


@pytest.mark.parametrize(
    "command",
    [["ping"], ["topics", "list"], ["get", "there/0@0"], ["produce", "there"], ["consume", "there"], ["tail", "there"]],
    ids=" ".join,
)
def test_ctrl_c_does_not_wait_for_a_broker_that_hangs(hung: CommandLine, command: list[str]) -> None:
    """Ctrl-C ends a command that waits for an answer with 130 at once, long before its timeout."""
    with hung.start(*command, "--timeout", "7d") as process:
        address = hung.url.removeprefix("tidelog://")
        wait_until_connected(process.pid, int(address.rpartition(":")[2]))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(b"", timeout=TIMEOUT_S)
        assert (process.returncode, out) == (130, b"")
        assert err in (b"", b"stored 0 messages in there\n")


def wait_until_connected(pid: int, port: int) -> None:
    """Return when a process has a socket connected to a port."""
    wanted = f":{port:04X} 01"
    for _ in range(3_000):
        sockets = open_files(pid)
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            if f"{fields[2][-5:]} {fields[3]}" == wanted and f"socket:[{fields[9]}]" in sockets:
                return
        select.select([], [], [], 0.01)
    raise AssertionError("the command never connected")
