"""Looking up the broker's name: bounded, shared, and ended by Ctrl-C."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import anyio
import pytest

from tests.client.fake_broker import FakeBroker
from tests.client.flavours import World, eventually, everywhere, in_loops
from tidelog import CannotConnectError, Client, TimedOutError
from tidelog.client.lookup import lookup

ROOT = Path(__file__).parent.parent.parent


class Names:
    """A name server that answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers = threading.Event()
        self._ask = socket.getaddrinfo

    def ask(self, host: str, port: int, *arguments: Any, **options: Any) -> Any:
        """Stand in for the system's call."""
        if host[0] not in "0123456789:":
            self.asked.append(host)
            assert self.answers.wait(20)
            host = "127.0.0.1"
        return self._ask(host, port, *arguments, **options)


@contextmanager
def names() -> Generator[Names]:
    """Have every lookup go to a Names."""
    server = Names()
    with patch("tidelog.client.lookup.socket.getaddrinfo", server.ask):
        try:
            yield server
        finally:
            server.answers.set()


@everywhere
async def test_a_name_that_is_not_answered_costs_no_more_than_the_timeout(world: World) -> None:
    """The call ends with its timeout, says what it waited for, and nothing was sent."""
    with names() as server:
        client = world.client(f"tidelog://slow.test:{world.broker.port}")
        with pytest.raises(TimedOutError, match=r"^cannot reach slow\.test:\d+: no answer .* address within 0.1 s$"):
            await client.ping(timeout=0.1)
        with pytest.raises(TimedOutError) as caught:
            await client.produce("t", b"", timeout=0.1)
        assert caught.value.details == {"stored": False}
        server.answers.set()
        await client.ping()
        await client.close()
        assert server.asked[0] == "slow.test"
    assert world.broker.accepted == 1


@everywhere
async def test_callers_share_a_lookup(world: World) -> None:
    """However many clients wait for a name, one thread asks for it."""
    with names() as server:
        clients = [world.client(f"tidelog://slow.test:{world.broker.port}") for _ in range(5)]

        async def answer() -> None:
            await world.elsewhere(lambda: eventually(lambda: bool(server.asked)))
            server.answers.set()

        await world.at_once(*[client.ping for client in clients], answer)
        assert server.asked == ["slow.test"] * len(server.asked)
        for client in clients:
            await client.close()
    assert world.broker.accepted == 5


@everywhere
async def test_the_next_server_is_tried_when_a_name_is_not_answered(world: World) -> None:
    """Of several servers one whose name nobody knows takes the time of one attempt, and not all there is."""
    link = "blocking" if world.flavour == "blocking" else "aio"
    # A second: a busy machine may not begin a lookup in a tenth of one.
    with names() as server, patch(f"tidelog.client.{link}.link.CONNECT_TIMEOUT_S", 1.0):
        async with world.client(None, servers=["slow.test:1", world.broker.address]) as client:
            assert (await client.ping()).address == world.broker.address
        assert server.asked == ["slow.test"]


@in_loops
async def test_a_cancelled_lookup_lets_go_at_once(world: World) -> None:
    """Cancelling a call that waits for a name ends it; the lookup goes on by itself and is joined by the next call."""
    with names() as server:
        async with world.client(f"tidelog://slow.test:{world.broker.port}") as client:
            with anyio.move_on_after(0.05) as scope:
                await client.ping()
            assert scope.cancelled_caught
            server.answers.set()
            await client.ping()
        assert server.asked[0] == "slow.test"


def test_ctrl_c_ends_a_lookup() -> None:
    """SIGINT while the name server says nothing raises KeyboardInterrupt at once, and the program can end."""
    program = """
import os, signal, sys, threading
from tests.client.test_lookup import names
from tests.client.flavours import eventually
from tidelog import Client

with names() as server:
    def interrupt():
        eventually(lambda: bool(server.asked))
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        Client("slow.test:1").ping(timeout=None)
    except KeyboardInterrupt:
        print("interrupted", server.answers.is_set())
    server.answers = threading.Event()  # the lookup still hangs, and the interpreter ends all the same
"""
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )
    assert run.stderr == ""
    assert run.stdout.splitlines() == ["interrupted False"]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_forked_during_a_lookup_makes_its_own() -> None:
    """The parent's thread that asks is not there in the child, which so must not wait for it."""
    with FakeBroker() as broker, names() as server:
        client = Client(f"tidelog://slow.test:{broker.port}")
        waiting = threading.Thread(target=client.ping)
        waiting.start()
        eventually(lambda: bool(server.asked))
        pid = os.fork()
        if not pid:
            code = 1
            try:
                server.answers.set()
                client.ping(timeout=10)
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        server.answers.set()
        waiting.join(10)
        assert not waiting.is_alive()
        client.close()


def test_numbers_are_not_looked_up() -> None:
    """An address in numbers needs no name server and no thread."""
    with names() as server:
        server.answers.set()
        threads = threading.active_count()
        assert lookup("127.0.0.1", 9440).addresses() == [(socket.AF_INET, ("127.0.0.1", 9440))]
        assert lookup("::1", 9440).addresses()
        assert threading.active_count() == threads


@pytest.mark.parametrize("host", ["a" * 70 + ".test", "x..y"])
def test_what_cannot_be_a_host_is_said_to_be_none(host: str) -> None:
    """A label that is too long or empty is an error about the address, not one about encodings."""
    with pytest.raises(CannotConnectError, match="cannot reach"):
        Client(servers=[f"{host}:9440"]).ping()
