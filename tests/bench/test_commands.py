"""Each benchmark command runs, verifies, and exits 1 without a figure when an answer is wrong; never a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bench.compare import DEFAULT_PEER_PYTHON
from bench.figures import CALLERS, FIGURES, LANES

ROOT = Path(__file__).parent.parent.parent
TINY = ["--messages", "300", "--calls", "8", "--seconds", "0.05", "--warm-up", "20"]
TINY += ["--gib", "0.004", "--backlog", "3000", "--rounds", "1"]

FAMILIES = {
    "send": {"send"},
    "lists": {"produce_lists"},
    "consume": {"consume_messages", "consume_batches"},
    "round-trip": {"round_trip_p50", "round_trip_p99"},
    "callers": {f"callers_{count}" for count in CALLERS},
    "deliver": {"deliver_p50", "deliver_p99"},
    "queue": {"queue", "queue_beside", "queue_nacks", "queue_ack_p50", "queue_ack_p99"},
    "queue-crowd": {"queue_acquire_p50", "queue_acquire_p99"},
    "queue-holes": {"queue_holes_memory", "queue_holes_growth", "queue_holes_restart"},
    "queue-lanes": {f"queue_lanes_{count}" for count in LANES},
    "queue-weighted": {"queue_weighted_small", "queue_weighted_large"},
    "queue-overtake": {"queue_overtake_p50", "queue_overtake_p99"},
    "dead-letters": {"dead_letters_in", "dead_letters_redriven"},
    "restart": {"restart_after_kill"},
    "lane-restart": {"lane_restart_empty_serving"}
    | {f"lane_restart_{ended}_{what}" for ended in ("stop", "kill") for what in ("serving", "acquire", "memory")},
    "idle": {"idle_memory", "idle_cpu"},
}


def run(*arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run a command of the benchmarks from the project's folder."""
    return subprocess.run([python, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=110)


def planted(bug: str, module: str, family: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """Run a family with one wrong answer in it."""
    code = f"{bug}\nfrom {module} import main\nimport sys\nif __name__ == '__main__': sys.exit(main())"
    return run("-c", code, family, *TINY, python=python)


def test_the_families_have_every_figure() -> None:
    """No figure of the table is left out of the commands."""
    assert set().union(*FAMILIES.values()) == set(FIGURES)


def test_the_readme_names_every_family_and_figure() -> None:
    """bench/README.md says what each figure times."""
    text = (ROOT / "bench/README.md").read_text()
    assert [name for name in {*FAMILIES, *FIGURES} if f"`{name}`" not in text] == []


@pytest.mark.process
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_prints_its_figures(family: str) -> None:
    """A run prints a JSON line for each figure, with its conditions."""
    done = run("-m", "bench.e2e.log", family, *TINY, "--size", "60", "--durability", "written")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["figure"] for line in lines} == FAMILIES[family]
    assert {(line["size"], line["durability"], line["rounds"]) for line in lines} == {(60, "written", 1)}
    assert {line["unit"] for line in lines} == {FIGURES[name].unit for name in FAMILIES[family]}


@pytest.mark.process
def test_a_table_instead_of_lines() -> None:
    """With --markdown a run prints a row for each figure, size and durability."""
    done = run("-m", "bench.e2e.log", "lists", *TINY, "--size", "60", "90", "--durability", "written", "--markdown")
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ")[:3] for line in done.stdout.splitlines()[2:]]
    assert rows == [["| produce_lists", "60 B", "written"], ["| produce_lists", "90 B", "written"]]


LOSES = """
from tidelog import Client
produce_many = Client.produce_many
Client.produce_many = lambda self, topic, values, **rest: produce_many(
    self, topic, [*values[:-1], b"another"], **rest)
"""
DROPS = """
from tidelog.client.blocking.producer import Producer
send = Producer.send
def wrong(self, topic, value, **rest):
    if not (topic == "t" and value.startswith(b"0:7:")):
        send(self, topic, value, **rest)
Producer.send = wrong
"""
LIES = """
from tidelog import Client
import msgspec
produce = Client.produce
def wrong(self, *arguments, **rest):
    receipt = produce(self, *arguments, **rest)
    return msgspec.structs.replace(receipt, offset=receipt.offset + 1)
Client.produce = wrong
"""
SKIPS = """
from tidelog.client.blocking.replay import Replay
Replay.messages = lambda self, *rest: (message for message in [*self.__class__.__iter__(self)][0].messages()[1:])
"""
HALVES = """
from tidelog.client.blocking.consumer import Consumer
messages = Consumer.messages
def wrong(self, **rest):
    for number, message in enumerate(messages(self, **rest)):
        if number != 2:
            yield message
Consumer.messages = wrong
"""
FORGETS = """
from tidelog import QueueMessage
ack = QueueMessage.ack
QueueMessage.ack = lambda self, **rest: None if self.offset == 7 else ack(self, **rest)
"""
SWAPS = """
from bench.e2e import lane_restart, single_batches
single_batches.PRIORITIES = (4, 9, 0)
"""
FAVOURS = """
from bench.e2e import queue_weighted
queue_weighted.FURTHEST = 20
check = queue_weighted._check_shares
queue_weighted._check_shares = lambda kept: check(sorted(kept, key=lambda message: -message.priority))
"""
TWICE = """
from tidelog import Queue
messages = Queue.messages
def wrong(self, *arguments, **rest):
    for message in messages(self, *arguments, **rest):
        yield message
        if message.offset == 7:
            yield message
Queue.messages = wrong
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("bug", "family"),
    [
        pytest.param(FORGETS, "queue", id="a message that is not acknowledged"),
        pytest.param(TWICE, "queue", id="a message that is handed out twice"),
        pytest.param(TWICE, "queue-weighted", id="a message of a lane that is handed out twice"),
        pytest.param(FAVOURS, "queue-weighted", id="a lane that has more than its share"),
        pytest.param(LOSES, "lists", id="a value that is another"),
        pytest.param(DROPS, "send", id="a message that is not sent"),
        pytest.param(LIES, "round-trip", id="a wrong offset"),
        pytest.param(LIES, "callers", id="a wrong offset of many"),
        pytest.param(SKIPS, "consume", id="a message that is passed over"),
        pytest.param(SWAPS, "lane-restart", id="a message of another lane first"),
        pytest.param(HALVES, "deliver", id="a message that does not arrive"),
    ],
)
def test_a_wrong_answer_has_no_figure(bug: str, family: str) -> None:
    """One wrong answer anywhere ends the command with exit code 1, and no figure is printed."""
    done = planted(bug, "bench.e2e.log", family)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert done.stderr.startswith("no figure: expected") or done.stderr.startswith("no figure: values differ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing"], "expected send, lists"),
        (["--size", "10"], "expected 40 or more, found 10"),
        (["--rounds", "0"], "expected 1 or more, found 0"),
        (["--durability", "maybe"], "invalid choice: 'maybe'"),
    ],
)
def test_what_cannot_be_measured_is_refused(arguments: list[str], message: str) -> None:
    """A wrong argument is named, before anything is started."""
    done = run("-m", "bench.e2e.log", *arguments)
    assert done.returncode == 2
    assert message in done.stderr


# -- the peer ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def peer_python(monkeypatch: pytest.MonkeyPatch) -> str:
    """The Python that drives Kafka; skips visibly where there is none, or no Kafka."""
    found = DEFAULT_PEER_PYTHON.expanduser()
    python = str(found) if found.exists() else sys.executable
    probe = "import confluent_kafka; from bench.peers.kafka_server import version; print(version())"
    if run("-c", probe, python=python).returncode != 0:
        pytest.skip("no Kafka here: bench/README.md says how to install it")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # no time is asked: start soon
    return python


@pytest.mark.process
def test_a_missing_kafka_says_how_to_install_it(tmp_path: Path) -> None:
    """Without its jars the driver ends with exit code 3 and the commands that fetch them."""
    environment = {**os.environ, "KAFKA_LIB": str(tmp_path)}
    command = [sys.executable, "-m", "bench.peers.kafka", "send", *TINY]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (3, "")
    assert "Kafka is not installed here" in done.stderr
    assert "mvn -f bench/peers/kafka.pom.xml" in done.stderr


@pytest.mark.process
def test_kafka_is_measured_and_compared(tmp_path: Path, peer_python: str) -> None:
    """One round against a real Kafka has a row for each comparison of the family, and keeps it for the picture."""
    kept = tmp_path / "compared.json"
    done = run("-m", "bench.compare", "deliver", *TINY, "--peer-python", peer_python, "--json", str(kept))
    assert done.returncode == 0, done.stderr
    rows = json.loads(kept.read_text())["rows"]
    assert {(row["figure"], row["peer_durability"]) for row in rows} == {
        (figure, peer) for figure in ("deliver_p50", "deliver_p99") for peer in ("page-cache", "flushed")
    }
    assert len(done.stdout.splitlines()) == 2 + len(rows)


CHANGES = """
from bench.peers import kafka_client
send_all = kafka_client.send_all
kafka_client.send_all = lambda sending, topic, values: send_all(sending, topic, [*values[:-1], b'another'])
"""


@pytest.mark.process
def test_a_wrong_answer_of_kafka_has_no_figure(peer_python: str) -> None:
    """A value that comes back from Kafka as another ends its driver with exit code 1."""
    done = planted(CHANGES, "bench.peers.kafka", "send", peer_python)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "no figure: values differ" in done.stderr
