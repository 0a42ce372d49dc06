"""Every error a user can meet, as one tree.

An error is named by its cause. Each class carries the code that documents and scripts use, the number that travels
on the wire, and whether the same call may succeed if it is simply repeated (`retriable`). `details` holds the
machine-readable part (for example the valid range of offsets); the message says what was expected and what was found.

This is a leaf module: it imports nothing of tidelog but its own two halves, so that every layer may raise from it.
"""

from __future__ import annotations

from .client_errors import (
    BufferFullError,
    CannotConnectError,
    ClientError,
    ClosedError,
    ConcurrentUseError,
    ConnectionLostError,
    DecodeError,
    DeliveryError,
    DetachedError,
    FailedMessage,
    ForkedError,
    NotATidelogBrokerError,
    OutcomeUnknownError,
    RangeNotAvailableError,
    SentRecord,
    TimedOutError,
    WouldBlockForever,
    WrongLoopError,
)
from .error_base import Detail, TidelogError

__all__ = [
    "ERRORS",
    "ArchiveConflictError",
    "ArchiveDeniedError",
    "ArchiveOffError",
    "ArchiveUnavailableError",
    "BatchTooLargeError",
    "BrokerClosingError",
    "BufferFullError",
    "CannotConnectError",
    "ClientError",
    "ClosedError",
    "ConcurrentUseError",
    "ConnectionLostError",
    "CorruptError",
    "DecodeError",
    "DeliveryError",
    "DetachedError",
    "Detail",
    "DiskFullError",
    "FailedMessage",
    "ForkedError",
    "FrameTooLargeError",
    "GroupDegradedError",
    "GroupExistsError",
    "GroupKindError",
    "GroupLimitError",
    "GroupSettingsError",
    "HelloRequiredError",
    "IdleTimeoutError",
    "InternalError",
    "InvalidBatchError",
    "InvalidGroupError",
    "InvalidRequestError",
    "InvalidTopicError",
    "LeaseLostError",
    "LogFencedError",
    "MessageTooLargeError",
    "NotATidelogBrokerError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "OverloadedError",
    "ProducerFencedError",
    "ProtocolError",
    "RangeNotAvailableError",
    "RedriveLimitError",
    "SentRecord",
    "SequenceGapError",
    "SequenceReusedError",
    "StorageError",
    "TidelogError",
    "TimedOutError",
    "TooManyConnectionsError",
    "TopicChangedError",
    "TopicExistsError",
    "TopicLimitError",
    "TruncatedError",
    "UnknownGroupError",
    "UnknownPartitionError",
    "UnknownProducerError",
    "UnknownTopicError",
    "UnknownTopicIdError",
    "UnsupportedError",
    "WouldBlockForever",
    "WrongLoopError",
    "error_from_wire",
]

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


# -- groups ----------------------------------------------------------------------------------------------------------


class UnknownGroupError(TidelogError):
    """No group has this name or id, or it was reset or deleted since; the message suggests the nearest name."""

    code, number = "UNKNOWN_GROUP", 60


class GroupExistsError(TidelogError):
    """A group of this name exists already."""

    code, number = "GROUP_EXISTS", 61


class GroupKindError(TidelogError):
    """The group is of the other kind: stream groups have positions, queue groups have leases."""

    code, number = "GROUP_KIND", 62


class GroupSettingsError(TidelogError):
    """The group exists with other settings than these; `details` has the setting, what is in force and what was asked
    for."""

    code, number = "GROUP_SETTINGS", 63


class InvalidGroupError(TidelogError):
    """A group's name, setting or start is outside what is allowed; the message says the rule."""

    code, number = "INVALID_GROUP", 64


class LeaseLostError(TidelogError):
    """The lease ended, was settled otherwise, or is another member's: nothing was changed."""

    code, number = "LEASE_LOST", 65


class GroupDegradedError(TidelogError):
    """What is recorded of the group's deliveries is damaged, so it gives no leases; `groups reset` releases it."""

    code, number = "GROUP_DEGRADED", 66


class GroupLimitError(TidelogError):
    """The broker holds as many groups, or the group as many leased messages, as it is configured to."""

    code, number = "GROUP_LIMIT", 67


class RedriveLimitError(TidelogError):
    """The dead letter was redriven as often as is allowed; ask for more redrives, or purge it."""

    code, number = "REDRIVE_LIMIT", 70


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
    """The archive is another data directory's, of which this may be a copy: its bytes under a segment's name differ."""

    code, number = "ARCHIVE_CONFLICT", 83


def _tree(root: type[TidelogError]) -> list[type[TidelogError]]:
    return [root, *(found for child in root.__subclasses__() for found in _tree(child))]


ERRORS: dict[int, type[TidelogError]] = {kind.number: kind for kind in _tree(TidelogError)}
"""Every error class by its number on the wire."""


def error_from_wire(number: int, message: str, details: dict[str, Detail]) -> TidelogError:
    """Make the typed error for what a broker said; an unknown number (a later broker) becomes the base class."""
    return ERRORS.get(number, TidelogError)(message, **details)
