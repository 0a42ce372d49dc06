"""A partitioned log broker that keeps time.

    from tidelog import Client

    with Client() as client:
        client.produce("orders", "{...}", key="o-1")
        for message in client.consumer("orders"):
            ...

Everything here is loaded when it is first asked for: `import tidelog` by itself loads next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker.config import ConfigError
    from .broker.errors import DataDirLockedError
    from .broker.server import CannotListenError
    from .client.aio.client import AsyncClient
    from .client.aio.consumer import AsyncConsumer
    from .client.aio.producer import AsyncProducer
    from .client.aio.queue import AsyncQueue
    from .client.aio.queue_batch import AsyncQueueBatch
    from .client.aio.queue_message import AsyncQueueMessage, AsyncTypedQueueMessage
    from .client.aio.replay import AsyncReplay
    from .client.archived import ArchiveDamage, ArchivedSegment, ArchiveExpiry, ArchiveRun, ExpiredSegment
    from .client.blocking.client import Client
    from .client.blocking.consumer import Consumer
    from .client.blocking.producer import Producer
    from .client.blocking.queue import Queue
    from .client.blocking.queue_batch import QueueBatch
    from .client.blocking.queue_message import QueueMessage, TypedQueueMessage
    from .client.blocking.replay import Replay
    from .client.dead_letter import AttemptHistory, DeadLetter, DeadLetterAttempt, Purged, Redriven, RefusedRedrive
    from .client.delivery import DeliveryReport, ProducerStatistics
    from .client.errors import (
        ArchiveConflictError,
        ArchiveDeniedError,
        ArchiveOffError,
        ArchiveUnavailableError,
        BatchTooLargeError,
        BrokerClosingError,
        BufferFullError,
        CannotConnectError,
        ClientError,
        ClosedError,
        ConcurrentUseError,
        ConnectionLostError,
        CorruptError,
        DecodeError,
        DeliveryError,
        DetachedError,
        DiskFullError,
        FailedMessage,
        ForkedError,
        GroupDegradedError,
        GroupExistsError,
        GroupKindError,
        GroupLimitError,
        GroupSettingsError,
        InternalError,
        InvalidBatchError,
        InvalidGroupError,
        InvalidRequestError,
        InvalidTopicError,
        LeaseLostError,
        LogFencedError,
        MessageTooLargeError,
        NotATidelogBrokerError,
        NotFoundError,
        OffsetOutOfRangeError,
        OutcomeUnknownError,
        OverloadedError,
        ProducerFencedError,
        ProtocolError,
        RangeNotAvailableError,
        RedriveLimitError,
        SentRecord,
        SequenceGapError,
        SequenceReusedError,
        StorageError,
        TidelogError,
        TimedOutError,
        TooManyConnectionsError,
        TopicChangedError,
        TopicExistsError,
        TopicLimitError,
        TruncatedError,
        UnknownGroupError,
        UnknownPartitionError,
        UnknownProducerError,
        UnknownTopicError,
        UnknownTopicIdError,
        UnsupportedError,
        WouldBlockForever,
        WrongLoopError,
    )
    from .client.group import Group, GroupBegin, GroupLane, GroupMember, GroupPartition, GroupSettings, GroupTopic
    from .client.headers import Headers
    from .client.health import Health, Pong
    from .client.message import Message, TypedMessage
    from .client.message_batch import MessageBatch
    from .client.message_state import Failure, MessageState
    from .client.priority import Priority
    from .client.queue_statistics import LostLease, QueueStatistics
    from .client.receipt import Receipt, ReceiptBatch
    from .client.retry import Backoff, Retry
    from .client.stopping import stop_on_signals
    from .client.topic import Topic, TopicPartition
    from .embedded import Broker

    __version__: str

__all__ = [
    "ArchiveConflictError",
    "ArchiveDamage",
    "ArchiveDeniedError",
    "ArchiveExpiry",
    "ArchiveOffError",
    "ArchiveRun",
    "ArchiveUnavailableError",
    "ArchivedSegment",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncQueue",
    "AsyncQueueBatch",
    "AsyncQueueMessage",
    "AsyncReplay",
    "AsyncTypedQueueMessage",
    "AttemptHistory",
    "Backoff",
    "BatchTooLargeError",
    "Broker",
    "BrokerClosingError",
    "BufferFullError",
    "CannotConnectError",
    "CannotListenError",
    "Client",
    "ClientError",
    "ClosedError",
    "ConcurrentUseError",
    "ConfigError",
    "ConnectionLostError",
    "Consumer",
    "CorruptError",
    "DataDirLockedError",
    "DeadLetter",
    "DeadLetterAttempt",
    "DecodeError",
    "DeliveryError",
    "DeliveryReport",
    "DetachedError",
    "DiskFullError",
    "ExpiredSegment",
    "FailedMessage",
    "Failure",
    "ForkedError",
    "Group",
    "GroupBegin",
    "GroupDegradedError",
    "GroupExistsError",
    "GroupKindError",
    "GroupLane",
    "GroupLimitError",
    "GroupMember",
    "GroupPartition",
    "GroupSettings",
    "GroupSettingsError",
    "GroupTopic",
    "Headers",
    "Health",
    "InternalError",
    "InvalidBatchError",
    "InvalidGroupError",
    "InvalidRequestError",
    "InvalidTopicError",
    "LeaseLostError",
    "LogFencedError",
    "LostLease",
    "Message",
    "MessageBatch",
    "MessageState",
    "MessageTooLargeError",
    "NotATidelogBrokerError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "OverloadedError",
    "Pong",
    "Priority",
    "Producer",
    "ProducerFencedError",
    "ProducerStatistics",
    "ProtocolError",
    "Purged",
    "Queue",
    "QueueBatch",
    "QueueMessage",
    "QueueStatistics",
    "RangeNotAvailableError",
    "Receipt",
    "ReceiptBatch",
    "RedriveLimitError",
    "Redriven",
    "RefusedRedrive",
    "Replay",
    "Retry",
    "SentRecord",
    "SequenceGapError",
    "SequenceReusedError",
    "StorageError",
    "TidelogError",
    "TimedOutError",
    "TooManyConnectionsError",
    "Topic",
    "TopicChangedError",
    "TopicExistsError",
    "TopicLimitError",
    "TopicPartition",
    "TruncatedError",
    "TypedMessage",
    "TypedQueueMessage",
    "UnknownGroupError",
    "UnknownPartitionError",
    "UnknownProducerError",
    "UnknownTopicError",
    "UnknownTopicIdError",
    "UnsupportedError",
    "WouldBlockForever",
    "WrongLoopError",
    "__version__",
    "stop_on_signals",
]

_HOMES = {
    "ArchiveDamage": "client.archived",
    "ArchiveExpiry": "client.archived",
    "ArchiveRun": "client.archived",
    "ArchivedSegment": "client.archived",
    "AsyncClient": "client.aio.client",
    "AsyncConsumer": "client.aio.consumer",
    "AsyncProducer": "client.aio.producer",
    "AsyncQueue": "client.aio.queue",
    "AsyncQueueBatch": "client.aio.queue_batch",
    "AsyncQueueMessage": "client.aio.queue_message",
    "AsyncReplay": "client.aio.replay",
    "AsyncTypedQueueMessage": "client.aio.queue_message",
    "AttemptHistory": "client.dead_letter",
    "Backoff": "client.retry",
    "Broker": "embedded",
    "CannotListenError": "broker.server",
    "Client": "client.blocking.client",
    "ConfigError": "broker.config",
    "Consumer": "client.blocking.consumer",
    "DataDirLockedError": "broker.errors",
    "DeadLetter": "client.dead_letter",
    "DeadLetterAttempt": "client.dead_letter",
    "DeliveryReport": "client.delivery",
    "ExpiredSegment": "client.archived",
    "Failure": "client.message_state",
    "Group": "client.group",
    "GroupBegin": "client.group",
    "GroupLane": "client.group",
    "GroupMember": "client.group",
    "GroupPartition": "client.group",
    "GroupSettings": "client.group",
    "GroupTopic": "client.group",
    "Headers": "client.headers",
    "Health": "client.health",
    "LostLease": "client.queue_statistics",
    "Message": "client.message",
    "MessageBatch": "client.message_batch",
    "MessageState": "client.message_state",
    "Pong": "client.health",
    "Priority": "client.priority",
    "Producer": "client.blocking.producer",
    "ProducerStatistics": "client.delivery",
    "Purged": "client.dead_letter",
    "Queue": "client.blocking.queue",
    "QueueBatch": "client.blocking.queue_batch",
    "QueueMessage": "client.blocking.queue_message",
    "QueueStatistics": "client.queue_statistics",
    "Receipt": "client.receipt",
    "ReceiptBatch": "client.receipt",
    "Redriven": "client.dead_letter",
    "RefusedRedrive": "client.dead_letter",
    "Replay": "client.blocking.replay",
    "Retry": "client.retry",
    "Topic": "client.topic",
    "TopicPartition": "client.topic",
    "TypedMessage": "client.message",
    "TypedQueueMessage": "client.blocking.queue_message",
    "stop_on_signals": "client.stopping",
}
"""Where each name is defined; those that are not here are errors, or what stands in one."""


def __getattr__(name: str) -> object:
    """Load a public name when it is first asked for."""
    if name == "__version__":
        found: object = import_module("importlib.metadata").version("tidelog")
    elif name in __all__:
        found = getattr(import_module(f"{__name__}.{_HOMES.get(name, 'client.errors')}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
