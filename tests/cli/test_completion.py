"""Completion: the scripts for the shells, and what they are answered."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.helpers.command_line import TIMEOUT_S, CommandLine

pytestmark = pytest.mark.process

MARKS = {
    "bash": b"complete -o default -F _tidelog_completion tidelog",
    "zsh": b"#compdef tidelog",
    "fish": b"complete --command tidelog --no-files",
}


def answered(tidelog: CommandLine, line: str, url: str | None = None, *, starts: bool = False) -> list[str]:
    """What bash is offered at the end of a line that begins with `tidelog `: asked in this process, as a dozen take
    longer to start than to answer, unless it is to start one as bash does."""
    words = line.split(" ")
    environment = {
        "_TIDELOG_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "TIDELOG_URL": url or tidelog.url,
    }
    run = (tidelog.run_process if starts else tidelog.run)(environment=environment)
    assert run.err == b""
    return run.out.decode().split()


@pytest.mark.parametrize("shell", MARKS)
def test_each_shell_has_its_script(tidelog: CommandLine, shell: str) -> None:
    """The script for bash, zsh and fish is printed when asked for by name."""
    run = tidelog.run_process(environment={"_TIDELOG_COMPLETE": f"source_{shell}"})
    assert MARKS[shell] in run.out
    assert b"_TIDELOG_COMPLETE" in run.out


def in_bash(tidelog: CommandLine, command: str, home: Path) -> subprocess.CompletedProcess[bytes]:
    """Run a line in a bash with a home folder of its own."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("this machine has no bash")
    environment = tidelog.environment({"HOME": str(home), "SHELL": bash})
    return subprocess.run(
        [bash, "--norc", "-c", f"{command}; exit $?"], env=environment, capture_output=True, timeout=TIMEOUT_S
    )


def test_the_shell_one_is_in_is_found(tidelog: CommandLine, tmp_path: Path) -> None:
    """--show-completion prints the script of the shell it is typed in, and changes nothing."""
    run = in_bash(tidelog, f"{sys.executable} -m tidelog --show-completion", tmp_path)
    assert (run.returncode, run.stderr) == (0, b"")
    assert MARKS["bash"] in run.stdout
    assert list(tmp_path.iterdir()) == []


def test_completion_is_installed_in_the_home_folder(tidelog: CommandLine, tmp_path: Path) -> None:
    """--install-completion writes the script into the home folder, where bash's start-up file then reads it."""
    run = in_bash(tidelog, f"{sys.executable} -m tidelog --install-completion", tmp_path)
    assert (run.returncode, run.stderr) == (0, b"")
    scripts = [path for path in tmp_path.rglob("tidelog*") if path.is_file()]
    assert len(scripts) == 1
    assert MARKS["bash"] in scripts[0].read_bytes()
    assert str(scripts[0]) in (tmp_path / ".bashrc").read_text()


def test_verbs_flags_and_words_are_offered(tidelog: CommandLine) -> None:
    """A shell is offered the verbs, their flags, and the words a flag takes."""
    assert answered(tidelog, "tidelog con") == ["consume", "config"]
    assert answered(tidelog, "tidelog topics de") == ["describe", "delete"]
    assert answered(tidelog, "tidelog produce t --keep") == ["--keep-partition"]
    assert answered(tidelog, "tidelog produce t --input ") == ["lines", "json"]


def test_the_topics_there_are_are_offered(tidelog: CommandLine, topic: str) -> None:
    """The name of a topic is completed from the broker, by every verb that takes one."""
    for verb in ("consume", "tail", "produce", "replay", "topics describe", "topics delete"):
        assert topic in answered(tidelog, f"tidelog {verb} {topic[:-1]}")
    assert topic in answered(tidelog, f"tidelog consume {topic[:-1]}", starts=True)
    assert answered(tidelog, "tidelog consume nosuchbeginning") == []
    assert topic in answered(tidelog, f"tidelog consume --url {tidelog.url} ", url="127.0.0.1:1")


def test_without_a_broker_nothing_is_offered(tidelog: CommandLine) -> None:
    """Tab shows no error and waits for nobody when no broker is there."""
    assert answered(tidelog, "tidelog consume ", url="127.0.0.1:1", starts=True) == []


def test_the_groups_there_are_are_offered(tidelog: CommandLine, topic: str) -> None:
    """The names of groups are asked from the broker, wherever a command takes one; topics where it takes those."""
    name = f"complete-{topic}"
    tidelog.run("groups", "create", name, "--topic", topic)
    for verb in ("describe", "set", "reset", "delete", "messages"):
        assert answered(tidelog, f"tidelog groups {verb} complete-{topic}") == [name]
    assert answered(tidelog, f"tidelog groups create other --topic {topic}")[0] == topic
    assert answered(tidelog, "tidelog groups describe nothing-begins-so") == []
