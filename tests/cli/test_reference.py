"""Help and reference: every verb and flag is in docs/cli.md, each has its help, and the examples work as typed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.helpers.archiving_process import archiving_config
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine
from tests.helpers.stored_data import store

from tidelog import Client
from tidelog.__main__ import main
from tidelog.broker.cli import serve
from tidelog.broker.config import Config

ROOT = Path(__file__).parent.parent.parent

EXAMPLES = re.findall(r"^\$ (.*)$", (ROOT / "docs/cli.md").read_text(), re.M)
ONLINE = sorted(
    (line for line in EXAMPLES if not re.match(r"tidelog (serve|config|check|dump|spark) ", line)),
    # What the others are about is made first. Deleting is last, because the ids in the other examples are of that topic;
    # before it comes the archive, which needs a topic of small segments.
    key=lambda line: (" delete " in line, line.startswith("tidelog archive "), " create " not in line),
)
OFFLINE = [line for line in EXAMPLES if re.match(r"tidelog (config|check|dump) ", line)]

NOTHING_CAME = {
    "tidelog consume orders --follow --timeout 5m": ["--timeout", "100ms"],
    "tidelog tail orders --output json": ["--timeout", "100ms"],
    "tidelog replay orders --from 2025-01-14T15:00:00Z --to 2025-01-14T16:00:00Z": [],
    "tidelog dlq purge orders --filter to=-7d --yes": [],
}
"""Examples that end with 3 here, and what to add so that they end soon."""

ENDS_BY_SILENCE = "tidelog consume orders --group billing --mode queue --follow"
"""Ends with 3 too, when what there is was taken."""

SILENT = re.compile(r"tidelog (produce (?!.*--receipts)|settle )|.*\| tidelog produce (?!.*--receipts)")
"""Examples that print nothing."""


def test_the_reference_is_what_the_commands_say() -> None:
    """docs/cli.md is generated from the help of the commands: all that can be typed is there, and nothing more."""
    run = subprocess.run(
        [sys.executable, str(ROOT / "docs/generate_cli.py"), "--check"], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr


def test_every_section_ends_with_an_example() -> None:
    """Each command shows how it is typed."""
    sections = re.findall(r"^## tidelog (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "docs/cli.md").read_text(), re.M | re.S)
    assert len(sections) >= 19
    assert [title for title, body in sections if not re.search(r"^\$ .*tidelog ", body, re.M)] == []


def shell(reader: CommandLine, line: str, more: list[str], code: int) -> bytes:
    """Run a command line of one command or several in a pipe; the last one, with more flags, ends with this code."""
    *before, last = [shlex.split(part) for part in line.split(" | ")]
    passed = b""
    for words in before:
        is_ours = words[0] == "tidelog"
        passed = reader.run(*words[1:]).out if is_ours else subprocess.check_output(words, cwd=reader.folder)
    return reader.run(*last[1:], *more, stdin=passed, code=code).out


@pytest.mark.process
def test_the_examples_work(tmp_path: Path) -> None:
    """Each example does what it says to a real broker, one after the other as a reader types them."""
    for name in ("orders.txt", "mails.txt"):
        (tmp_path / name).write_text("first\nsecond\n")
    store_url = f"file://{tmp_path}/store"
    config = archiving_config(tmp_path, store_url)
    with BrokerProcess(tmp_path / "data", arguments=["--config", str(config)]) as broker:
        reader = CommandLine(broker.url, tmp_path)
        for line in ONLINE:
            prepare(reader, line)
            more = ["--messages", "100"] if line.startswith("tidelog bench ") else NOTHING_CAME.get(line, [])
            if line == ENDS_BY_SILENCE:
                more = ["--timeout", "1s"]
            typed = line.replace("broker-1:9440", broker.url).replace("s3://bucket/tidelog", store_url)
            if "$TOKEN" in line:
                typed = typed.replace("$TOKEN", leased(reader))
            out = shell(reader, typed, more, code=3 if line in {*NOTHING_CAME, ENDS_BY_SILENCE} else 0)
            assert (out == b"") == (line in NOTHING_CAME or SILENT.match(line) is not None), line


def leased(reader: CommandLine) -> str:
    """Return the token of a message of its own."""
    reader.run("produce", "orders", stdin=b"by hand\n")
    command = ("consume", "orders", "--group", "by-hand", "--mode", "queue", "--settle", "none", "--limit", "1")
    return reader.run(*command).out.partition(b"\t")[0].decode()


def prepare(reader: CommandLine, line: str) -> None:
    """Store the messages that an example is about."""
    if "45678" in line:
        lines = b"".join(b"%d\n" % number for number in range(45_700))
        reader.run("produce", "orders", "--partition", "2", stdin=lines)
    if "--topic refunds" in line:
        reader.run("topics", "create", "refunds")
    if line.startswith("tidelog consume orders --group "):
        reader.run("produce", "orders", stdin=b"bill\n")
    if line.startswith("tidelog groups messages billing "):
        reader.run("produce", "orders", stdin=b"bill\n")
        token = reader.run("consume", "orders", "--group", "billing", "--settle", "none", "--limit", "1").out
        reader.run("settle", token.partition(b"\t")[0].decode(), "nack", "--delay", "1h")
    if line == "tidelog dlq list orders":
        give_up(reader, 8, "card refused")
    if "error=Timeout" in line:
        give_up(reader, 1, "Timeout: 5 s")
    if line == "tidelog archive list orders":
        reader.run("topics", "delete", "orders", "--yes")
        reader.run("topics", "create", "orders", "--partitions", "6", "--set", "segment_bytes=64KiB")
        for number in range(5):
            reader.run("produce", "orders", "--partition", "2", stdin=b"%d" % number * 40_000)
        reader.run("archive", "run", "orders")
    if line.startswith("tidelog outcome "):
        reader.run("produce", "orders", "--dedup-id", shlex.split(line)[4], stdin=b"paid\n")


def give_up(reader: CommandLine, count: int, error: str) -> None:
    """Have a group refuse messages of partition 2, and wait for their copies."""
    with Client(reader.url) as client:
        client.groups.create("clerks", "orders", start="latest", exist_ok=True)
        before = client.dead_letters.count("orders")
        client.produce_many("orders", [b"bad"] * count, headers=[{"source": "web"}] * count, partition=2)
        with client.queue("orders", "clerks") as queue:
            for _ in range(count):
                [message] = queue.receive(timeout=10)
                message.reject(error)
        for _ in range(1_000):
            if client.dead_letters.count("orders") == before + count:
                return
            threading.Event().wait(0.01)
    raise AssertionError("the copies never came")


@pytest.mark.parametrize("line", OFFLINE)
def test_an_example_about_files_works(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each example reads a configuration or what a broker stored."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidelog.yaml").write_text("log: {retention: 30d}\n")
    store(tmp_path / "data", [b"a"], batches=1)
    arguments = shlex.split(line.replace("/var/lib/tidelog", "data"))[1:]
    assert main(arguments) == 0, capfd.readouterr().err


def test_an_example_of_serve_would_serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example is a configuration that a broker takes: the address of all interfaces too, as it is typed."""
    served: list[tuple[str, str]] = []

    def run(config: Config, *, in_memory: bool) -> int:
        served.append((config.broker.data_dir, str(config.broker.listen)))
        return int(in_memory)

    monkeypatch.setattr(serve, "_run", run)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tidelog.yaml").write_text("broker: {listen: '127.0.0.1:0', data_dir: there}\n")
    lines = [line for line in EXAMPLES if line.startswith("tidelog serve ")]
    assert [main(shlex.split(line)[1:]) for line in lines] == [0] * len(lines)
    assert served == [
        ("/var/lib/tidelog", "127.0.0.1:9440"),
        ("/var/lib/tidelog", "0.0.0.0:9440"),
        ("there", "127.0.0.1:0"),
    ]


@pytest.mark.parametrize("word", ["schedule", "at ", "trace", "queue"])
def test_what_is_not_there_yet_is_not_promised(word: str) -> None:
    """Neither the reference nor, since it is made of it, the help names what this version does not do."""
    assert not re.search(rf"--{word}|tidelog {word}", (ROOT / "docs/cli.md").read_text())


@pytest.mark.parametrize("line", ["schedule list t", "trace t/0@0", "top"])
def test_a_verb_of_a_later_version_is_one_line(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A verb that is not there is wrong usage, said in one line."""
    assert main(line.split()) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"no such command '{line.split()[0]}'" in err
