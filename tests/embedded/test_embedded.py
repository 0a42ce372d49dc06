"""A broker inside the program: how it starts, is reached, is configured and ends."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import anyio
import pytest

from tests.client.flavours import FLAVOURS, World, run
from tidelog import (
    AsyncClient,
    Broker,
    CannotConnectError,
    CannotListenError,
    Client,
    ClosedError,
    ConfigError,
    DataDirLockedError,
    ForkedError,
)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_messages_go_through_memory(flavour: str) -> None:
    """A client of each flavour, given the broker's URL, stores and reads without a port."""

    async def body(world: World) -> None:
        async with world.client(broker.url) as client:
            receipt = await client.produce("t", b"x", partition=0)
            assert (receipt.partition, receipt.offset) == (0, 0)
            assert [message.value async for message in client.replay("t").messages()] == [b"x"]

    with Broker() as broker:
        assert broker.url.startswith("memory://")
        run(flavour, body)


def test_it_makes_clients_of_both_kinds() -> None:
    """`client` and `async_client` take what Client and AsyncClient take."""

    async def ping() -> None:
        async with broker.async_client(client_name="b", timeout=5) as client:
            assert isinstance(client, AsyncClient)
            assert (await client.ping()).address == broker.url

    with Broker() as broker:
        with broker.client(namespace="shop", timeout=5) as client:
            assert isinstance(client, Client)
            assert client.produce("t", "x", partition=0).id == "shop/t/0@0"
        anyio.run(ping)
        with pytest.raises(TypeError, match="nonsense"):
            broker.client(nonsense=1)  # pyright: ignore


def test_the_environment_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """TIDELOG_URL may be a memory URL, with a namespace behind it."""
    with Broker() as broker:
        monkeypatch.setenv("TIDELOG_URL", broker.url + "/shop")
        with Client() as client:
            assert client.produce("t", "x", partition=0).id == "shop/t/0@0"


def test_what_is_on_disk_stays(tmp_path: Path) -> None:
    """A broker on a folder finds what an earlier one stored; one in memory begins with nothing."""
    for expected in ([], [b"x"]):
        with Broker(tmp_path / "data") as broker, broker.client() as client:
            if not expected:
                client.topics.create("t", partitions=1)
            assert [message.value for message in client.replay("t").messages()] == expected
            client.produce("t", b"x")
    assert (tmp_path / "data" / "VERSION").read_text() == "1\n"
    with Broker() as broker, broker.client() as client:
        assert client.topics.list() == []


def test_two_on_one_folder(tmp_path: Path) -> None:
    """The second is refused where it starts, and the first goes on."""
    with Broker(tmp_path) as first:
        with pytest.raises(DataDirLockedError, match=f"found process {os.getpid()} running on it"):
            Broker(tmp_path).start()
        with first.client() as client:
            assert client.ping().node_id == "node-1"
    with Broker(tmp_path) as second, second.client() as client:
        assert client.ping().node_id == "node-1"


def test_a_port_for_others() -> None:
    """With `listen` the URL is an address that another process connects to, and two brokers get two ports."""
    script = "import tidelog; print(tidelog.Client().produce('t', b'x', partition=0).offset)"
    with Broker(listen=True) as broker, Broker(listen="127.0.0.1:0") as other:
        assert broker.url.startswith("tidelog://127.0.0.1:")
        assert broker.url != other.url
        child = subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "TIDELOG_URL": broker.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (child.stdout, child.stderr) == ("0\n", "")
        with pytest.raises(CannotListenError, match="Address already in use"):
            Broker(listen=other.url.removeprefix("tidelog://")).start()


def test_another_process_is_told_why_it_cannot_connect() -> None:
    """A memory URL says there which process it is of, and what to do."""
    with Broker() as broker:
        child = subprocess.run(
            [sys.executable, "-m", "tidelog", "ping", "--url", broker.url], capture_output=True, text=True, timeout=60
        )
    assert child.returncode == 1
    assert f"that broker is inside process {os.getpid()}" in child.stderr
    assert "Broker(listen=True)" in child.stderr


def test_the_command_line_reaches_it_inside_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    """`--url memory://...` works for commands that run in the same process."""
    from tidelog.__main__ import main

    with Broker() as broker:
        assert main(["topics", "create", "orders", "--partitions", "1", "--url", broker.url]) == 0
        assert main(["topics", "list", "--url", broker.url, "--output", "json"]) == 0
    assert '"name":"orders"' in capsys.readouterr().out


def test_unknown_and_malformed_names() -> None:
    """A name that no broker has, and what is no name, are errors that show what is meant."""
    with Client("memory://nobody") as client, pytest.raises(CannotConnectError, match="no broker of this name runs"):
        client.ping()
    for url in ("memory://", "memory://a b", "memory://a@b", "memory://a,b"):
        with pytest.raises(ValueError, match="expected memory://NAME"):
            Client(url)


def test_configuration_is_checked_like_the_file() -> None:
    """Sections by name or as a mapping, every wrong key named at once, before anything starts."""
    with Broker(topics={"partitions": 2}, config={"topics": {"max_topics": 1}}) as broker, broker.client() as client:
        client.produce("t", b"x")
        assert len(client.topics.describe("t").partitions) == 2
    with pytest.raises(ConfigError) as caught:
        Broker(topics={"partitions": "many"}, log={"nonsense": 1}, nonsense={})
    assert {problem.key for problem in caught.value.problems} == {"topics.partitions", "log.nonsense", "nonsense"}
    with pytest.raises(TypeError, match=r"topics: expected keys with their values"):
        Broker(topics=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="data_dir: expected it once"):
        Broker("a", broker={"data_dir": "b"})
    with pytest.raises(TypeError, match="data_dir: expected a path"):
        Broker(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="listen: expected"):
        Broker(listen=9440)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="insecure"):
        Broker(listen="0.0.0.0:0")


def test_the_environment_counts_where_nothing_else_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for `tidelog serve`."""
    monkeypatch.setenv("TIDELOG_TOPICS__PARTITIONS", "3")
    for sections, expected in (({}, 3), ({"topics": {"partitions": 1}}, 1)):
        with Broker(config=sections) as broker, broker.client() as client:
            client.produce("t", b"x")
            assert len(client.topics.describe("t").partitions) == expected


def test_it_is_used_between_start_and_close() -> None:
    """Before and after, each call says so; a second start, and a start after the close, are refused."""
    broker = Broker()
    with pytest.raises(ClosedError, match="was not started"):
        broker.client()
    with broker:
        url = broker.url
        with pytest.raises(ClosedError, match="make another one"):
            broker.start()
    broker.close()
    for use in (broker.client, broker.async_client, lambda: broker.url):
        with pytest.raises(ClosedError, match="is closed"):
            use()
    with pytest.raises(ClosedError, match="make another one"):
        broker.start()
    with Client(url) as client, pytest.raises(ClosedError, match="the broker is closed"):
        client.ping()


def test_a_client_that_outlives_it_is_told() -> None:
    """At once, and not after its timeout: a broker in memory does not come back."""
    with Broker() as broker:
        client = broker.client()
        client.produce("t", b"x")
        began = time.monotonic()
    with pytest.raises(ClosedError, match="the broker is closed"):
        client.ping(timeout=60)
    assert time.monotonic() - began < 10
    client.close()


def test_an_exception_in_the_block_is_the_one_that_comes_out(tmp_path: Path) -> None:
    """The broker is closed as cleanly, so the folder is free and complete."""

    def fail() -> None:
        with Broker(tmp_path) as broker, broker.client() as client:
            client.produce("t", b"x", durability="received")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with Broker(tmp_path) as broker, broker.client() as client:
        assert [message.value for message in client.replay("t").messages()] == [b"x"]


def test_any_thread_may_use_it() -> None:
    """Clients that are made and used in many threads at once."""
    with Broker() as broker:
        done: list[int | None] = []

        def work(number: int) -> None:
            with broker.client() as client:
                done.append(client.produce("t", b"%d" % number, partition=0).offset)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert set(done) == {*range(16)}


def test_async_with_blocks_no_loop() -> None:
    """`async with` starts and closes it while other tasks run."""

    async def body() -> None:
        async with Broker() as broker, broker.async_client() as client:
            assert (await client.produce("t", b"x", partition=0)).offset == 0

    for backend in ("asyncio", "trio"):
        anyio.run(body, backend=backend)


def test_a_hundred_leave_nothing_behind() -> None:
    """Threads, descriptors and memory are what they were, clients that were left open included."""

    def once() -> None:
        with Broker() as broker:
            client = broker.client()
            client.produce("t", b"x" * 10_000)

    def count() -> tuple[int, int]:
        gc.collect()
        ours = [each for each in threading.enumerate() if each.name.startswith("tidelog")]
        return len(ours), len(list(Path("/proc/self/fd").iterdir()))

    def resident_kib() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    for _ in range(10):
        once()
    before, memory = count(), resident_kib()
    for _ in range(100):
        once()
    assert count() == before
    assert resident_kib() - memory < 20_000


def test_one_that_is_dropped_stops_with_a_warning() -> None:
    """Whoever forgets to close it is told, and the folder becomes free."""
    kept = [Broker().start()]
    name = kept[0].url
    with pytest.warns(ResourceWarning, match="never closed"):
        kept.clear()
    with Client(name) as client, pytest.raises(ClosedError):
        client.ping()


def test_the_end_of_the_program_closes_it(tmp_path: Path) -> None:
    """Without a close, what was answered is on disk, the lock is free and the process ends by itself."""
    script = (
        "import sys, tidelog; b = tidelog.Broker(sys.argv[1]).start(); c = b.client();"
        "c.produce('t', b'x', durability='received')"
    )
    child = subprocess.run(
        [sys.executable, "-W", "always", "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert child.returncode == 0
    assert "ResourceWarning: a tidelog.Broker was never closed" in child.stderr
    assert "Traceback" not in child.stderr
    with Broker(tmp_path) as broker, broker.client() as client:
        assert [message.value for message in client.replay("t").messages()] == [b"x"]


def test_ctrl_c_does_not_kill_it_half_way(tmp_path: Path) -> None:
    """KeyboardInterrupt leaves the block in the main thread; the broker stops cleanly and keeps what it answered."""
    script = (
        "import os, signal, sys, tidelog\n"
        "with tidelog.Broker(sys.argv[1]) as broker, broker.client() as client:\n"
        "    client.produce('t', b'x', durability='received')\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    client.consumer('t', start='latest').receive()\n"
    )
    child = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert child.stderr.rstrip().endswith("KeyboardInterrupt")
    with Broker(tmp_path) as broker, broker.client() as client:
        assert [message.value for message in client.replay("t").messages()] == [b"x"]


def in_a_child(check: object) -> int:
    """Fork, run a function there, and return the child's exit code."""
    assert callable(check)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads: that is what is tried
        child = os.fork()
    if not child:
        code = 1
        try:
            check()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_has_none(tmp_path: Path) -> None:
    """There it is refused, closing it does nothing to the parent's, and a new one may be made."""
    with Broker(tmp_path) as broker, broker.client() as client:
        client.produce("t", b"x")

        def check() -> None:
            for use in (broker.client, broker.start, lambda: broker.url, client.ping):
                with pytest.raises(ForkedError):
                    use()
            broker.close()
            with Broker() as other, other.client() as fresh:
                assert fresh.ping().node_id == "node-1"

        assert in_a_child(check) == 0
        assert client.ping().node_id == "node-1"


def test_a_child_that_lives_on_holds_no_lock(tmp_path: Path) -> None:
    """The parent's folder is free once the parent closed it, whatever its children are at."""
    read, write = os.pipe()
    with Broker(tmp_path):
        child = os.fork()
        if not child:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
    try:
        with Broker(tmp_path) as broker, broker.client() as client:
            assert client.ping().node_id == "node-1"
    finally:
        os.close(write)
        os.waitpid(child, 0)
        os.close(read)


def test_it_logs_only_where_it_is_told_to(capfd: pytest.CaptureFixture[str]) -> None:
    """A `logging` section sends what the broker says to standard error; without one it says nothing."""
    from tidelog.broker.logging import silence

    try:
        for sections, expected in (({}, 0), ({"logging": {"level": "info", "format": "json"}}, 1)):
            with Broker(config=sections):
                pass
            assert capfd.readouterr().err.count('"event": "serving"') == expected
    finally:
        silence()
