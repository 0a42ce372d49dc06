"""`tidelog serve`: its flags, what it says, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.helpers.broker_process import broker_process

from tidelog.__main__ import main
from tidelog.broker.cli import serve
from tidelog.broker.config import Config
from tidelog.protocol.messages import CreateTopic, Fetch, FetchPosition, Ping, Stats, StatsReply, TopicReply


def run(*arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process and return how it ended."""
    return subprocess.run(
        [sys.executable, "-m", "tidelog", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **(environment or {})},
    )


def usage(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command line that is wrong usage; returns its one line."""
    assert main(list(arguments)) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.count("\n") == 1
    return found.err


@pytest.mark.process
def test_serve_says_where_and_stops_on_sigterm(tmp_path: Path) -> None:
    """One line on stdout names the URL once it is served; SIGTERM is a clean stop and exit code 0."""
    with broker_process(tmp_path, fresh=True) as broker:
        assert broker.ready_line == f"tidelog serving on tidelog://127.0.0.1:{broker.port}\n"
        with broker.connect() as client:
            assert client.ask(Ping()).error is None
        assert broker.stop() == 0
    assert (tmp_path / "data" / "VERSION").read_text() == "1\n"


@pytest.mark.process
def test_serve_takes_all_descriptors_it_may_have(tmp_path: Path) -> None:
    """A low soft limit of open files, as most shells set it, does not bound the connections."""
    with broker_process(tmp_path, "--in-memory", fresh=True) as broker:
        limits = Path(f"/proc/{broker.process.pid}/limits").read_text()
        (row,) = [line.split() for line in limits.splitlines() if line.startswith("Max open files")]
        assert row[3] == row[4]


@pytest.mark.process
def test_ctrl_c_stops_cleanly_with_130(tmp_path: Path) -> None:
    """SIGINT drains like SIGTERM; the exit code tells them apart."""
    with broker_process(tmp_path, fresh=True) as broker:
        assert broker.stop(signal.SIGINT) == 130
    assert "Traceback" not in broker.log.read_text()


@pytest.mark.process
def test_in_memory_writes_nothing(tmp_path: Path) -> None:
    """`--in-memory` serves without a folder."""
    with broker_process(tmp_path, "--in-memory", fresh=True) as broker:
        with broker.connect() as client:
            assert isinstance(client.ask(CreateTopic("default/t")).message, TopicReply)
        assert broker.stop() == 0
    assert [path.name for path in tmp_path.iterdir()] == ["broker.log"]


@pytest.mark.process
def test_a_second_broker_on_the_folder_is_one_line(tmp_path: Path) -> None:
    """The second says which process has the folder and fails; the first goes on."""
    with broker_process(tmp_path, fresh=True) as broker:
        second = run("serve", "--data-dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
        assert second.returncode == 1
        assert second.stdout == ""
        assert second.stderr == (
            "tidelog: DATA_DIR_LOCKED: expected a data directory that no broker uses, found process"
            f" {broker.process.pid} running on it\n"
        )
        with broker.connect() as client:
            assert client.ask(Ping()).error is None


@pytest.mark.process
def test_an_address_in_use_is_one_line(tmp_path: Path) -> None:
    """A port that is taken is said in one line, exit code 1."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        found = run("serve", "--in-memory", "--listen", where)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr == f"tidelog: CANNOT_LISTEN: cannot listen on {where}: Address already in use\n"


@pytest.mark.process
def test_durability_and_drain_timeout_and_log_level(tmp_path: Path) -> None:
    """The flags reach the broker: topics follow the durability, a drain ends in time, debug lines appear."""
    flags = ("--durability", "written", "--drain-timeout", "200ms", "--log-level", "debug", "--http", "off")
    with broker_process(tmp_path, *flags, fresh=True) as broker, broker.connect() as client:
        made = client.ask(CreateTopic("default/t", partitions=1)).message
        assert isinstance(made, TopicReply)
        assert made.topic.settings["durability"] == "written"
        client.send(Fetch([FetchPosition(made.topic.id, 0, 0)], max_wait_us=60_000_000))
        client.send(Stats())
        assert isinstance(client.reply().message, StatsReply)
        before = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - before < 10
    assert " debug " in broker.log.read_text()


@pytest.mark.process
def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    """Each source may set what the stronger ones leave alone."""
    file = tmp_path / "broker.yaml"
    file.write_text("topics: {partitions: 2}\nlog: {durability: received}\nbroker: {node_id: from-file}\n")
    environment = {"TIDELOG_TOPICS__PARTITIONS": "3", "TIDELOG_LOG__DURABILITY": "synced"}
    with (
        broker_process(tmp_path, "--config", str(file), "--durability", "written", environment=environment) as broker,
        broker.connect() as client,
    ):
        made = client.ask(CreateTopic("default/t")).message
        assert isinstance(made, TopicReply)
        assert len(made.topic.partitions) == 3
        assert made.topic.settings["durability"] == "written"
        assert made.topic.partitions[0].leader == "from-file"


def test_every_problem_of_a_configuration_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker does not start on a wrong configuration, and says all that is wrong with it at once."""
    file = tmp_path / "broker.yaml"
    file.write_text("log: {retention: 3, segment_byte: 1MiB}\nhttp: {enabled: true}\n")
    assert main(["serve", "--in-memory", "--config", str(file)]) == 1
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.splitlines() == [
        "tidelog: INVALID_CONFIG: log.retention: expected a duration with its unit such as 250ms, 30s, 5m or 7d,"
        " found 3",
        "tidelog: INVALID_CONFIG: log.segment_byte: unknown key; did you mean segment_bytes?",
        "tidelog: INVALID_CONFIG: http: this version has no such section yet; leave it out",
    ]


def test_a_wrong_flag_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """A flag's value that cannot be meant is exit code 2 and one line that shows the form."""
    assert "expected HOST:PORT" in usage(capsys, "serve", "--listen", "nowhere")
    assert "expected a duration such as" in usage(capsys, "serve", "--drain-timeout", "30")
    assert "received, written or synced" in usage(capsys, "serve", "--durability", "sync")
    assert "debug, info, warning or error" in usage(capsys, "serve", "--log-level", "loud")
    assert "serves no HTTP" in usage(capsys, "serve", "--http", "127.0.0.1:9441")
    assert "found both" in usage(capsys, "serve", "--in-memory", "--data-dir", "x")
    assert "--repair" in usage(capsys, "check", "x", "--repair")


def test_a_listen_address_beyond_this_machine_needs_insecure(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody opens an unprotected broker to the network by accident."""
    assert main(["serve", "--in-memory", "--listen", "0.0.0.0:0"]) == 1
    assert "set broker.insecure: true or give --insecure" in capsys.readouterr().err


def test_insecure_is_a_flag_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--insecure` opens the address that was given, and one that the file gives; without it the file's own word holds."""
    served: list[bool] = []

    def run(config: Config, *, in_memory: bool) -> int:
        served.append(config.broker.insecure)
        return int(not in_memory)

    monkeypatch.setattr(serve, "_run", run)
    assert main(["serve", "--in-memory", "--listen", "0.0.0.0:0", "--insecure"]) == 0
    monkeypatch.setenv("TIDELOG_BROKER__LISTEN", "0.0.0.0:0")
    assert main(["serve", "--in-memory"]) == 1
    assert main(["serve", "--in-memory", "--insecure"]) == 0
    monkeypatch.setenv("TIDELOG_BROKER__INSECURE", "true")
    assert main(["serve", "--in-memory"]) == 0
    assert served == [True, True, True]


def test_a_data_dir_that_cannot_be_made_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in the way is said with its path."""
    (tmp_path / "file").write_text("")
    assert main(["serve", "--data-dir", str(tmp_path / "file" / "data")]) == 1
    assert capsys.readouterr().err.startswith("tidelog: STORAGE_ERROR: expected opening the data directory")
