"""A broker that the tests of the command line share; each test has topics of its own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine

_numbers = count(1)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A real broker for all tests of this folder that do not harm it."""
    with BrokerProcess(tmp_path_factory.mktemp("cli") / "data") as broker:
        yield broker


@pytest.fixture
def tidelog(shared_broker: BrokerProcess, tmp_path: Path) -> CommandLine:
    """The command line against the shared broker, in a folder of the test's own."""
    return CommandLine(shared_broker.url, tmp_path)


@pytest.fixture
def topic(tidelog: CommandLine) -> str:
    """A topic of the test's own, with one partition."""
    name = f"topic-{next(_numbers)}"
    tidelog.run("topics", "create", name, "--partitions", "1")
    return name
