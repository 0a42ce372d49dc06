"""Every error a user can meet, as one tree.

An error is named by its cause. Each class carries the code that documents and scripts use, the number that travels
on the wire, and whether the same call may succeed if it is simply repeated (`retriable`). `details` holds the
machine-readable part (for example the valid range of offsets); the message says what was expected and what was found.

This is a leaf module: it imports nothing of tidelog, so that every layer may raise from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar, NamedTuple

Detail = str | int | float | bool | None
"""What may stand in `TidelogError.details`: plain data that MessagePack carries unchanged."""


class TidelogError(Exception):
    """Base of every error that tidelog raises on purpose."""

    code: ClassVar[str] = "TIDELOG_ERROR"
    number: ClassVar[int] = 0
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, **details: Detail) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Detail] = details

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(kind: type[TidelogError], message: str, details: dict[str, Detail]) -> TidelogError:
    """Make an unpickled error: keyword details do not survive `Exception.__reduce__` by themselves."""
    return kind(message, **details)


# -- the request or the connection itself ------------------------------------------------------------------------


class InvalidRequestError(TidelogError):
    """A request is well formed but asks for something that can never be done; mend the request."""

    code, number = "INVALID_REQUEST", 1


class ProtocolError(TidelogError):
    """Bytes that are not a frame of this protocol; the connection is closed after this error."""

    code, number = "MALFORMED_FRAME", 2


class FrameTooLargeError(ProtocolError):
    """A frame announces more bytes than `max_frame_bytes`; send smaller requests."""

    code, number = "FRAME_TOO_LARGE", 3


class UnsupportedError(TidelogError):
    """This version knows the name but does not act on it; use a newer broker or leave it out."""

    code, number = "UNSUPPORTED", 4


class HelloRequiredError(ProtocolError):
    """The first request of a connection was not Hello."""

    code, number = "HELLO_REQUIRED", 5


class TooManyConnectionsError(TidelogError):
    """The broker serves as many connections as `max_connections` allows; close some or wait."""

    code, number, retriable = "TOO_MANY_CONNECTIONS", 6, True


class BrokerClosingError(TidelogError):
    """The broker is shutting down; the client reconnects by itself."""

    code, number, retriable = "BROKER_CLOSING", 7, True


class InternalError(TidelogError):
    """A bug in the broker; its log has the traceback."""

    code, number = "INTERNAL", 8


class IdleTimeoutError(ProtocolError):
    """The connection was silent for longer than the broker allows, or never finished its Hello."""

    code, number = "IDLE_TIMEOUT", 9


# -- topics --------------------------------------------------------------------------------------------------------


class UnknownTopicError(TidelogError):
    """No topic has this name; the message suggests the nearest one."""

    code, number = "UNKNOWN_TOPIC", 20


class UnknownTopicIdError(TidelogError):
    """The topic of this id is gone (deleted, perhaps made again under its name); refresh the metadata."""

    code, number = "UNKNOWN_TOPIC_ID", 21


class TopicExistsError(TidelogError):
    """A topic of this name exists already."""

    code, number = "TOPIC_EXISTS", 22


class InvalidTopicError(TidelogError):
    """A topic name, partition count or setting is outside what is allowed; the message says the rule."""

    code, number = "INVALID_TOPIC", 23


class UnknownPartitionError(TidelogError, ValueError):
    """The topic has fewer partitions than the request assumes. A ValueError too: it is about an argument, whether the
    client or the broker finds it."""

    code, number = "UNKNOWN_PARTITION", 24


class TopicLimitError(TidelogError):
    """The broker holds as many topics or partitions as it is configured to."""

    code, number = "TOPIC_LIMIT", 25


class TopicChangedError(UnknownTopicIdError):
    """A batch was made for another number of partitions, or another `dedup_scope`; refresh the metadata and repeat."""

    code, number, retriable = "TOPIC_CHANGED", 26, True


# -- what is produced ------------------------------------------------------------------------------------------------


class InvalidBatchError(TidelogError):
    """A record batch contradicts its own header or columns; nothing of it was stored."""

    code, number = "INVALID_BATCH", 30


class BatchTooLargeError(TidelogError):
    """A batch is larger than `max_batch_bytes` (stored) or `max_batch_payload` (uncompressed); send less at once."""

    code, number = "BATCH_TOO_LARGE", 31


class MessageTooLargeError(TidelogError):
    """One message (key, value and headers) is larger than `max_message_bytes`."""

    code, number = "MESSAGE_TOO_LARGE", 32


class SequenceGapError(TidelogError):
    """A batch's sequence is not the next of its producer; an earlier batch was refused or lost."""

    code, number = "SEQUENCE_GAP", 33


class UnknownProducerError(TidelogError):
    """The broker no longer knows this producer id; take a new one."""

    code, number = "UNKNOWN_PRODUCER", 34


class ProducerFencedError(TidelogError):
    """A newer session of the same producer has taken over; this one must stop."""

    code, number = "PRODUCER_FENCED", 35


class SequenceReusedError(TidelogError):
    """A known sequence came back with other content: two processes share one producer id, as after a fork."""

    code, number = "SEQUENCE_REUSED", 36


class OverloadedError(TidelogError):
    """More bytes wait for a sync, or for memory, than the broker holds; repeat after a pause."""

    code, number, retriable = "OVERLOADED", 37, True


# -- what is read ----------------------------------------------------------------------------------------------------


class OffsetOutOfRangeError(TidelogError):
    """The offset lies below the log's start or past its end; `details` has `start` and `end` of the valid range."""

    code, number = "OFFSET_OUT_OF_RANGE", 40


class TruncatedError(TidelogError):
    """The reader is ahead of what survived a power loss; `details` has the `epoch` and its `end` offset."""

    code, number = "TRUNCATED", 41


class CorruptError(TidelogError):
    """Stored bytes fail their checksum. `details`: damaged offsets `start`..`end`, then `next`, the first readable."""

    code, number = "CORRUPT", 42


class NotFoundError(TidelogError):
    """No record has this id."""

    code, number = "NOT_FOUND", 43


# -- the broker's disk -----------------------------------------------------------------------------------------------


class LogFencedError(TidelogError):
    """A sync failed: what waited for it is stored or lost; the log takes no writes until it is reopened."""

    code, number = "LOG_FENCED", 50


class DiskFullError(TidelogError):
    """The broker's disk has no room for this write; nothing of it was stored."""

    code, number, retriable = "DISK_FULL", 51, True


class StorageError(TidelogError):
    """The operating system refused a file operation; the message has its errno and path."""

    code, number = "STORAGE_ERROR", 52


# -- the archive -----------------------------------------------------------------------------------------------------


class ArchiveOffError(TidelogError):
    """The broker has no archive configured (`archive.url`), or the topic is not archived."""

    code, number = "ARCHIVE_OFF", 80


class ArchiveUnavailableError(TidelogError):
    """The archive's store does not answer; what is archived cannot be read until it does, and nothing is lost."""

    code, number = "ARCHIVE_UNAVAILABLE", 81


class ArchiveDeniedError(TidelogError):
    """The archive's store refuses the broker's credentials; mend `archive.options` or the rights there."""

    code, number = "ARCHIVE_DENIED", 82


class ArchiveConflictError(TidelogError):
    """The archive holds other bytes under this segment's name: a copy of the data directory archives there too."""

    code, number = "ARCHIVE_CONFLICT", 83


# -- raised by the client alone: these numbers never travel ------------------------------------------------------------


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


def _tree(root: type[TidelogError]) -> list[type[TidelogError]]:
    return [root, *(found for child in root.__subclasses__() for found in _tree(child))]


ERRORS: dict[int, type[TidelogError]] = {kind.number: kind for kind in _tree(TidelogError)}
"""Every error class by its number on the wire."""


def error_from_wire(number: int, message: str, details: dict[str, Detail]) -> TidelogError:
    """Make the typed error for what a broker said; an unknown number (a later broker) becomes the base class."""
    return ERRORS.get(number, TidelogError)(message, **details)
