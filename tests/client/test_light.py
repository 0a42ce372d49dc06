"""What a program loads that only wants a client."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

from tests.client.fake_broker import FakeBroker
from tidelog.client.version import client_version

ROOT = Path(__file__).parent.parent.parent
SERVER = {"fastapi", "uvicorn", "starlette", "pydantic", "yaml", "structlog", "cffi"}
FRAMES = {"pyarrow", "pandas", "polars", "duckdb"}
COMMAND_LINE = {"typer", "click", "rich"}
LOOPS = {"trio", "anyio", "sniffio", "asyncio"}


def loaded(program: str, *arguments: str) -> set[str]:
    """Return the top-level modules that a fresh interpreter has after a program."""
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{program}\nimport sys; print(*{{name.split('.')[0] for name in sys.modules}})",
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "TIDELOG_URL": arguments[0] if arguments else ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(run.stdout.splitlines()[-1].split())


def test_the_package_alone_loads_nothing() -> None:
    """`import tidelog` loads nothing but itself and the standard library."""
    found = loaded("import tidelog")
    assert "tidelog" in found
    assert not found & (SERVER | FRAMES | COMMAND_LINE | LOOPS | {"numpy", "msgspec", "xxhash", "zstandard", "socket"})


def test_the_blocking_client_in_use_needs_no_event_loop() -> None:
    """A program that produces and reads with Client has loaded no event loop, server, data frames or command line."""
    program = """
from tidelog import Client
with Client() as client:
    client.produce("t", "one", key="k", headers={"a": "b"})
    client.produce_many("t", ["two", "three"])
    with client.consumer("t", end="latest") as consumer:
        assert [message.value for message in consumer] == [b"one", b"two", b"three"]
    assert sum(len(batch) for batch in client.replay("t")) == 3
    client.topics.list()
"""
    with FakeBroker() as broker:
        found = loaded(program, broker.url)
    assert {"tidelog", "numpy", "msgspec"} <= found
    assert not found & (SERVER | FRAMES | COMMAND_LINE | LOOPS)


def test_the_asynchronous_client_loads_the_loop_that_is_used() -> None:
    """Under asyncio no trio is loaded, and nothing of the blocking client's world either."""
    program = """
import asyncio, sys
from tidelog import AsyncClient

async def main():
    async with AsyncClient() as client:
        await client.produce("t", "one")
        async with client.consumer("t", end="latest") as consumer:
            assert [message.value async for message in consumer] == [b"one"]

asyncio.run(main())
assert "tidelog.client.blocking.client" not in sys.modules
"""
    with FakeBroker() as broker:
        found = loaded(program, broker.url)
    assert {"tidelog", "anyio", "asyncio"} <= found
    assert not found & (SERVER | FRAMES | COMMAND_LINE | {"trio"})


def test_the_version_is_the_installed_one() -> None:
    """What a client says in its greeting is what pip shows."""
    assert client_version() == importlib.metadata.version("tidelog")
