"""Help and reference: every verb and flag is in docs/cli.md, each has its help, and the examples are ones to type."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.__main__ import main

ROOT = Path(__file__).parent.parent.parent
NOBODY = "127.0.0.1:1"


def examples() -> list[str]:
    """Every command line that docs/cli.md shows, each command of a pipe by itself."""
    lines = re.findall(r"^\$ (.*)$", (ROOT / "docs/cli.md").read_text(), re.M)
    parts = [part.strip() for line in lines for part in line.split(" | ")]
    return sorted({part for part in parts if part.startswith("tidelog ")})


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


@pytest.mark.parametrize("line", [line for line in examples() if not line.startswith("tidelog serve ")])
def test_an_example_is_no_wrong_usage(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each example is understood: without a broker and files it fails for the lack of them, with exit code 1."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TIDELOG_URL", NOBODY)
    arguments = [NOBODY if word.startswith("broker-") else word for word in shlex.split(line)[1:]]
    assert main(arguments) == 1, capfd.readouterr().err


@pytest.mark.parametrize("word", ["group", "schedule", "delay", "settle", "dlq", "trace", "queue"])
def test_what_is_not_there_yet_is_not_promised(word: str) -> None:
    """Neither the reference nor, since it is made of it, the help names what this version does not do."""
    assert not re.search(rf"--{word}|tidelog {word}", (ROOT / "docs/cli.md").read_text())


@pytest.mark.parametrize("line", ["groups list", "schedule list t", "dlq list t", "trace t/0@0", "top", "settle x ack"])
def test_a_verb_of_a_later_version_is_one_line(line: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A verb that is not there is wrong usage, said in one line."""
    assert main(line.split()) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"no such command '{line.split()[0]}'" in err
