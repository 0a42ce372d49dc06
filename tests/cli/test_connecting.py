"""`tidelog ping`, `tidelog get`, and what is said when something else answers (case 47)."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from tests.client.fake_broker import FakeBroker, Fault
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine

from tidelog.protocol.api import Api
from tidelog.protocol.errors import UnsupportedError

pytestmark = pytest.mark.process


def test_ping_says_who_answers(tidelog: CommandLine, shared_broker: BrokerProcess) -> None:
    """ping shows address, version, node, the broker's clock and the round trip."""
    fields = cast("dict[str, object]", json.loads(tidelog.run("ping", "--output", "json").out))
    assert fields.pop("round_trip_us") > 0  # pyright: ignore[reportOperatorIssue]
    assert str(fields.pop("server_time")).endswith("Z")
    assert fields == {
        "address": "{}:{}".format(*shared_broker.address),
        "broker_version": "0.1.0",
        "node_id": "node-1",
    }
    assert b"broker      tidelog 0.1.0\n" in tidelog.run("ping").out


def test_the_flag_wins_over_the_environment(tidelog: CommandLine, shared_broker: BrokerProcess) -> None:
    """--url is used instead of TIDELOG_URL, with or without a scheme."""
    for url in (shared_broker.url, "{}:{}".format(*shared_broker.address)):
        tidelog.run("ping", "--url", url, environment={"TIDELOG_URL": "127.0.0.1:1"})
    tidelog.run("ping", environment={"TIDELOG_URL": "127.0.0.1:1"}, code=1)


def test_a_bad_address_in_the_environment_is_named(tidelog: CommandLine) -> None:
    """What is wrong with TIDELOG_URL is wrong usage and says where it comes from."""
    error = tidelog.run("ping", environment={"TIDELOG_URL": "http://localhost"}, code=2).error
    assert error.startswith("tidelog: USAGE: ping: TIDELOG_URL: expected tidelog://host:9440")


COMMANDS = [
    ["ping"],
    ["get", "t/0@0"],
    ["topics", "list"],
    ["produce", "t"],
    ["consume", "t"],
    ["tail", "t"],
    ["replay", "t", "--from", "-1h", "--to", "now"],
    ["bench", "produce", "--messages", "10"],
    ["bench", "consume", "--messages", "10"],
    ["bench", "latency", "--messages", "10"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_broker_is_one_line(tidelog: CommandLine, command: list[str]) -> None:
    """Every command says at once that nobody answers, and what to start."""
    error = tidelog.run(*command, "--url", "127.0.0.1:1", stdin=b"line\n", code=1).error
    assert error == (
        "tidelog: CANNOT_CONNECT: cannot reach 127.0.0.1:1 (connection refused). Is it running? tidelog serve"
    )


@contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that is no broker; `answer` gets each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    try:
                        answer(connection)
                    except OSError:
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)


def ssh(connection: socket.socket) -> None:
    """Greet as an SSH server."""
    connection.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n")
    connection.recv(65536)
    connection.recv(65536)


def http(connection: socket.socket) -> None:
    """Refuse as an HTTP server."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def tls_alert(connection: socket.socket) -> None:
    """Refuse as a TLS server that met clear text."""
    connection.recv(65536)
    connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")


def four_bytes(connection: socket.socket) -> None:
    """Say four bytes, then nothing."""
    connection.sendall(b"GET ")
    connection.recv(65536)
    connection.recv(65536)


def huge_length(connection: socket.socket) -> None:
    """Claim a frame of 4 GiB."""
    connection.recv(65536)
    connection.sendall(b"\xff" * 64)


@pytest.mark.parametrize("answer", [ssh, http, tls_alert, huge_length], ids=lambda answer: answer.__name__)
def test_another_server_is_recognised(tidelog: CommandLine, answer: Callable[[socket.socket], None]) -> None:
    """Case 47: something else at the address is one line with what it said, exit code 1, and no reconnecting."""
    with server(answer) as address:
        error = tidelog.run("ping", "--url", address, "--timeout", "5s", code=1).error
    assert error.startswith("tidelog: NOT_A_BROKER: not a tidelog broker at " + address)


@pytest.mark.parametrize(
    "answer", [four_bytes, lambda connection: connection.recv(65536) and connection.recv(65536)], ids=["four", "silent"]
)
def test_a_silent_server_ends_in_time(tidelog: CommandLine, answer: Callable[[socket.socket], None]) -> None:
    """Case 47: a server that says four bytes or nothing ends within --timeout, with one line."""
    with server(answer) as address:
        run = tidelog.run("ping", "--url", address, "--timeout", "500ms", code=None)
    assert run.code in (1, 3)
    assert run.error.startswith("tidelog: ")
    assert address in run.error


def test_a_hostile_banner_is_escaped(tidelog: CommandLine) -> None:
    """Case 39: what another server says is shown escaped in the error line."""

    def hostile(connection: socket.socket) -> None:
        connection.sendall(b"\x1b]52;c;ZWNobw==\x07\r\n\x9b31m" + b"x" * 64)
        connection.recv(65536)

    with server(hostile) as address:
        error = tidelog.run("ping", "--url", address, "--timeout", "5s", code=1).error
    assert error.isprintable()


def test_get_finds_nothing_with_3(tidelog: CommandLine, topic: str) -> None:
    """A message that is not there, and a topic that is not there, are told apart."""
    assert "NOT_FOUND" in tidelog.run("get", f"{topic}/0@5", code=3).error
    assert "UNKNOWN_TOPIC" in tidelog.run("get", "nosuch/0@5", code=1).error


def test_get_shows_null_and_empty_apart(tidelog: CommandLine, topic: str) -> None:
    """Case 2: get shows null as null, and an empty value as nothing."""
    lines = b'{"value": null, "key": ""}\n{"value": "", "key": null}\n'
    tidelog.run("produce", topic, "--input", "json", stdin=lines)
    first = tidelog.run("get", f"{topic}/0@0").out.decode().splitlines()
    second = tidelog.run("get", f"{topic}/0@1").out.decode().splitlines()
    assert first[0].split() == ["id", f"{topic}/0@0"]
    assert [line.split() for line in first[-2:]] == [["key"], ["value", "null"]]
    assert [line.split() for line in second[-2:]] == [["key", "null"], ["value"]]


@pytest.mark.parametrize("url", ["tidelogs://localhost:9440", "tidelog://secret@localhost:9440"])
def test_what_is_not_there_yet_is_said(tidelog: CommandLine, url: str) -> None:
    """TLS and tokens are refused in one line, and never silently left out."""
    error = tidelog.run("ping", "--url", url, code=1).error
    assert error.startswith("tidelog: UNSUPPORTED: ")
    assert "secret" not in error


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_broker_of_a_later_version_is_one_line(tidelog: CommandLine, command: list[str]) -> None:
    """Case 47: a broker that no longer speaks this version says so, in one line and with exit code 1, to every verb."""
    with FakeBroker() as broker:
        refusal = UnsupportedError("expected protocol version 2, found 1: use a client of tidelog 2")
        broker.when(Api.HELLO, Fault.REFUSE, error=refusal, times=99)
        error = tidelog.run(*command, "--url", broker.address, "--timeout", "5s", stdin=b"line\n", code=1).error
        accepted = broker.accepted
    assert error == "tidelog: UNSUPPORTED: expected protocol version 2, found 1: use a client of tidelog 2"
    assert accepted == 1  # and no reconnecting


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_another_server_is_recognised_by_every_verb(tidelog: CommandLine, command: list[str]) -> None:
    """Case 47: no verb takes an SSH server for a broker."""
    with server(ssh) as address:
        run = tidelog.run(*command, "--url", address, "--timeout", "5s", stdin=b"line\n", code=1)
    assert run.out == b""
    assert run.error.startswith(f"tidelog: NOT_A_BROKER: not a tidelog broker at {address} (got ")
    assert "SSH-2.0-OpenSSH" in run.error


def test_memory_does_not_follow_a_claimed_length(tidelog: CommandLine) -> None:
    """Case 47: a server that claims a frame of 4 GiB does not make the command allocate it."""
    with server(huge_length) as address:
        limited = f"ulimit -v 1000000; exec {sys.executable} -m tidelog ping --url {address} --timeout 5s"
        run = subprocess.run(["sh", "-c", limited], capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout, run.stderr.count("\n")) == (1, "", 1)
    assert run.stderr.startswith(f"tidelog: NOT_A_BROKER: not a tidelog broker at {address}")
