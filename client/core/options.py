"""The keyword arguments of the client's calls that have several forms, for type checkers.

A test holds that each is what its call takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from ..delivery import DeliveryReport
from ..headers import HeadersInput
from ..queue_statistics import LostLease
from ..retry import Backoff, Retry
from .bounds import Bound
from .data import Data
from .given import Arrow
from .record import DedupId
from .times import Duration, Timeout
from .words import ByWord, CompressionWord, DurabilityWord, HoleWord, OrderWord


class ClientOptions(TypedDict, total=False):
    """Of a client."""

    servers: Sequence[str] | None
    namespace: str | None
    token: str | None
    tls: bool | None
    client_name: str | None
    timeout: Duration | None


class RecordOptions(TypedDict, total=False):
    """Of `produce`."""

    key: Data
    headers: HeadersInput | None
    priority: int
    partition: int | None
    timestamp: datetime | None
    dedup_id: DedupId | None
    retry: Retry | None
    durability: DurabilityWord | None
    timeout: Timeout


class ColumnOptions(TypedDict, total=False):
    """Of `produce_many`."""

    keys: Iterable[Data] | Arrow | None
    headers: Iterable[HeadersInput | None] | Arrow | None
    priority: int | Sequence[int] | Arrow
    partition: int | Sequence[int] | Arrow | None
    timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | Arrow | None
    dedup_ids: Iterable[DedupId | None] | Arrow | None
    retry: Retry | Sequence[Retry | None] | None
    durability: DurabilityWord | None
    timeout: Timeout


class MessageOptions(TypedDict, total=False):
    """Of a producer's `send`."""

    key: Data
    headers: HeadersInput | None
    priority: int
    partition: int | None
    timestamp: datetime | None
    dedup_id: DedupId | None
    retry: Retry | None
    tag: object


class SendingOptions(TypedDict, total=False):
    """Of `producer`."""

    linger: Duration
    batch_bytes: int
    buffer_bytes: int
    compression: CompressionWord | None
    durability: DurabilityWord | None
    max_block: Duration | None
    delivery_timeout: Duration | None
    on_delivery: Callable[[DeliveryReport], object] | None


class ConsumerOptions(TypedDict, total=False):
    """Of `consumer`."""

    start: Bound
    end: Bound | None
    partition: int | None
    by: ByWord
    on_corrupt: HoleWord
    on_gap: HoleWord
    wait_for_topic: bool
    include_archived: bool
    timeout: Timeout


class ReplayOptions(TypedDict, total=False):
    """Of `replay`."""

    start: Bound
    end: Bound
    partition: int | None
    by: ByWord
    ordered: OrderWord | None
    missing: HoleWord
    include_archived: bool
    timeout: Timeout


class QueueOptions(TypedDict, total=False):
    """Of `queue`."""

    start: Bound
    visibility_timeout: Duration | None
    max_attempts: int | None
    backoff: Backoff | None
    max_in_flight: int | None
    auto_extend: bool
    max_lease: Duration
    on_lease_lost: Callable[[LostLease], object] | None
    wait_for_topic: bool
    timeout: Timeout
