"""How much a command loads before it does its work: names of modules, never a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.test_layers import within

pytestmark = pytest.mark.process

HEAVY = ("numpy", "pydantic", "rich", "trio", "anyio", "yaml", "zstandard", "tidelog.broker.app")


PROGRAM = """
import sys
from tidelog.__main__ import main
code = main(sys.argv[1:])
sys.stderr.write("loaded: " + " ".join(sys.modules))
sys.exit(code)
"""


def loaded_by(*arguments: str, url: str = "127.0.0.1:1", code: int = 0) -> set[str]:
    """The modules that a process has loaded when such a command is through."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "TIDELOG_URL": url},
    )
    assert run.returncode == code, run.stderr
    return set(run.stderr.rpartition("loaded: ")[2].split())


def test_the_version_loads_nothing() -> None:
    """`tidelog --version` loads no command, and nothing that reads command lines."""
    loaded = loaded_by("--version")
    assert "tidelog" in loaded
    assert not [name for name in loaded if within(name, *HEAVY, "typer", "msgspec", "tidelog.client.cli")]


def test_a_ping_loads_a_connection_and_no_more(shared_broker: BrokerProcess) -> None:
    """`tidelog ping` loads what connects, but no numpy, no pydantic, no rich, and no other command."""
    loaded = loaded_by("ping", url=shared_broker.url)
    assert "tidelog.client.blocking.connection" in loaded
    others = (
        "broker.cli.serve",
        "client.cli.consume",
        "client.cli.produce",
        "client.blocking.client",
        "client.core.outbox",
    )
    refused = [*HEAVY, *(f"tidelog.{name}" for name in others)]
    assert not [name for name in loaded if within(name, *refused)]


@pytest.mark.parametrize("command", ["consume", "produce", "topics", "serve"])
def test_help_loads_no_library_of_the_work(command: str) -> None:
    """The help of a command loads none of what the command works with."""
    assert not [name for name in loaded_by(command, "--help") if within(name, *HEAVY)]


@pytest.mark.parametrize(
    "line",
    ["consume {0} --from -1h --limit 1", "produce {0} --key k --header a=b /dev/null", "topics set {0} retention=1d"],
)
def test_flags_are_read_without_pydantic(shared_broker: BrokerProcess, topic: str, line: str) -> None:
    """What a verb was given is read by the verb's own parsers: pydantic and rich are loaded by none that works."""
    code = 3 if line.startswith("consume") else 0
    loaded = loaded_by(*line.format(topic).split(), url=shared_broker.url, code=code)
    assert "numpy" in loaded
    assert not [name for name in loaded if within(name, "pydantic", "rich", "trio", "yaml")]


def test_a_command_loads_without_the_others() -> None:
    """A command that is typed is the only one whose module is loaded; an unknown one is looked for among all."""
    loaded = loaded_by("get", "--help")
    assert "tidelog.client.cli.get" in loaded
    assert not [name for name in loaded if within(name, "tidelog.client.cli.produce", "tidelog.broker.cli.serve")]
    assert {"tidelog.client.cli.produce", "tidelog.broker.cli.serve"} <= loaded_by("prodcue", code=2)
