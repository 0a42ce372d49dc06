"""The documentation is true: its examples run, and its references name what there is, all of it and nothing else."""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

import tidelog
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.markdown import Block, blocks_of
from tidelog.__main__ import commands
from tidelog.protocol.errors import ERRORS, TidelogError

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/guide.md",
    "docs/lanes.md",
    "docs/dead_letters.md",
    "docs/api.md",
    "docs/cli.md",
    "docs/configuration.md",
    "docs/errors.md",
    "CONTRIBUTING.md",
)
TUTORIALS = ("README.md", "docs/guide.md", "docs/lanes.md", "docs/dead_letters.md")
NOT_EXECUTED = 2
"""README's two commands, which install: `.ci/run` executes them."""

BIN = Path(sys.executable).parent


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """A real broker of its own."""
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker.url


def run_block(block: Block, folder: Path, url: str) -> subprocess.CompletedProcess[str]:
    """Execute a block as a reader would, in a folder of the tutorial's own."""
    command = ["bash", "-euo", "pipefail", "-c"] if block.language == "sh" else [sys.executable, "-c"]
    return subprocess.run(
        [*command, block.text],
        cwd=folder,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TIDELOG_URL": url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.process
@pytest.mark.parametrize("page", TUTORIALS)
def test_every_example_runs(page: str, url: str, tmp_path: Path) -> None:
    """Each shell and Python example of a page works as it stands, in order, against a real broker."""
    folder = tmp_path / "reader"
    folder.mkdir()
    executed = [block for block in blocks_of(ROOT / page) if block.not_executed is None]
    assert {block.language for block in executed} == {"sh", "python"}
    for block in executed:
        run = run_block(block, folder, url)
        assert run.returncode == 0, f"{page}:{block.line}\n{run.stdout}\n{run.stderr}"


@pytest.mark.process
def test_the_first_run_survives_its_kill(tmp_path: Path) -> None:
    """README's first command ends with every message still there after kill -9."""
    run = subprocess.run(
        ["sh", str(ROOT / "examples/first_run.sh")],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.rstrip().endswith("all five messages survived")
    assert run.stdout.count("shipped") >= 3
    assert "redrove 1 dead letter: 1 in place" in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_ci_runs_the_commands_that_are_not_executed_here() -> None:
    """The only examples left out are those that install, and the continuous integration runs them."""
    left_out = [block for page in PAGES for block in blocks_of(ROOT / page) if block.not_executed is not None]
    assert len(left_out) == NOT_EXECUTED
    script = (ROOT / ".ci/run").read_text()
    assert left_out[1].text.strip() in script
    assert "pip install . &&" in left_out[0].text
    assert "sh examples/first_run.sh" in left_out[0].text


def leaves(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, set[str]]]:
    """Yield every command by its full name, with its long flags."""
    subcommands = cast("dict[str, object]", getattr(command, "commands", {}))
    if not subcommands:
        parameters = cast("list[object]", command.params)  # pyright: ignore[reportAttributeAccessIssue]
        flags = {flag for each in parameters for flag in cast("list[str]", each.opts) if flag.startswith("--")}  # pyright: ignore[reportAttributeAccessIssue]
        yield " ".join(path), flags
    for name, child in subcommands.items():
        yield from leaves(child, (*path, name))


def all_commands() -> dict[str, set[str]]:
    """Every command of the command line and its flags."""
    from typer.main import get_command

    return dict(leaves(get_command(commands())))


SHARED_FLAGS = {"--url", "--output", "--timeout"}
UNNAMED_FLAGS = {"--help", "--install-completion", "--show-completion", "--version"}


def test_the_reference_names_every_command_and_flag() -> None:
    """Whatever can be typed stands in docs/cli.md, in the section of its command."""
    reference = (ROOT / "docs/cli.md").read_text()
    sections = {
        title.split("[")[0].strip(): body
        for title, body in re.findall(r"^## (?:tidelog )?(.*?)\n(.*?)(?=^## |\Z)", reference, re.M | re.S)
    }
    for name, flags in all_commands().items():
        found = [
            title + "\n" + body
            for title, body in sections.items()
            if re.match(rf"{name.split()[0]}\b", title) and name in f"{title}\n{body}"
        ]
        assert found, f"docs/cli.md has no section for {name!r}"
        missing = {flag for flag in flags - SHARED_FLAGS - UNNAMED_FLAGS if flag not in "".join(found)}
        assert not missing, f"docs/cli.md does not name {missing} of {name!r}"


def test_every_documented_flag_exists() -> None:
    """No page of the documentation promises a flag or command that is not there."""
    known = set[str]().union(*all_commands().values()) | UNNAMED_FLAGS
    of_other_tools = {"--check"}
    for page in ("README.md", "docs/guide.md", "docs/cli.md", "docs/configuration.md", "docs/errors.md"):
        text = (ROOT / page).read_text()
        for flag in set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - of_other_tools:
            assert flag in known, f"{page} names {flag}"


@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_command_takes_the_shared_flags(name: str) -> None:
    """Every command that talks to a broker takes --url and --output; the broker's own verbs do not."""
    flags = all_commands()[name]
    if name.split()[0] in {"serve", "config", "check", "dump"}:
        assert "--url" not in flags
    else:
        assert flags >= SHARED_FLAGS


def test_the_reference_of_the_python_api_is_current() -> None:
    """docs/api.md is what docs/generate_api.py makes of the docstrings: every public name, argument and default."""
    command = [sys.executable, str(ROOT / "docs/generate_api.py"), "--check"]
    check = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (check.returncode, check.stderr) == (0, "")


def kinds(root: type[TidelogError]) -> Iterator[type[TidelogError]]:
    """Yield every error class below one."""
    for kind in root.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_the_reference_names_every_error() -> None:
    """docs/errors.md has every code that can be met, those of the wire with number and whether to repeat."""
    for module in pkgutil.walk_packages(tidelog.__path__, "tidelog."):
        if not module.name.endswith(("._native", "._column", "__main__", "build_ffi")):
            importlib.import_module(module.name)
    text = (ROOT / "docs/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| (yes|no) \|", text, re.M)
    documented = {(code, name, int(number), retriable == "yes") for code, name, number, retriable in rows}
    assert documented == {
        (each.code, each.__name__, each.number, each.retriable) for each in ERRORS.values() if each.number
    }
    told = {each.code for each in kinds(TidelogError) if each.__module__.startswith("tidelog.")} - {"TIDELOG_ERROR"}
    assert len(told) > len(rows)
    assert {code for code in told if f"| `{code}` |" not in text} == set()


def test_the_reference_names_every_key() -> None:
    """docs/configuration.md explains every key of config.example.yaml, and names no other."""
    example = yaml.safe_load((ROOT / "config.example.yaml").read_text())
    keys = {f"{section}.{key}" for section, entries in example.items() for key in entries}
    text = (ROOT / "docs/configuration.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \|", text, re.M)) == keys


@pytest.mark.parametrize(
    "page",
    [
        *PAGES,
        "docs/embedding.md",
        "docs/testing.md",
        "docs/spark.md",
        "SECURITY.md",
        "CODE_OF_CONDUCT.md",
        "CHANGELOG.md",
        "client/cli/README.md",
    ],
)
def test_every_link_leads_somewhere(page: str) -> None:
    """A link to a file of the project leads to one."""
    path = ROOT / page
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert target.startswith("https://") or (path.parent / target).exists(), f"{page} links to {target}"
