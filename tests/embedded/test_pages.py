"""The pages about brokers inside programs and tests are true: their examples run, as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.helpers.markdown import Block, blocks_of

ROOT = Path(__file__).parent.parent.parent
PAGES = ("docs/embedding.md", "docs/testing.md")
BLOCKS = [pytest.param(block, id=f"{page}:{block.line}") for page in PAGES for block in blocks_of(ROOT / page)]
PLUGIN = "tidelog.pytest_plugin"
TEST = re.compile(r"^def test_", re.M)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder of the reader's own, without what this test's environment would add."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TIDELOG", "PYTEST"))}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest there; an installation from before there were fixtures has not got their name, and is told it."""
    named = () if entry_points(group="pytest11", name="tidelog") else ("-p", PLUGIN)
    plugins = (*named, "-p", "no:xdist", "-p", "no:cacheprovider")
    return run(folder, "-m", "pytest", "-q", *plugins, *arguments)


@pytest.mark.process
@pytest.mark.parametrize("block", BLOCKS)
def test_every_example_runs(block: Block, tmp_path: Path) -> None:
    """A program by itself, a file of tests by pytest."""
    assert block.language == "python"
    (tmp_path / "test_example.py").write_text(block.text)
    count = len(TEST.findall(block.text))
    found = run_pytest(tmp_path, "test_example.py") if count else run(tmp_path, "test_example.py")
    assert found.returncode == 0, found.stdout + found.stderr
    assert not count or f"{count} passed" in found.stdout


@pytest.mark.process
def test_the_fixtures_are_each_test_s_own(tmp_path: Path) -> None:
    """Two tests share nothing, and the environment is as before when they are over."""
    (tmp_path / "test_two.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.parametrize('number', [1, 2])\n"
        "def test_first(tidelog_client, tidelog_broker, number):\n"
        "    assert tidelog_client.topics.list() == []\n"
        "    assert os.environ['TIDELOG_URL'] == tidelog_broker.url\n"
        "    tidelog_client.produce('t', b'x')\n"
        "def test_after():\n"
        "    assert 'TIDELOG_URL' not in os.environ\n"
    )
    found = run_pytest(tmp_path, "test_two.py")
    assert "3 passed" in found.stdout, found.stdout + found.stderr


@pytest.mark.process
def test_the_plugin_loads_nothing(tmp_path: Path) -> None:
    """A run that uses no fixture loads neither client nor broker, and sees no warning."""
    (tmp_path / "test_light.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    loaded = {name for name in sys.modules if name.startswith('tidelog')}\n"
        "    assert loaded == {'tidelog', 'tidelog.pytest_plugin'}, loaded\n"
        "    assert 'trio' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    found = run_pytest(
        tmp_path,
        "-W",
        "error",
        "-p",
        "no:pytest_trio",
        "-p",
        "no:trio",
        "-p",
        "no:anyio",
        "-p",
        "no:hypothesispytest",
        "test_light.py",
    )
    assert "1 passed" in found.stdout, found.stdout + found.stderr


def test_an_installation_brings_the_fixtures() -> None:
    """pytest finds them by the project's entry point."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"tidelog": PLUGIN}


def test_importing_the_testing_module_loads_no_broker() -> None:
    """`from tidelog.testing import Broker` is light; making one loads what it needs."""
    script = "import sys; import tidelog.testing; print([m for m in sys.modules if m.split('.')[0] in ('trio', 'pydantic') or m.startswith('tidelog.broker')])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.stderr) == ("[]\n", "")
