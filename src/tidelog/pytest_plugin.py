"""Fixtures for whoever tests with tidelog installed: a broker of the test's own, and a client of it.

pytest loads this in every run, so it imports nothing of tidelog before a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tidelog import Client, Message
    from tidelog.testing import Broker


@pytest.fixture
def tidelog_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A broker for this test alone, in memory, on a virtual clock; what makes a `Client()` finds it by TIDELOG_URL."""
    from tidelog.testing import Broker

    with Broker() as broker:
        monkeypatch.setenv("TIDELOG_URL", broker.url)
        yield broker


@pytest.fixture
def tidelog_client(tidelog_broker: Broker) -> Iterator[Client[Message]]:
    """A blocking client of `tidelog_broker`."""
    with tidelog_broker.client() as client:
        yield client
