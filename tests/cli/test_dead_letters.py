"""`tidelog dlq`: list, show, redrive and purge, by their output and exit codes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.helpers.command_line import CommandLine

from tidelog import Backoff, Client, Retry
from tidelog.client.blocking.dead_letters import DeadLetters
from tidelog.client.cli.dead_letters import redrive, show
from tidelog.client.dead_letter import Redriven
from tidelog.protocol.errors import TimedOutError

pytestmark = pytest.mark.process

HOSTILE = "\x1b]52;c;ZWNobw==\x07 \x1b[2J \u202e \r"


def give_up(
    tidelog: CommandLine, topic: str, *values: str | bytes, error: object = "poison", attempts: int = 1, **how: object
) -> None:
    """Have group `g-TOPIC` refuse messages, at their last attempt, and wait for their copies."""
    group = f"g-{topic}"
    with Client(tidelog.url) as client:
        before = client.dead_letters.count(topic)
        for value in values:
            client.produce(topic, value, **{"key": value, "headers": {"is": value}, **how})  # pyright: ignore
        with client.queue(topic, group, max_attempts=attempts) as queue:
            for _ in values:
                for _ in range(attempts):
                    [message] = queue.receive()
                    if message.attempt == attempts:
                        message.reject(error)
                    else:
                        message.nack(error, delay=0)
        until = time.monotonic() + 20
        while client.dead_letters.count(topic) < before + len(values):
            assert time.monotonic() < until, "the copies never came"
            time.sleep(0.01)


def test_list_and_its_filters(tidelog: CommandLine, topic: str) -> None:
    """A table for people, a line of JSON each for programs; filters and a limit choose; 3 says that there are none."""
    assert "NOT_FOUND" in tidelog.run("dlq", "list", topic, code=3).error
    give_up(tidelog, topic, "a", "b", error=ValueError("no such account"))
    table = tidelog.run("dlq", "list", topic).out.decode().splitlines()
    assert table[0].split() == ["ID", "REASON", "GROUP", "ATTEMPTS", "REDRIVES", "AT", "KEY", "ERROR"]
    assert [line.split()[:5] for line in table[1:]] == [
        [f"{topic}.dlq/0@{at}", "rejected", f"g-{topic}", "1", "0"] for at in range(2)
    ]
    assert table[1].endswith("a    ValueError: no such account")
    [line] = tidelog.run("dlq", "list", topic, "--filter", "key=b", "--output", "json").lines
    found = json.loads(line)
    assert found["id"] == f"{topic}.dlq/0@1"
    assert (found["key"], found["value"], found["headers"], found["priority"]) == ("b", "b", [["is", "b"]], 4)
    said = found["dead_letter"]
    assert (said["reason"], said["error"], said["group"]) == ("rejected", "ValueError: no such account", f"g-{topic}")
    assert (said["original_id"], said["attempts"], said["redrives"]) == (f"{topic}/0@1", 1, 0)
    assert said["dead_lettered"].endswith("Z")
    for filters, count in (
        (["header:is=a"], 1),
        (["reason=rejected", f"group=g-{topic}"], 2),
        (["error=account", "from=-1h"], 2),
        (["to=-1h"], 0),
        (["reason=expired"], 0),
    ):
        flags = [part for one in filters for part in ("--filter", one)]
        lines = tidelog.run("dlq", "list", topic, *flags, "--output", "json", code=0 if count else 3).lines
        assert len(lines) == count, filters
    assert len(tidelog.run("dlq", "list", f"{topic}.dlq", "--limit", "1", "--output", "json").lines) == 1
    states = tidelog.run("groups", "messages", f"g-{topic}", "--state", "dead-lettered", "--output", "json").lines
    assert [json.loads(line)["id"] for line in states] == [f"{topic}/0@{at}" for at in range(2)]
    [about] = json.loads(tidelog.run("get", f"{topic}/0@0", "--output", "json").out)["groups"]
    assert (about["state"], about["attempts"]) == ("dead-lettered", 1)


def test_what_list_writes_is_what_produce_reads(tidelog: CommandLine, topic: str) -> None:
    """A dead letter can be produced again from its line of JSON, with its producer's own headers."""
    give_up(tidelog, topic, "a")
    lines = tidelog.run("dlq", "list", topic, "--output", "json").out
    tidelog.run("produce", topic, "--input", "json", stdin=lines)
    [again] = tidelog.run("consume", topic, "--from", "1", "--output", "json").lines
    assert json.loads(again)["headers"] == [["is", "a"]]


def test_show_tells_every_attempt(tidelog: CommandLine, topic: str) -> None:
    """By the id of the dead letter or of its message: the message, why, and each attempt with its error."""
    give_up(tidelog, topic, "a", error=ValueError("no such account"), attempts=3)
    for name in (f"{topic}.dlq/0@0", f"{topic}/0@0"):
        text = tidelog.run("dlq", "show", name).out.decode()
        assert f"original         {topic}/0@0" in text
        assert "header           is: a" in text
        rows = [line.split()[:2] for line in text.splitlines() if line.endswith("ValueError: no such account")]
        assert rows[-3:] == [["1", "failed"], ["2", "failed"], ["3", "rejected"]]
    found = json.loads(tidelog.run("dlq", "show", f"{topic}.dlq/0@0", "--output", "json").out)
    assert [(one["number"], one["outcome"]) for one in found["history"]] == [
        (1, "failed"),
        (2, "failed"),
        (3, "rejected"),
        (None, "dead-lettered"),
    ]
    assert found["history"][0]["error"]["kind"] == "ValueError"
    assert found["history_is_complete"] is True
    assert "NOT_FOUND" in tidelog.run("dlq", "show", f"{topic}.dlq/0@7", code=3).error
    tidelog.run("produce", topic, stdin=b"x\n")
    assert "NOT_FOUND" in tidelog.run("dlq", "show", f"{topic}/0@1", code=3).error


def test_show_goes_on_without_the_attempts(
    tidelog: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Where they are not read in time the dead letter is shown all the same, and it is said what is missing."""

    def too_late(*_letter: object, **_how: object) -> None:
        raise TimedOutError("no answer within 30 s")

    give_up(tidelog, topic, "a")
    monkeypatch.setattr(DeadLetters, "attempts", too_late)
    show(f"{topic}.dlq/0@0", url=tidelog.url)
    shown = capfd.readouterr()
    assert f"original         {topic}/0@0" in shown.out
    assert "header           is: a" in shown.out
    assert "tidelog: what became of it cannot be read now: TIMED_OUT: no answer within 30 s" in shown.err


@pytest.mark.parametrize("how", [(), ("--output", "json"), ("--as-test",)])
def test_show_goes_on_without_the_topic(tidelog: CommandLine, topic: str, how: tuple[str, ...]) -> None:
    """Where the topic of the message is gone its dead letter is all that there is, and is shown."""
    give_up(tidelog, topic, "unlike any other")
    tidelog.run("topics", "delete", topic, "--yes")
    ended = tidelog.run("dlq", "show", f"{topic}.dlq/0@0", *how)
    assert b"unlike any other" in ended.out
    assert ended.error.startswith("tidelog: what became of it is not known any more: no topic")


def test_redrive(tidelog: CommandLine, topic: str) -> None:
    """One, some or all; a dry run changes nothing; 3 says that there is nothing left, 1 that some were refused."""
    give_up(tidelog, topic, "a", "b", "c")
    out = tidelog.run("dlq", "redrive", topic, "--dry-run", "--filter", "key=a").out
    assert out == b"would redrive 1 dead letter\n"
    assert tidelog.run("dlq", "redrive", f"{topic}.dlq/0@1").out == b"redrove 1 dead letter: 1 in place\n"
    done = tidelog.run("dlq", "redrive", topic, "--limit", "1", "--rate", "50/s", "--output", "json").out
    assert json.loads(done) == {
        "matched": 1,
        "in_place": 1,
        "as_new": 0,
        "passed": 0,
        "refused": 0,
        "refusals": [],
    }
    out = tidelog.run("dlq", "redrive", topic, "--as-new").out
    assert out == b"redrove 1 dead letter: 1 as new for all groups\n"
    assert "NOT_FOUND" in tidelog.run("dlq", "redrive", topic, code=3).error
    lines = tidelog.run("groups", "messages", f"g-{topic}", "--output", "json").lines
    assert [json.loads(line)["id"] for line in lines] == [f"{topic}/0@{at}" for at in (0, 1, 3)]


def test_ctrl_c_leaves_done_what_is_done(tidelog: CommandLine, topic: str) -> None:
    """It ends with 130 and says how far it came; the same command does the rest."""
    give_up(tidelog, topic, *[str(at) for at in range(30)])
    with tidelog.start("dlq", "redrive", topic, "--rate", "10/s") as process, Client(tidelog.url) as client:
        until = time.monotonic() + 20
        while client.dead_letters.count(topic) > 27:
            assert time.monotonic() < until
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
        left = client.dead_letters.count(topic)
    assert process.returncode == 130
    assert 0 < left < 30
    match = re.fullmatch(
        rb"tidelog: stopped after ([0-9]+) dead letters?; the same command goes on with the rest\n", err
    )
    assert match is not None, err
    assert int(match[1]) in (30 - left, 30 - left - 1)
    out = tidelog.run("dlq", "redrive", topic).out
    assert out == f"redrove {left} dead letters: {left} in place\n".encode()


def test_a_redrive_that_an_error_cuts_off_says_how_far_it_came(
    tidelog: CommandLine, topic: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What was done is done, and the same command does the rest."""
    give_up(tidelog, topic, "a", "b", "c")
    real = DeadLetters.redrive

    def cut_off(letters: DeadLetters, which: str, **given: Any) -> Redriven:
        real(letters, which, limit=2, on_progress=given["on_progress"])
        raise TimedOutError("expected an answer in 30 s, found none")

    monkeypatch.setattr(DeadLetters, "redrive", cut_off)
    with pytest.raises(TimedOutError):
        redrive(topic, url=tidelog.url)
    monkeypatch.undo()
    assert capfd.readouterr().err == "tidelog: stopped after 2 dead letters; the same command goes on with the rest\n"
    out = tidelog.run("dlq", "redrive", topic).out
    assert out == b"redrove 1 dead letter: 1 in place\n"


def test_a_refused_redrive_is_a_failure(tidelog: CommandLine, topic: str) -> None:
    """What comes back each time is refused: exit code 1, one line, and the summary all the same."""
    give_up(tidelog, topic, "a", "b")
    ended = tidelog.run("dlq", "redrive", topic, "--max-redrives", "0", code=1)
    assert ended.out == b"redrove 0 dead letters: 2 refused\n"
    said = "expected a message that was redriven less than 0 times, found one that was 0 times"
    assert ended.error == f"tidelog: REDRIVE_LIMIT: {topic}.dlq/0@0, and 1 other: {said}"
    assert len(tidelog.run("dlq", "list", topic, "--output", "json").lines) == 2


def test_purge_asks(tidelog: CommandLine, topic: str) -> None:
    """Without a terminal it needs --yes; a dry run needs none; purged ones are listed no more."""
    give_up(tidelog, topic, "a", "b", "c")
    assert "USAGE" in tidelog.run("dlq", "purge", topic, code=2).error
    assert tidelog.run("dlq", "purge", topic, "--dry-run").out == b"would purge 3 dead letters\n"
    assert tidelog.run("dlq", "purge", f"{topic}.dlq/0@1", "--yes").out == b"purged 1 dead letter\n"
    done = tidelog.run("dlq", "purge", topic, "--filter", "key=a", "--yes", "--output", "json").out
    assert json.loads(done) == {"matched": 1, "purged": 1, "passed": 0}
    assert tidelog.run("dlq", "purge", topic, "--yes").out == b"purged 1 dead letter\n"
    assert "NOT_FOUND" in tidelog.run("dlq", "purge", topic, "--yes", code=3).error
    lines = tidelog.run("groups", "messages", f"g-{topic}", "--state", "rejected", "--output", "json").lines
    assert len(lines) == 3


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "a b"),
        ("list", "orders", "--filter", "colour=red"),
        ("list", "orders", "--filter", "reason=bored"),
        ("list", "orders", "--filter", "from=yesterday"),
        ("list", "orders", "--filter", "key=a", "--filter", "key=b"),
        ("show", "orders"),
        ("show", "orders.dlq/0@0", "--as-test", "--output", "json"),
        ("redrive", "orders/0/1"),
        ("redrive", "orders", "--rate", "0/s"),
        ("redrive", "orders", "--rate", "fast"),
        ("redrive", "orders", "--limit", "0"),
        ("redrive", "orders", "--max-redrives", "-1"),
        ("purge", "orders@1", "--yes"),
    ],
)
def test_wrong_usage(tidelog: CommandLine, arguments: tuple[str, ...]) -> None:
    """Exit code 2 and one line, before anything is asked of the broker."""
    assert tidelog.run("dlq", *arguments, code=2).error.startswith(f"tidelog: USAGE: dlq {arguments[0]}")


def test_the_brokers_own_headers_are_refused(tidelog: CommandLine, topic: str) -> None:
    """By a flag and in JSON: nothing is stored."""
    for name in ("tidelog.redrives", "tidelog.dlq.topic"):
        assert "broker's own" in tidelog.run("produce", topic, "--header", f"{name}=9", stdin=b"x\n", code=None).error
        line = json.dumps({"value": "x", "headers": [[name, "9"]]}).encode()
        assert "broker's own" in tidelog.run("produce", topic, "--input", "json", stdin=line, code=1).error
    assert tidelog.run("consume", topic, code=None).out == b""


def test_an_unknown_topic_is_named(tidelog: CommandLine) -> None:
    """Exit code 1, with the topic and the broker."""
    error = tidelog.run("dlq", "redrive", "no-such-topic", code=1).error
    assert error.startswith('tidelog: UNKNOWN_TOPIC: no topic "no-such-topic" on ')


def test_hostile_text_is_shown_escaped(tidelog: CommandLine, topic: str) -> None:
    """Value, key, header and error with escape sequences and a turned reading direction: escaped in tables, as escapes
    in JSON, byte-exact in what is produced again."""
    give_up(tidelog, topic, HOSTILE, error=HOSTILE)
    for command in (["dlq", "list", topic], ["dlq", "show", f"{topic}.dlq/0@0"]):
        for output in ("table", "json"):
            out = tidelog.run(*command, "--output", output).out.decode()
            assert not set(out) & {"\x1b", "\x07", "\r", "\u202e"}, command
    [line] = tidelog.run("dlq", "list", topic, "--output", "json").lines
    assert json.loads(line)["value"] == HOSTILE


def test_the_test_that_show_writes_runs(tidelog: CommandLine, topic: str, tmp_path: Path) -> None:
    """As written, once the import of the handler is filled in: it passes with a handler that takes the message, and
    fails with one that still does not."""
    value = bytes(range(256)) + HOSTILE.encode()
    give_up(
        tidelog,
        topic,
        value,
        error=ValueError('no """account""" {0}'),
        attempts=3,
        headers=[("source", b"web"), ("source", None), ("ключ", b"\xff")],
        priority=7,
    )
    written = tidelog.run("dlq", "show", f"{topic}.dlq/0@0", "--as-test").out.decode()
    assert written.count("from handlers import handle") == 1
    (tmp_path / "handlers.py").write_text(
        "seen = []\n"
        "def handle(message):\n"
        "    seen.append(message)\n"
        f"    assert message.value == {value!r}, message.value\n"
        f"    assert message.key == {value!r}\n"
        "    assert message.headers == [('source', b'web'), ('source', None), ('ключ', b'\\xff')]\n"
        "    assert (message.attempt, message.priority, message.last_attempt) == (3, 7, True)\n"
        "    assert message.previous_error.kind == 'ValueError'\n"
        '    assert message.previous_error.text == \'no """account""" {0}\'\n'
        f"    assert message.topic == {topic!r}\n",
        encoding="utf-8",
    )
    ended = _run(tmp_path, written)
    assert ended.returncode == 0, ended.stdout.decode()
    settling = written.replace("from handlers import handle", "def handle(message): message.ack()")
    assert _run(tmp_path, settling).returncode == 0
    failing = written.replace("from handlers import handle", "def handle(message): raise ValueError('still')")
    ended = _run(tmp_path, failing)
    assert ended.returncode == 1
    assert b"ValueError: still" in ended.stdout
    giving_up = written.replace("from handlers import handle", "def handle(message): message.reject('no')")
    ended = _run(tmp_path, giving_up)
    assert ended.returncode == 1
    assert b"AssertionError: MessageState(" in ended.stdout


def test_a_policy_of_its_own_stays_with_the_message(tidelog: CommandLine, topic: str, tmp_path: Path) -> None:
    """A dead letter tells it, in a table, in JSON that makes the same message again, and in the test that it becomes:
    refused before its own limit, which is above its group's, the message has attempts left there."""
    policy = Retry(6, Backoff("constant", initial=1.5, jitter=0.0))
    give_up(tidelog, topic, "x", attempts=2, retry=policy)
    letter_id = f"{topic}.dlq/0@0"
    with Client(tidelog.url) as client:
        assert client.dead_letters.get(letter_id).retry == policy
        assert [one.retry for one in client.dead_letters.list(topic)] == [policy]
    assert (
        b"retry            max_attempts=6 backoff=constant:1500ms:10m:2:0\n"
        in tidelog.run("dlq", "show", letter_id).out
    )
    line = tidelog.run("dlq", "list", topic, "--output", "json").out
    assert json.loads(line)["retry"] == {
        "max_attempts": 6,
        "backoff": {"kind": "constant", "initial": "1500ms", "max": "10m", "multiplier": 2.0, "jitter": 0.0},
    }
    tidelog.run("topics", "create", f"{topic}-again", "--partitions", "1")
    tidelog.run("produce", f"{topic}-again", "--input", "json", stdin=line)
    give_up(tidelog, f"{topic}-again", "y", attempts=2)  # and "x" with it, which comes first
    with Client(tidelog.url) as client:
        assert [one.retry for one in client.dead_letters.list(f"{topic}-again")] == [policy]
    written = tidelog.run("dlq", "show", letter_id, "--as-test").out.decode()
    (tmp_path / "handlers.py").write_text(
        "def handle(message):\n"
        "    assert (message.attempt, message.last_attempt, message.previous_error.text) == (2, False, 'poison')\n"
    )
    ended = _run(tmp_path, written)
    assert ended.returncode == 0, ended.stdout.decode()
    again = written.replace("from handlers import handle", "def handle(message): message.nack('again')")
    assert b"state='waiting'" in _run(tmp_path, again).stdout
    at_once = written.replace("from handlers import handle", "def handle(message): message.nack('again', delay=0)")
    assert b"state='available', attempts=2" in _run(tmp_path, at_once).stdout


def _run(folder: Path, written: str) -> subprocess.CompletedProcess[bytes]:
    """Run a file with pytest in a process of its own."""
    (folder / "test_dead_letter.py").write_text(written, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "test_dead_letter.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=60, check=False)
