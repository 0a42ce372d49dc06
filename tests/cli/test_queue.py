"""Queue groups on the command line: taking messages, settling them, and what is left when a command ends early."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import TIMEOUT_S, CommandLine
from tests.helpers.proxy import Proxy

from tidelog.client.cli.consume_queue import AT_ONCE
from tidelog.protocol.api import Api

pytestmark = pytest.mark.process


def states(tidelog: CommandLine, topic: str, count: int, group: str = "g") -> list[tuple[str, int]]:
    """Return state and attempts of each message of a topic with one partition."""
    found: list[tuple[str, int]] = []
    for offset in range(count):
        line = json.loads(tidelog.run("get", f"{topic}/0@{offset}", "--output", "json").out)
        (state,) = [each for each in line["groups"] if each["group"] == group]
        found.append((state["state"], state["attempts"]))
    return found


def rest(tidelog: CommandLine, topic: str, group: str = "g") -> list[dict[str, object]]:
    """Take everything that is available, as JSON."""
    command = ("consume", topic, "--group", group, "--mode", "queue", "--output", "json")
    return [json.loads(line) for line in tidelog.run(*command, code=None).lines]


def lease(tidelog: CommandLine, topic: str, group: str, *options: str) -> dict[str, str]:
    """Leave one message leased; return its JSON line."""
    command = ("consume", topic, "--group", group, "--mode", "queue", "--settle", "none", "--limit", "1", *options)
    return json.loads(tidelog.run(*command, "--output", "json").out)


def test_what_was_written_out_is_acknowledged(tidelog: CommandLine, topic: str) -> None:
    """Each message once: the second command gets what the first left, the third nothing, another group all."""
    group = f"{topic}-once"
    tidelog.run("produce", topic, stdin=b"a\nb\n\nd\ne\n")
    command = ("consume", topic, "--group", group, "--mode", "queue")
    assert tidelog.run(*command, "--limit", "2").out == b"a\nb\n"
    assert states(tidelog, topic, 5, group) == [("acknowledged", 0)] * 2 + [("available", 0)] * 3
    assert tidelog.run(*command).out == b"\nd\ne\n"
    assert tidelog.run(*command, code=3).error == (
        f"tidelog: NOT_FOUND: no message of {topic} is available to group {group}"
    )
    assert tidelog.run("consume", topic, "--group", f"{group}-2", "--mode", "queue", "--from", "earliest").lines == [
        b"a",
        b"b",
        b"",
        b"d",
        b"e",
    ]


def test_a_group_says_its_mode_itself(tidelog: CommandLine, topic: str) -> None:
    """Once a group is there its mode may be left out; of a new one it has to be said."""
    tidelog.run("produce", topic, stdin=b"a\nb\n")
    group = f"{topic}-known"
    error = tidelog.run("consume", topic, "--group", group, code=2).error
    assert f'tidelog: USAGE: consume: expected --mode queue: there is no group "{group}"' in error
    tidelog.run("consume", topic, "--group", group, "--mode", "queue", "--limit", "1")
    assert tidelog.run("consume", topic, "--group", group).out == b"b\n"


def test_from_says_where_a_new_group_begins(tidelog: CommandLine, topic: str) -> None:
    """And only a new one: later it goes on where it is."""
    tidelog.run("produce", topic, stdin=b"a\nb\nc\n")
    group = f"{topic}-from"
    command = ("consume", topic, "--group", group, "--mode", "queue")
    assert tidelog.run(*command, "--from", "1").out == b"b\nc\n"
    assert tidelog.run(*command, "--from", "earliest", code=3).out == b""


@pytest.mark.parametrize("api", [Api.JOIN_GROUP, Api.ACQUIRE], ids=lambda api: api.name)
def test_a_silence_begins_when_the_broker_has_answered(
    shared_broker: BrokerProcess, tidelog: CommandLine, topic: str, tmp_path: Path, api: Api
) -> None:
    """A join and a first answer that take longer than the second of silence are no silence: the messages come."""
    tidelog.run("produce", topic, stdin=b"a\nb\n")
    with Proxy("127.0.0.1", shared_broker.port) as proxy:
        held = proxy.hold(api, replies=True)
        late = threading.Timer(3.0, held.release)
        late.start()
        command = ("consume", topic, "--group", f"{topic}-late", "--mode", "queue")
        assert CommandLine(proxy.url, tmp_path).run(*command).out == b"a\nb\n"
        late.join()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mode", "queue"], "--mode needs --group"),
        (["--settle", "none"], "--settle needs --group"),
        (["--visibility-timeout", "5s"], "--visibility-timeout needs --group"),
        (["--group", "g", "--mode", "stream"], "expected --mode queue: stream groups are not there yet"),
        (["--group", "g", "--to", "5"], "expected no --to, --partition or --include-archived with --group"),
        (["--group", "g", "--partition", "0"], "expected no --to, --partition or --include-archived with --group"),
        (["--group", "a b"], "invalid value for '--group': expected a group name of 1 to 116 of A-Z a-z 0-9"),
        (["--group", "g", "--settle", "maybe"], "invalid value for '--settle'"),
        (
            ["--group", "g", "--visibility-timeout", "13h"],
            "invalid value for '--visibility-timeout': expected 1s to 12h, found 13h",
        ),
        (
            ["--group", "g", "--settle", "none", "--visibility-timeout", "0s"],
            "invalid value for '--visibility-timeout': expected 1s to 12h, found 0s",
        ),
    ],
)
def test_wrong_usage_is_told_in_one_line(tidelog: CommandLine, topic: str, options: list[str], message: str) -> None:
    """Exit code 2, before anything is taken."""
    error = tidelog.run("consume", topic, *options, code=2).error
    assert error.startswith(f"tidelog: USAGE: consume: {message}")


def test_a_topic_that_is_not_there_is_a_failure(tidelog: CommandLine) -> None:
    """Exit code 1, and no group is made."""
    error = tidelog.run("consume", "nowhere", "--group", "nowhere", "--mode", "queue", code=1).error
    assert error.startswith('tidelog: UNKNOWN_TOPIC: no topic "nowhere" on ')


# -- tokens ----------------------------------------------------------------------------------------------------------


def test_a_token_is_printed_and_settles(tidelog: CommandLine, topic: str) -> None:
    """A line is the token, a tab and the value; acknowledged by it the message is done, and again is no error."""
    tidelog.run("produce", topic, stdin=b"one\ttab\ntwo\n")
    group = f"{topic}-token"
    command = ("consume", topic, "--group", group, "--mode", "queue", "--settle", "none")
    first, second = tidelog.run(*command).lines
    token, _, value = first.partition(b"\t")
    assert (value, second.partition(b"\t")[2]) == (b"one\ttab", b"two")
    assert states(tidelog, topic, 2, group) == [("leased", 1)] * 2
    for _ in range(2):
        assert tidelog.run("settle", token.decode(), "ack").out == b""
    assert states(tidelog, topic, 2, group) == [("acknowledged", 0), ("leased", 1)]
    assert json.loads(tidelog.run("settle", token.decode(), "ack", "--output", "json").out) == {"settled": "ack"}
    error = tidelog.run("settle", token.decode(), "reject", code=1).error
    assert error.startswith("tidelog: LEASE_LOST: ")


def test_every_action_does_what_it_says(tidelog: CommandLine, topic: str) -> None:
    """nack with a delay waits, with the error kept; nack at once comes again; reject gives up; extend keeps."""
    tidelog.run("produce", topic, stdin=b"0\n1\n2\n3\n")
    group = f"{topic}-actions"
    taken = [lease(tidelog, topic, group, "--visibility-timeout", "60s") for _ in range(4)]
    assert [(each["value"], each["attempt"], each["previous_error"]) for each in taken] == [
        (f"{at}", 1, None) for at in range(4)
    ]
    tokens = [each["lease_token"] for each in taken]
    tidelog.run("settle", tokens[0], "nack", "--error", "card declined", "--delay", "1h")
    tidelog.run("settle", tokens[1], "nack", "--error", "again", "--delay", "0s")
    tidelog.run("settle", tokens[2], "reject", "--error", "poison")
    tidelog.run("settle", tokens[3], "extend", "--for", "2h")
    found = states(tidelog, topic, 4, group)
    assert found[2] in (("dead-lettering", 1), ("dead-lettered", 1))  # its copy is made beside
    assert [*found[:2], found[3]] == [("waiting", 1), ("available", 1), ("leased", 1)]
    shown = tidelog.run("get", f"{topic}/0@0").out.decode()
    assert f"group      {group}: waiting until 2" in shown
    assert "1 attempt, the last failed: card declined" in shown
    due = json.loads(tidelog.run("get", f"{topic}/0@3", "--output", "json").out)["groups"][0]["due"]
    assert due > taken[3]["lease_expires_at"]
    again = lease(tidelog, topic, group)
    assert (again["value"], again["attempt"], again["previous_error"]) == ("1", 2, "again")


def test_a_lease_runs_for_as_long_as_was_asked_for(tidelog: CommandLine, topic: str) -> None:
    """--visibility-timeout is that of these messages: what is not settled by then has failed the attempt."""
    tidelog.run("produce", topic, stdin=b"a\n")
    group = f"{topic}-expires"
    tidelog.run("groups", "create", group, "--topic", topic, "--set", "backoff=constant:1h")
    token = lease(tidelog, topic, group, "--visibility-timeout", "1s")["lease_token"]
    until = time.monotonic() + TIMEOUT_S
    while states(tidelog, topic, 1, group) == [("leased", 1)] and time.monotonic() < until:
        select.select([], [], [], 0.1)
    assert states(tidelog, topic, 1, group) == [("waiting", 1)]
    assert tidelog.run("settle", token, "ack", code=1).error.startswith("tidelog: LEASE_LOST: ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ack", "--error", "x"], "--error needs nack or reject"),
        (["reject", "--delay", "1s"], "--delay needs nack"),
        (["nack", "--for", "1s"], "--for needs extend"),
        (["done"], "invalid value for 'ack|nack|reject|extend'"),
        (["nack", "--delay", "-5m"], "invalid value for '--delay': expected a duration such as 250ms"),
        (["nack", "--delay", "366d"], "invalid value for '--delay': expected 0s to 365d, found 366d"),
        (["extend", "--for", "0s"], "invalid value for '--for': expected more than 0s and at most 12h, found 0s"),
        (["extend", "--for", "13h"], "invalid value for '--for': expected more than 0s and at most 12h, found 13h"),
    ],
)
def test_flags_of_settle_go_with_their_actions(
    tidelog: CommandLine, topic: str, arguments: list[str], message: str
) -> None:
    """Wrong usage in one line, and nothing is settled."""
    tidelog.run("produce", topic, stdin=b"a\n")
    group = f"{topic}-flags"
    token = lease(tidelog, topic, group)["lease_token"]
    assert tidelog.run("settle", token, *arguments, code=2).error.startswith(f"tidelog: USAGE: settle: {message}")
    assert states(tidelog, topic, 1, group) == [("leased", 1)]


def test_a_token_with_a_slip_is_wrong_usage(tidelog: CommandLine, topic: str) -> None:
    """The checksum finds it, before any broker is asked."""
    tidelog.run("produce", topic, stdin=b"a\n")
    token = lease(tidelog, topic, f"{topic}-slip")["lease_token"]
    slip = ("B" if token[20] != "B" else "C").join((token[:20], token[21:]))
    error = tidelog.run("settle", slip, "ack", code=2).error
    assert error.startswith("tidelog: USAGE: settle: invalid value for 'TOKEN': expected a message's lease_token")


def test_what_json_prints_json_reads(tidelog: CommandLine, topic: str) -> None:
    """A leased message's line makes another message, without its token and attempt."""
    tidelog.run("produce", topic, "--key", "k", "--header", "a=b", stdin=b"value\n")
    command = ("consume", topic, "--group", f"{topic}-json", "--mode", "queue", "--settle", "none", "--output", "json")
    line = tidelog.run(*command).out
    tidelog.run("produce", f"{topic}-copy", "--input", "json", stdin=line)
    tidelog.run(
        "produce", f"{topic}-copy", "--input", "json", stdin=tidelog.run("get", f"{topic}/0@0", "--output", "json").out
    )
    copies = [json.loads(each) for each in tidelog.run("consume", f"{topic}-copy", "--output", "json").lines]
    assert [(each["key"], each["value"], each["headers"]) for each in copies] == [("k", "value", [["a", "b"]])] * 2


# -- ending early ----------------------------------------------------------------------------------------------------


def test_head_gives_back_what_it_did_not_take(tidelog: CommandLine, topic: str) -> None:
    """After `| head` nothing is said and nothing is lost: what was not acknowledged is available, uncounted."""
    count = 3_000
    tidelog.run("produce", topic, stdin=b"".join(b"%d %s\n" % (at, b"x" * 500) for at in range(count)))
    group = f"{topic}-head"
    with tidelog.start("consume", topic, "--group", group, "--mode", "queue", "--follow") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        wanted = AT_ONCE * 510  # all that it writes before it acknowledges, and more
        while wanted > 0:
            found = len(process.stdout.read(wanted))  # no buffer is between: what the pipe has, at most 64 KiB
            assert found, "it ended early"
            wanted -= found
        process.stdout.close()
        assert (process.wait(TIMEOUT_S), process.stderr.read()) == (0, b"")
    left = rest(tidelog, topic, group)
    assert 0 < len(left) < count
    assert {each["attempt"] for each in left} == {1}
    assert [each["offset"] for each in left] == [*range(count - len(left), count)]


def test_a_full_disk_gives_everything_back(tidelog: CommandLine, topic: str) -> None:
    """What could not be written is not acknowledged, and no attempt counts."""
    tidelog.run("produce", topic, stdin=b"a\nb\n")
    group = f"{topic}-full"
    for settle in ("ack", "none"):
        run = subprocess.run(
            [
                *("sh", "-c", '"$@" >/dev/full', "sh", sys.executable, "-m", "tidelog", "consume", topic),
                *("--group", group, "--mode", "queue", "--settle", settle),
            ],
            stderr=subprocess.PIPE,
            env=tidelog.environment(),
            timeout=TIMEOUT_S,
        )
        expected = b"tidelog: FILE_ERROR: cannot write standard output: No space left on device\n"
        assert (run.returncode, run.stderr) == (1, expected)
        assert states(tidelog, topic, 2, group) == [("available", 0)] * 2


def test_ctrl_c_gives_back_what_is_not_written(tidelog: CommandLine, topic: str) -> None:
    """A follower that is interrupted ends with 130 and not a word; everything is once in its output or available."""
    count = 2_000
    tidelog.run("produce", topic, stdin=b"".join(b"%d %s\n" % (at, b"x" * 500) for at in range(count)))
    group = f"{topic}-interrupted"
    with tidelog.start("consume", topic, "--group", group, "--mode", "queue", "--follow") as process:
        assert process.stdout is not None
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert (process.returncode, err) == (130, b"")
    written = [int(line.split()[0]) for line in (first + out).split(b"\n") if line]
    left = rest(tidelog, topic, group)
    assert {each["attempt"] for each in left} <= {1}
    both = Counter(written) + Counter(each["offset"] for each in left)
    assert set(both) == {*range(count)}
    repeated = [offset for offset, times in both.items() if times > 1]
    assert len(repeated) <= 500  # written, and interrupted before it was acknowledged


def test_a_silence_ends_a_follower_with_3(tidelog: CommandLine, topic: str) -> None:
    """--timeout is about messages that do not come; what came before is acknowledged."""
    tidelog.run("produce", topic, stdin=b"a\n")
    group = f"{topic}-silence"
    found = tidelog.run("consume", topic, "--group", group, "--mode", "queue", "--follow", "--timeout", "1s", code=3)
    assert (found.out, found.error) == (b"a\n", "tidelog: TIMED_OUT: expected a message within 1 s, found none")
    assert states(tidelog, topic, 1, group) == [("acknowledged", 0)]


def test_the_name_of_a_group_is_offered(tidelog: CommandLine, topic: str) -> None:
    """Tab after --group asks the broker."""
    tidelog.run("groups", "create", f"offered-{topic}", "--topic", topic)
    line = f"tidelog consume {topic} --group offered-{topic}"
    words = line.split(" ")
    asked = {"_TIDELOG_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    assert tidelog.run(environment=asked).out.decode().split() == [f"offered-{topic}"]
