"""The nursery: what it forks is a broker of its own, in what its test gave it and with nothing of its siblings."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.helpers.broker_process import BrokerProcess, broker_process
from tests.helpers.nursery import Forked, Nursery, nursery
from tests.helpers.open_files import open_files

pytestmark = pytest.mark.process


def descriptors(broker: BrokerProcess) -> list[str]:
    """What a broker holds open, but for what the kernel numbers."""
    return sorted(name.partition(":[")[0] for name in open_files(broker.process.pid))


def test_a_forked_broker_holds_what_a_started_one_holds(tmp_path: Path) -> None:
    """Its open files are those of a broker that was started by itself, though another runs beside it."""
    with broker_process(tmp_path, "--in-memory"):
        with broker_process(tmp_path, "--in-memory") as forked:
            assert isinstance(forked.process, Forked)
            found = descriptors(forked)
        with broker_process(tmp_path, "--in-memory", fresh=True) as started:
            assert isinstance(started.process, subprocess.Popen)
            assert found == descriptors(started)


def test_a_forked_broker_runs_where_its_test_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder and the environment of the moment are its own, though the nursery was made before."""
    nursery()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDELOG_BROKER__DATA_DIR", "here")
    with (tmp_path / "log").open("wb") as log:
        broker = nursery().fork(["serve", "--listen", "127.0.0.1:0"], log.fileno())
    assert broker.stdout is not None
    try:
        assert broker.stdout.readline().startswith(b"tidelog serving on ")
        assert Path(f"/proc/{broker.pid}/cwd").readlink() == tmp_path
        assert (tmp_path / "here").is_dir()
    finally:
        broker.stdout.close()
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(30) == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_how_a_forked_broker_ended_is_told(tmp_path: Path, number: int, code: int) -> None:
    """Its exit code is the one of the process, below zero for a signal, and no signal is sent to who has ended."""
    with broker_process(tmp_path, "--in-memory") as broker:
        process = broker.process
        assert process.poll() is None
        assert broker.stop(number) == code
        assert process.poll() == code
        process.send_signal(signal.SIGKILL)
        broker.start()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_nursery_ends_though_forks_of_its_owner_go_on(tmp_path: Path) -> None:
    """A fork that ends leaves the nursery of its parent alone; one that stays does not keep it."""
    mine, ready, go_on = Nursery(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        mine.close()
        os.write(ready[1], b"x")
        os.read(go_on[0], 1)
        os._exit(0)
    assert os.read(ready[0], 1) == b"x"
    with (tmp_path / "log").open("wb") as log:
        broker = mine.fork(["--version"], log.fileno())
    assert broker.stdout is not None
    with broker.stdout as output:
        assert output.read().startswith(b"tidelog ")
    assert broker.wait(30) == 0
    mine.close()
    os.write(go_on[1], b"x")
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (*ready, *go_on):
        os.close(descriptor)
