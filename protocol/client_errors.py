"""What the client raises without having been told by a broker: these numbers never travel. `errors` has the tree."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from .error_base import Detail, TidelogError


class ClientError(TidelogError):
    """Base of what the client raises without having been told by a broker."""

    code, number = "CLIENT_ERROR", 100


class CannotConnectError(ClientError):
    """No broker answers at the address; the message says why and what to start."""

    code, number, retriable = "CANNOT_CONNECT", 101, True


class NotATidelogBrokerError(ClientError):
    """Something else answers at the address; the message shows what it said."""

    code, number = "NOT_A_BROKER", 102


class ConnectionLostError(ClientError):
    """The connection broke while a request waited for its reply."""

    code, number, retriable = "CONNECTION_LOST", 103, True


class TimedOutError(ClientError, TimeoutError):
    """The call's `timeout` passed before it was done."""

    code, number, retriable = "TIMED_OUT", 104, True


class OutcomeUnknownError(ClientError):
    """A batch was sent but no reply came in time: it is stored once or not at all. So are changes of topics."""

    code, number = "OUTCOME_UNKNOWN", 105


class ClosedError(ClientError):
    """The client, consumer or replay was closed."""

    code, number = "CLOSED", 106


class ConcurrentUseError(ClientError):
    """Two threads or tasks iterate one consumer; give each its own."""

    code, number = "CONCURRENT_USE", 107


class ForkedError(ClientError):
    """An object made before a fork is used in the child; make a new one there."""

    code, number = "FORKED", 108


class RangeNotAvailableError(ClientError):
    """Part of a replayed range was removed by retention or is damaged; `details` says what exists."""

    code, number = "RANGE_NOT_AVAILABLE", 109


class WrongLoopError(ClientError):
    """An AsyncClient made in one event loop is used in another."""

    code, number = "WRONG_LOOP", 110


class BufferFullError(ClientError):
    """A producer's buffer stayed full for `max_block`: the broker takes less than is sent, or is away."""

    code, number, retriable = "BUFFER_FULL", 111, True


class SentRecord(NamedTuple):
    """A message as it was given to a producer, its key and value as bytes."""

    topic: str
    value: bytes | None
    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    priority: int
    partition: int
    timestamp: datetime | None
    dedup_id: str | bytes | None
    retry: object = None
    """The tidelog.Retry that it was sent with, or None."""


class FailedMessage(NamedTuple):
    """One message that was not delivered, the `tag` it was sent with, and why."""

    record: SentRecord
    tag: object
    error: TidelogError


class DeliveryError(ClientError):
    """Messages that a producer took are not stored, or perhaps not; `failed` has the first of them, `count` is exact.

    Each has an error of its own, whose `details["stored"]` is False where that is certain.
    """

    code, number = "DELIVERY_FAILED", 112

    def __init__(
        self, message: str, *, failed: Sequence[FailedMessage] = (), count: int = 0, **details: Detail
    ) -> None:
        super().__init__(message, **details)
        self.failed = list(failed)
        self.count = count or len(self.failed)

    def __reduce__(self) -> tuple[object, ...]:
        return *super().__reduce__(), {"failed": self.failed, "count": self.count}


class WouldBlockForever(ClientError):
    """On a virtual clock: everybody waits, and neither a timeout nor the broker will ever end it."""

    code, number = "WOULD_BLOCK_FOREVER", 114


class DetachedError(ClientError):
    """A message that no queue holds, such as one that was unpickled, is settled by its own calls; use its token:
    `client.settle(message.lease_token, "ack")`."""

    code, number = "DETACHED", 115


class DecodeError(ClientError):
    """A stored value is not what its codec expects; `raw` of the message has the bytes. The loop goes on."""

    code, number = "DECODE_FAILED", 113

    @property
    def topic(self) -> str | None:
        """The message's topic."""
        return str(self.details["topic"]) if "topic" in self.details else None

    @property
    def partition(self) -> int | None:
        """The message's partition."""
        return self._number("partition")

    @property
    def offset(self) -> int | None:
        """The message's offset."""
        return self._number("offset")

    def _number(self, name: str) -> int | None:
        found = self.details.get(name)
        return found if isinstance(found, int) else None
