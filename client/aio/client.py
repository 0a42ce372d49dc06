"""The client: one connection for requests, and the way to consumers and replays, which open their own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ..core.times import DEFAULT, Duration, Timeout
from ..headers import HeadersInput
from ..health import Health, Pong
from ..message import Message
from ..receipt import Receipt, ReceiptBatch
from .consumer import AsyncConsumer, Bound
from .replay import AsyncReplay
from .topics import AsyncTopics

Data = bytes | bytearray | memoryview | str | None


class AsyncClient:
    """A broker as seen from a program; any number of tasks may call it. Making one does no I/O.

    `url` is `tidelog://host:9440,host2/namespace` or `host:port`; left out, the environment's TIDELOG_URL, else
    localhost:9440. `timeout` is for each call in seconds, None waits for ever; every call takes its own.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        servers: Sequence[str] | None = None,
        namespace: str | None = None,
        token: str | None = None,
        tls: bool | None = None,
        client_name: str | None = None,
        timeout: Duration | None = 30.0,
    ) -> None:
        raise NotImplementedError

    @property
    def topics(self) -> AsyncTopics:
        """Create, list, describe, set, reopen and delete topics."""
        raise NotImplementedError

    @property
    def address(self) -> str:
        """`host:port` of the broker this client is connected to or tries first."""
        raise NotImplementedError

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; calls that wait and all later ones raise ClosedError."""
        raise NotImplementedError

    async def ping(self, *, timeout: Timeout = DEFAULT) -> Pong:
        """Ask for a sign of life."""
        raise NotImplementedError

    async def health(self, *, timeout: Timeout = DEFAULT) -> Health:
        """Say whether every partition is undamaged and takes writes."""
        raise NotImplementedError

    async def stats(self, *, timeout: Timeout = DEFAULT) -> dict[str, int | float]:
        """Return the broker's counters and gauges by name."""
        raise NotImplementedError

    async def get(self, message_id: str, *, timeout: Timeout = DEFAULT) -> Message:
        """Return one message by its id (`orders/2@45678`). Raises NotFoundError, UnknownTopicError."""
        raise NotImplementedError

    async def produce(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: HeadersInput | None = None,
        priority: int = 4,
        partition: int | None = None,
        timestamp: datetime | None = None,
        durability: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Receipt:
        """Store one message and return where it is, once it is as durable as `durability` (None: the topic's) says."""
        raise NotImplementedError

    async def produce_many(
        self,
        topic: str,
        values: Iterable[Data],
        *,
        keys: Iterable[Data] | None = None,
        headers: Iterable[HeadersInput | None] | None = None,
        priority: int | Sequence[int] = 4,
        partition: int | Sequence[int] | None = None,
        timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | None = None,
        durability: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> ReceiptBatch:
        """Store many messages, each column with one entry for each value, and return where they are.

        When it raises, `error.details["acknowledged"]` is how many messages are stored for certain.
        """
        raise NotImplementedError

    def consumer(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        start: Bound = "earliest",
        end: Bound | None = None,
        partition: int | None = None,
        by: str = "append_time",
        on_corrupt: str = "raise",
        on_gap: str = "raise",
        wait_for_topic: bool = False,
        timeout: Timeout = DEFAULT,
    ) -> AsyncConsumer:
        """Return a reader that leaves no state behind: from `start` on, and up to `end` (exclusive) where one is given.

        A bound is "earliest", "latest", an offset, a datetime, or a timedelta back from now.
        """
        raise NotImplementedError

    def replay(
        self,
        topic: str,
        *,
        start: Bound = "earliest",
        end: Bound = "latest",
        partition: int | None = None,
        by: str = "append_time",
        on_corrupt: str = "raise",
        missing: str = "raise",
        timeout: Timeout = DEFAULT,
    ) -> AsyncReplay:
        """Return an exact, repeatable range of a topic; its bounds are resolved once, at the first read."""
        raise NotImplementedError
