"""The control structs of all requests and replies, and which belongs to which api.

Structs are MessagePack arrays: they evolve by adding trailing fields with defaults, so that an older peer ignores
what it does not know and a newer one fills in what was not sent.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from ..api import Api
from ..errors import InvalidRequestError, ProtocolError, TidelogError, UnsupportedError, error_from_wire
from .archive import (
    ArchivedSegmentInfo,
    ArchiveProblem,
    ExpireArchive,
    ExpireArchiveReply,
    ExpiredSegmentInfo,
    ListArchive,
    ListArchiveReply,
    RunArchive,
    RunArchiveReply,
    VerifyArchive,
    VerifyArchiveReply,
)
from .base import ErrorInfo, Message
from .dead_letters import (
    AttemptInfo,
    DeadLetters,
    DeadLettersReply,
    MessageAttempts,
    MessageAttemptsReply,
    Purge,
    PurgeReply,
    Redrive,
    RedriveRefusal,
    RedriveReply,
)
from .fetch import Cancel, CancelReply, Fetch, FetchPosition, FetchReply, FetchResult
from .groups import (
    AlterGroup,
    BackoffInfo,
    CreateGroup,
    DeleteGroup,
    DeleteGroupReply,
    DescribeGroups,
    DescribeGroupsReply,
    GroupBegin,
    GroupError,
    GroupInfo,
    GroupPartitionInfo,
    GroupPlace,
    GroupReply,
    GroupSettings,
    GroupStart,
    GroupTopicInfo,
    LaneInfo,
    MemberInfo,
    ResetGroup,
    ResetGroupReply,
)
from .hello import BrokerLimits, Hello, HelloReply, Ping, PingReply
from .lookup import (
    Get,
    GetReply,
    ListOffsets,
    ListOffsetsReply,
    OffsetAnswer,
    OffsetKind,
    OffsetQuery,
    Outcome,
    OutcomePlace,
    OutcomeReply,
    Stats,
    StatsPlace,
    StatsReply,
)
from .produce import BatchResult, InitProducer, InitProducerReply, Produce, ProduceReply
from .queue import (
    Acquire,
    AcquireReply,
    Attempts,
    Grant,
    GroupMessages,
    GroupMessagesReply,
    JoinGroup,
    JoinGroupReply,
    LeaseRanges,
    LeaveGroup,
    LeaveGroupReply,
    MessageState,
    MessageStates,
    MessageStatesReply,
    PartitionProblem,
    Portion,
    Settle,
    SettleError,
    SettleItem,
    SettleReply,
    Settling,
)
from .topics import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    DeleteTopicReply,
    Metadata,
    MetadataReply,
    PartitionInfo,
    ReopenTopic,
    ReopenTopicReply,
    TopicError,
    TopicInfo,
    TopicPlace,
    TopicReply,
)

__all__ = [
    "Acquire",
    "AcquireReply",
    "AlterGroup",
    "AlterTopic",
    "ArchiveProblem",
    "ArchivedSegmentInfo",
    "AttemptInfo",
    "Attempts",
    "BackoffInfo",
    "BatchResult",
    "BrokerLimits",
    "Cancel",
    "CancelReply",
    "CreateGroup",
    "CreateTopic",
    "DeadLetters",
    "DeadLettersReply",
    "DeleteGroup",
    "DeleteGroupReply",
    "DeleteTopic",
    "DeleteTopicReply",
    "DescribeGroups",
    "DescribeGroupsReply",
    "ErrorInfo",
    "Exchange",
    "ExpireArchive",
    "ExpireArchiveReply",
    "ExpiredSegmentInfo",
    "Fetch",
    "FetchPosition",
    "FetchReply",
    "FetchResult",
    "Get",
    "GetReply",
    "Grant",
    "GroupBegin",
    "GroupError",
    "GroupInfo",
    "GroupMessages",
    "GroupMessagesReply",
    "GroupPartitionInfo",
    "GroupPlace",
    "GroupReply",
    "GroupSettings",
    "GroupStart",
    "GroupTopicInfo",
    "Hello",
    "HelloReply",
    "InitProducer",
    "InitProducerReply",
    "JoinGroup",
    "JoinGroupReply",
    "LaneInfo",
    "LeaseRanges",
    "LeaveGroup",
    "LeaveGroupReply",
    "ListArchive",
    "ListArchiveReply",
    "ListOffsets",
    "ListOffsetsReply",
    "MemberInfo",
    "Message",
    "MessageAttempts",
    "MessageAttemptsReply",
    "MessageState",
    "MessageStates",
    "MessageStatesReply",
    "Metadata",
    "MetadataReply",
    "OffsetAnswer",
    "OffsetKind",
    "OffsetQuery",
    "Outcome",
    "OutcomePlace",
    "OutcomeReply",
    "PartitionInfo",
    "PartitionProblem",
    "Ping",
    "PingReply",
    "Portion",
    "Produce",
    "ProduceReply",
    "Purge",
    "PurgeReply",
    "Redrive",
    "RedriveRefusal",
    "RedriveReply",
    "ReopenTopic",
    "ReopenTopicReply",
    "ResetGroup",
    "ResetGroupReply",
    "RunArchive",
    "RunArchiveReply",
    "Settle",
    "SettleError",
    "SettleItem",
    "SettleReply",
    "Settling",
    "Stats",
    "StatsPlace",
    "StatsReply",
    "TopicError",
    "TopicInfo",
    "TopicPlace",
    "TopicReply",
    "VerifyArchive",
    "VerifyArchiveReply",
    "api_of",
    "decode_error",
    "decode_reply",
    "decode_request",
    "encode",
    "encode_error",
]


@dataclass(frozen=True, slots=True)
class Exchange:
    """The request and the reply of one api."""

    request: type[Message]
    reply: type[Message]


EXCHANGES: dict[Api, Exchange] = {
    Api.HELLO: Exchange(Hello, HelloReply),
    Api.METADATA: Exchange(Metadata, MetadataReply),
    Api.CREATE_TOPIC: Exchange(CreateTopic, TopicReply),
    Api.ALTER_TOPIC: Exchange(AlterTopic, TopicReply),
    Api.DELETE_TOPIC: Exchange(DeleteTopic, DeleteTopicReply),
    Api.REOPEN_TOPIC: Exchange(ReopenTopic, ReopenTopicReply),
    Api.INIT_PRODUCER: Exchange(InitProducer, InitProducerReply),
    Api.PRODUCE: Exchange(Produce, ProduceReply),
    Api.FETCH: Exchange(Fetch, FetchReply),
    Api.LIST_OFFSETS: Exchange(ListOffsets, ListOffsetsReply),
    Api.CANCEL: Exchange(Cancel, CancelReply),
    Api.GET: Exchange(Get, GetReply),
    Api.STATS: Exchange(Stats, StatsReply),
    Api.PING: Exchange(Ping, PingReply),
    Api.OUTCOME: Exchange(Outcome, OutcomeReply),
    Api.JOIN_GROUP: Exchange(JoinGroup, JoinGroupReply),
    Api.LEAVE_GROUP: Exchange(LeaveGroup, LeaveGroupReply),
    Api.CREATE_GROUP: Exchange(CreateGroup, GroupReply),
    Api.ALTER_GROUP: Exchange(AlterGroup, GroupReply),
    Api.RESET_GROUP: Exchange(ResetGroup, ResetGroupReply),
    Api.DELETE_GROUP: Exchange(DeleteGroup, DeleteGroupReply),
    Api.DESCRIBE_GROUP: Exchange(DescribeGroups, DescribeGroupsReply),
    Api.ACQUIRE: Exchange(Acquire, AcquireReply),
    Api.SETTLE: Exchange(Settle, SettleReply),
    Api.MESSAGE_STATES: Exchange(MessageStates, MessageStatesReply),
    Api.GROUP_MESSAGES: Exchange(GroupMessages, GroupMessagesReply),
    Api.DEAD_LETTERS: Exchange(DeadLetters, DeadLettersReply),
    Api.REDRIVE: Exchange(Redrive, RedriveReply),
    Api.PURGE: Exchange(Purge, PurgeReply),
    Api.ATTEMPTS: Exchange(MessageAttempts, MessageAttemptsReply),
    Api.LIST_ARCHIVE: Exchange(ListArchive, ListArchiveReply),
    Api.RUN_ARCHIVE: Exchange(RunArchive, RunArchiveReply),
    Api.VERIFY_ARCHIVE: Exchange(VerifyArchive, VerifyArchiveReply),
    Api.EXPIRE_ARCHIVE: Exchange(ExpireArchive, ExpireArchiveReply),
}
"""What this version acts on; the other numbers of `Api` are refused with UNSUPPORTED."""

_encoder = msgspec.msgpack.Encoder()
_requests = {api: msgspec.msgpack.Decoder(exchange.request) for api, exchange in EXCHANGES.items()}
_replies: dict[int, msgspec.msgpack.Decoder[Message]] = {
    api: msgspec.msgpack.Decoder(exchange.reply) for api, exchange in EXCHANGES.items()
}
_error_decoder = msgspec.msgpack.Decoder(ErrorInfo)
_api_of = {exchange.request: api for api, exchange in EXCHANGES.items()}


def api_of(request: Message) -> Api:
    """Return the api that a request struct belongs to."""
    return _api_of[type(request)]


def encode(message: Message | ErrorInfo) -> bytes:
    """Return the MessagePack bytes of a control struct."""
    return _encoder.encode(message)


def encode_error(error: TidelogError) -> bytes:
    """Return the control bytes that carry an error."""
    return _encoder.encode(ErrorInfo.of(error))


def decode_request(api: int, control: memoryview) -> Message:
    """Read a request. Raises UnsupportedError for an api that does not act yet, InvalidRequestError for bad fields."""
    decoder = _requests.get(api)  # pyright: ignore[reportArgumentType, reportCallIssue]
    if decoder is None:
        known = api in set(Api)
        what = f"{Api(api).name} is of a later version" if known else f"no api has the number {api}"
        raise UnsupportedError(f"expected an api of this version, found {api}: {what}", api=api)
    try:
        return decoder.decode(control)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{Api(api).name}: the control struct does not decode: {error}") from None


def decode_reply(api: int, control: memoryview) -> Message:
    """Read a reply. Raises ProtocolError when the broker's bytes are not that struct."""
    try:
        return _replies[api].decode(control)
    except (KeyError, ValueError, msgspec.DecodeError) as error:
        raise ProtocolError(f"expected a reply to api {api}, found bytes that do not decode: {error}") from None


def decode_error(control: memoryview) -> TidelogError:
    """Read an error reply as its typed error. Raises ProtocolError when it is none."""
    try:
        info = _error_decoder.decode(control)
    except (ValueError, msgspec.DecodeError) as error:
        raise ProtocolError(f"expected an error struct, found bytes that do not decode: {error}") from None
    return error_from_wire(info.number, info.message, info.details)
