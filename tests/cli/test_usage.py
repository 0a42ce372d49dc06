"""Wrong usage (case 20 for priorities): exactly one clear line on standard error and exit code 2, for every command and every flag."""

from __future__ import annotations

from typing import cast

import pytest
from typer.main import get_command

from tidelog.__main__ import commands, main

NOBODY = "127.0.0.1:1"
"""An address where nothing listens: a command that gets so far fails with 1, not 2."""


def refusal(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command line that is wrong usage; return the one line it says."""
    code = main(arguments)
    out, err = capfd.readouterr()
    assert code == 2, f"exit code {code}: {err}"
    assert out == ""
    assert err.endswith("\n")
    assert err.count("\n") == 1, err
    assert err.startswith("tidelog: USAGE: ")
    return err


WRONG = [
    ("", "missing command"),
    ("nosuch", "no such command 'nosuch'"),
    ("prodcue t", "Did you mean 'produce'"),
    ("--nosuch", "no such option: --nosuch"),
    ("topics", "missing command"),
    ("config", "missing command"),
    ("topics lst", "Did you mean 'list'"),
    ("ping x", "extra argument"),
    ("ping --output xml", "'xml' is not one of 'table', 'json'"),
    ("ping --timeout 5", "expected a duration such as 250ms, 30s, 5m or 7d, found '5'"),
    ("ping --timeout -5s", "expected a duration"),
    ("ping --url http://localhost", "expected tidelog://host:9440/namespace, or host:port"),
    ("ping --url localhost:99999", "expected a port from 1 to 65535"),
    ("get", "missing argument 'ID'"),
    ("get orders", "expected a message id such as orders/2@45678, found 'orders'"),
    ("get orders/2", "expected a message id"),
    ("get orders/2@-1", "expected a message id"),
    ("get orders/2@1 orders/2@2", "extra argument"),
    ("topics create", "missing argument 'NAME'"),
    ("topics create a/b/c", "expected a topic name"),
    ("topics create ..", "expected a topic name"),
    ("topics create t --partitions 0", "expected a whole number of at least 1, found '0'"),
    ("topics create t --partitions -1", "found '-1'"),
    ("topics create t --partitions 1.5", "found '1.5'"),
    ("topics create t --partitions six", "found 'six'"),
    ("topics create t --retention 7", "retention: expected a duration"),
    ("topics create t --retention -7d", "retention: expected a duration"),
    ("topics create t --retention 1ms", "retention: expected 1s to"),
    ("topics create t --retention-bytes 1MB", "retention_bytes: expected a size"),
    ("topics create t --set retention", "expected key=value"),
    ("topics create t --set colour=red", "expected key=value with a key of "),
    ("topics create t --set durability=maybe", "durability: expected received, written or synced"),
    ("topics create t --set retention=default", "retention: expected a duration"),
    ("topics create t --retention 1d --set retention=2d", "expected retention once"),
    ("topics describe", "missing argument 'NAME'"),
    ("topics list t", "extra argument"),
    ("topics set t", "missing argument 'key=value'"),
    ("topics set t retention", "expected key=value"),
    ("topics set t retention=7", "retention: expected a duration"),
    ("topics set t partitions=0", "partitions: expected a whole number of at least 1"),
    ("topics set t partitions=default", "partitions: expected a whole number"),
    ("topics set t retention=1d retention=2d", "expected retention once"),
    ("topics reopen", "missing argument 'NAME'"),
    ("topics delete", "missing argument 'NAME'"),
    ("topics delete t", "add --yes"),
    ("produce", "missing argument 'TOPIC'"),
    ("produce t - -", "expected standard input once, found - twice"),
    ("produce t --dedup-id", "requires an argument"),
    ("bench", "missing command"),
    ("bench delay", "no such command 'delay'"),
    ("bench produce --messages 0", "expected a whole number of at least 1, found '0'"),
    ("bench produce --size 19", "expected 20 to 16MiB, found '19'"),
    ("bench produce --size 17MiB", "expected 20 to 16MiB, found '17MiB'"),
    ("bench produce --size 1MB", "expected a size"),
    ("bench produce --messages 2000000 --size 1KiB", "expected at most 1GiB of messages, found 2000000 of 1KiB"),
    ("bench produce --callers 1001", "expected a whole number from 1 to 1000, found '1001'"),
    ("bench produce --callers 9 --messages 8", "expected at least one message for each of 9 callers, found 8"),
    ("bench produce --mode fast", "'fast' is not one of 'many', 'send', 'single'"),
    ("bench produce --mode single --batch 5", "--batch needs --mode many"),
    ("bench produce --durability maybe", "expected received, written or synced, found 'maybe'"),
    ("bench consume --mode batches --batch 5", "--batch needs --mode messages"),
    ("bench consume --durability synced", "no such option: --durability"),
    ("bench latency --mode single", "no such option: --mode"),
    ("bench latency --topic a/b/c", "expected a topic name"),
    ("produce t --priority 10", "expected a whole number from 0 to 9, found '10'"),
    ("produce t --priority -1", "found '-1'"),
    ("produce t --priority 4.5", "found '4.5'"),
    ("produce t --priority True", "found 'True'"),
    ("produce t --priority 4.0", "found '4.0'"),
    ("produce t --priority 50", "found '50'"),
    ("produce t --priority None", "found 'None'"),
    ("produce t --partition -1", "found '-1'"),
    ("produce t --header", "requires an argument"),
    ("produce t --header novalue", "expected name=value, found 'novalue'"),
    ("produce t --input xml", "'xml' is not one of 'lines', 'json'"),
    ("produce t --key-separator", "requires an argument"),
    ("produce t --key a --key-separator :", "expected --key or --key-separator, found both"),
    ("produce t --input json --key-separator :", "--key-separator needs --input lines"),
    ("produce t --keep-partition", "--keep-partition needs --input json"),
    ("produce t --input json --keep-partition --partition 1", "expected --partition or --keep-partition"),
    ("produce t --delay 5m", "no such option: --delay"),
    ("produce t --delay -5m", "no such option: --delay"),
    ("consume", "missing argument 'TOPIC'"),
    ("consume t --settle none", "--settle needs --group"),
    ("consume t --group g --mode stream", "expected --mode queue: stream groups are not there yet"),
    ("settle x ack", "invalid value for 'TOKEN': expected a message's lease_token, found 'x'"),
    ("consume t --from", "requires an argument"),
    ("consume t --from yesterday", "expected earliest, latest, an offset, a time"),
    ("consume t --from 2025-01-14T15:00:00", "with its zone, such as 2025-01-14T15:00:00Z"),
    ("consume t --from -15", "expected a relative time such as -15m or +2h"),
    ("consume t --to -", "expected a relative time"),
    ("consume t --limit 0", "expected a whole number of at least 1, found '0'"),
    ("consume t --limit 1e3", "found '1e3'"),
    ("consume t --partition x", "found 'x'"),
    ("consume t --timeout soon", "expected a duration"),
    ("consume t --follow --to now", "expected --follow or --to, found both"),
    ("tail", "missing argument 'TOPIC'"),
    ("tail t --from now", "no such option: --from"),
    ("replay t", "missing option '--from'"),
    ("replay t --from -1h", "missing option '--to'"),
    ("replay t --from -1h --to tomorrow", "found 'tomorrow'"),
]


@pytest.mark.parametrize(("line", "message"), WRONG, ids=[line or "nothing" for line, _ in WRONG])
def test_wrong_usage_is_one_line(line: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Each mistake is named with what was expected and what was found."""
    assert message in refusal(capfd, *line.split())


def test_the_line_leads_to_the_help(capfd: pytest.CaptureFixture[str]) -> None:
    """The line says which command it is about and where its help is."""
    assert refusal(capfd, "topics", "create", "a/b/c").endswith("; see tidelog topics create --help\n")


@pytest.mark.parametrize("argument", ["\x1b[2J", "a\nb", "\u202e", "\udcff"])
def test_a_mistake_cannot_drive_the_terminal(argument: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Case 39: whatever was typed, the error stays one printable line."""
    for arguments in (("topics", "describe", argument), (argument,), ("consume", "t", "--from", argument)):
        said = refusal(capfd, *arguments)
        assert said[:-1].isprintable()


@pytest.mark.parametrize("flags", [["--from", "-1h"], ["--from=-1h"]])
def test_a_time_that_begins_with_a_dash_is_understood(flags: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Case 23: `--from -1h` works with a space as with an equals sign; the command gets as far as connecting."""
    code = main(["consume", "t", *flags, "--to", "now", "--url", NOBODY])
    assert code == 1
    assert "CANNOT_CONNECT" in capfd.readouterr().err


@pytest.mark.parametrize("flags", [["--header", "k=-v"], ["--key", "-x"], ["--key=-x"], ["--key", "--key"]])
def test_values_that_look_like_flags_are_values(flags: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    """Case 23: a key or header value may begin with a dash."""
    code = main(["produce", "t", *flags, "--url", NOBODY, "/dev/null"])
    assert code == 1
    assert "CANNOT_CONNECT" in capfd.readouterr().err


def every_command() -> list[tuple[str, ...]]:
    """The full name of every command and group."""

    def walk(command: object, path: tuple[str, ...]) -> list[tuple[str, ...]]:
        found = [path]
        for name, child in cast("dict[str, object]", getattr(command, "commands", {})).items():
            found += walk(child, (*path, name))
        return found

    return walk(get_command(commands()), ())


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_every_command_refuses_an_unknown_flag(command: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """A flag that is not there is wrong usage of every command, the broker's included."""
    assert "no such option: --nosuch" in refusal(capfd, *command, "--nosuch")


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_every_command_has_help(command: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> None:
    """--help shows the command on standard output and is not an error."""
    assert main([*command, "--help"]) == 0
    out, err = capfd.readouterr()
    assert out.startswith(" ".join(["Usage: tidelog", *command]))
    assert err == ""


def test_the_version_is_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """--version says the installed version on standard output."""
    assert main(["--version"]) == 0
    assert capfd.readouterr() == ("tidelog 0.1.0\n", "")
