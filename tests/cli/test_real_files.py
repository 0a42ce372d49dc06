"""Real data through the command line and back, byte for byte, also after kill -9."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import cast

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine

pytestmark = [pytest.mark.process, pytest.mark.crash]


def package_folder(name: str) -> Path:
    """Where an installed package keeps its files."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


DATASETS = sorted((package_folder("vega_datasets") / "_data").glob("*.json"))
BINARIES = [Path("/usr/bin/env"), next(package_folder("xxhash").glob("*.so"))]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker to be killed; what one test stored must survive the kills of all that follow."""
    with BrokerProcess(tmp_path_factory.mktemp("killed") / "data") as broker:
        yield broker


@pytest.fixture
def mine(broker: BrokerProcess, tmp_path: Path) -> CommandLine:
    """The command line against it."""
    return CommandLine(broker.url, tmp_path)


def test_datasets_survive_kill_9(broker: BrokerProcess, mine: CommandLine) -> None:
    """Every JSON dataset, a message a line, is there byte for byte after kill -9, in its order."""
    assert len(DATASETS) >= 5
    written = b""
    for path in DATASETS:
        mine.run("produce", "datasets", "--partition", "0", "--header", f"file={path.name}", str(path))
        data = path.read_bytes()
        written += data if data.endswith(b"\n") else data + b"\n"
    broker.restart()
    assert mine.run("consume", "datasets").out == written
    assert mine.run("replay", "datasets", "--from", "-1h", "--to", "now").out == written


def test_records_of_a_dataset_keep_their_keys(broker: BrokerProcess, mine: CommandLine) -> None:
    """Records sent with keys over six partitions all come back, each under its key, after kill -9."""
    cars = next(path for path in DATASETS if path.name == "cars.json")
    records = cast("list[dict[str, object]]", json.loads(cars.read_bytes()))
    lines = [json.dumps({"key": str(each["Name"]), "value": json.dumps(each)}) for each in records]
    mine.run("produce", "cars", "--input", "json", stdin="\n".join(lines).encode())
    broker.restart()
    found = [json.loads(line) for line in mine.run("consume", "cars", "--output", "json").lines]
    assert len(found) == len(records)
    assert sorted((m["key"], m["value"]) for m in found) == sorted(
        (line["key"], line["value"]) for line in map(json.loads, lines)
    )
    partitions: dict[str, set[int]] = {}
    for message in found:
        partitions.setdefault(message["key"], set()).add(message["partition"])
    assert all(len(where) == 1 for where in partitions.values())


@pytest.mark.parametrize("path", BINARIES, ids=lambda path: path.suffix or path.name)
def test_a_program_survives_as_lines(broker: BrokerProcess, mine: CommandLine, path: Path) -> None:
    """A binary file cut at its newlines comes back as the same bytes after kill -9."""
    data, topic = path.read_bytes(), f"program-{BINARIES.index(path)}"
    mine.run("produce", topic, "--partition", "0", str(path))
    broker.restart()
    back = mine.run("consume", topic).out
    assert hashlib.sha256(back).digest() == hashlib.sha256(data if data.endswith(b"\n") else data + b"\n").digest()


def test_a_program_survives_as_one_message(broker: BrokerProcess, mine: CommandLine) -> None:
    """A whole binary file as one value travels as base64 in JSON and is the same file after kill -9."""
    lines = [json.dumps({"key": str(p), "value_base64": base64.b64encode(p.read_bytes()).decode()}) for p in BINARIES]
    mine.run("produce", "files", "--input", "json", stdin="\n".join(lines).encode())
    broker.restart()
    found = [json.loads(line) for line in mine.run("consume", "files", "--output", "json").lines]
    assert {m["key"]: base64.b64decode(m["value_base64"]) for m in found} == {str(p): p.read_bytes() for p in BINARIES}


def test_a_range_of_time_replays_the_same_after_kill_9(broker: BrokerProcess, mine: CommandLine) -> None:
    """The range between two append times holds the same messages before a kill, after it, and after more came."""
    for name in ("one", "two", "three", "four"):
        mine.run("produce", "ranged", "--partition", "0", stdin=f"{name}\n".encode())
    times = [json.loads(line)["append_time"] for line in mine.run("consume", "ranged", "--output", "json").lines]
    command = ("replay", "ranged", "--from", times[1], "--to", times[3])
    assert mine.run(*command).out == b"two\nthree\n"
    broker.restart()
    mine.run("produce", "ranged", "--partition", "0", stdin=b"five\n")
    assert mine.run(*command).out == b"two\nthree\n"


def test_what_was_acknowledged_before_a_kill_is_there(broker: BrokerProcess, mine: CommandLine) -> None:
    """Each receipt printed before the broker was killed in mid stream is a message that get finds afterwards."""
    with mine.start("produce", "killed", "--receipts", "--timeout", "1s") as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for number in range(20):
            writer.stdin.write(b"message %d\n" % number)
        acknowledged = [writer.stdout.readline().decode().strip() for _ in range(20)]
        broker.kill()
        writer.stdin.write(b"never\n")
        writer.stdin.close()
        assert writer.wait(30) != 0
    broker.start()
    assert len(set(acknowledged)) == 20
    stored = {
        json.loads(line)["id"]: json.loads(line)["value"]
        for line in mine.run("consume", "killed", "--output", "json").lines
    }
    assert {stored[each] for each in acknowledged} == {f"message {number}" for number in range(20)}
    assert "never" not in stored.values()


def test_a_follower_outlives_its_broker(broker: BrokerProcess, mine: CommandLine) -> None:
    """A follower goes on where it was after kill -9 and restart, and says on standard error what happened."""
    mine.run("produce", "followed", "--partition", "0", stdin=b"before\n")
    with mine.start("consume", "followed", "--follow", "--from", "earliest", "--limit", "2") as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"before\n"
        broker.restart()
        mine.run("produce", "followed", "--partition", "0", stdin=b"after\n")
        out, err = reader.communicate(timeout=30)
    assert (reader.returncode, out) == (0, b"after\n")
    said = err.decode().splitlines()
    assert said
    assert all(line.startswith("tidelog: ") and line.isprintable() for line in said)
    assert len(said) <= 3
