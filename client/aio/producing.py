"""Producing by a client: one message, lists of them, and the producer that does not wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from ..codec import Codec, Encoder, as_headers, chosen_encoder, encode_value, encoded_columns
from ..core.columns import Columns
from ..core.data import Data
from ..core.deadline import Deadline
from ..core.given import Arrow
from ..core.producing import BATCH_BYTES, BUFFER_BYTES, check_callback, producer_options
from ..core.record import DedupId, check_durability, make_record
from ..core.times import DEFAULT, Default, Duration, Timeout, timeout_seconds
from ..core.words import CompressionWord, DurabilityWord
from ..delivery import DeliveryReport
from ..headers import HeadersInput
from ..message import AnyMessage, Message, TypedMessage
from ..receipt import Receipt, ReceiptBatch
from ..retry import Retry
from .producer import AsyncProducer
from .sessions import Sessions

if TYPE_CHECKING:
    from typing import Unpack

    from ..core.options import ColumnOptions, RecordOptions, SendingOptions

T = TypeVar("T")


class AsyncProducing(Generic[AnyMessage]):
    """What of a client produces."""

    def __init__(self, sessions: Sessions, timeout: float | None, codec: Codec[object] | None) -> None:
        self._sessions = sessions
        self._timeout = timeout
        self._codec = codec

    def deadline(self, timeout: Timeout) -> Deadline:
        """Return until when a call that begins now may take."""
        return Deadline.after(timeout_seconds(timeout, self._timeout), self._sessions.time.now())

    @overload
    async def produce(
        self: AsyncProducing[Message],
        topic: str,
        value: Data,
        *,
        codec: Default = DEFAULT,
        **options: Unpack[RecordOptions],
    ) -> Receipt: ...
    @overload
    async def produce(
        self: AsyncProducing[TypedMessage[T]],
        topic: str,
        value: T | None,
        *,
        codec: Default = DEFAULT,
        **options: Unpack[RecordOptions],
    ) -> Receipt: ...
    @overload
    async def produce(
        self, topic: str, value: T | None, *, codec: Encoder[T], **options: Unpack[RecordOptions]
    ) -> Receipt: ...
    @overload
    async def produce(self, topic: str, value: Data, *, codec: None, **options: Unpack[RecordOptions]) -> Receipt: ...
    async def produce(
        self,
        topic: str,
        value: object,
        *,
        key: Data = None,
        headers: HeadersInput | None = None,
        priority: int = 4,
        partition: int | None = None,
        timestamp: datetime | None = None,
        dedup_id: DedupId | None = None,
        retry: Retry | None = None,
        codec: Encoder[T] | Default | None = DEFAULT,
        durability: DurabilityWord | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Receipt:
        """Store one message and return where it is, once it is as durable as `durability` (None: the topic's) says.

        With a `dedup_id` that its partition has seen within the topic's `dedup_window`, nothing is stored, and the
        receipt is that of the first message, with `duplicate=True`. Without a key the id chooses the partition.

        A `retry` says how often, and after which waits, queue groups try this message, where it says so before what the
        group has.

        With a codec the value is what that encodes; what it raises is raised here, and nothing is sent.

        Raises what the broker refuses it with, with `error.details["stored"]` False; TimedOutError or
        CannotConnectError when it was never sent; OutcomeUnknownError when it was sent and no answer came in time.
        """
        encoder = chosen_encoder(codec, self._codec)
        if encoder is not None:
            headers = as_headers(headers)
            value = encode_value(encoder, value, headers)
        record = make_record(
            cast("Data", value),
            key=key,
            headers=headers,
            priority=priority,
            partition=partition,
            timestamp=timestamp,
            now_us=self._sessions.time.wall_us(),
            dedup_id=dedup_id,
            retry=retry,
        )
        promised = check_durability(durability)
        return await self._sessions.sender().one(topic, record, promised, self.deadline(timeout))

    @overload
    async def produce_many(
        self: AsyncProducing[Message],
        topic: str,
        values: Iterable[Data] | Arrow,
        *,
        codec: Default = DEFAULT,
        **options: Unpack[ColumnOptions],
    ) -> ReceiptBatch: ...
    @overload
    async def produce_many(
        self: AsyncProducing[TypedMessage[T]],
        topic: str,
        values: Iterable[T | None],
        *,
        codec: Default = DEFAULT,
        **options: Unpack[ColumnOptions],
    ) -> ReceiptBatch: ...
    @overload
    async def produce_many(
        self, topic: str, values: Iterable[T | None], *, codec: Encoder[T], **options: Unpack[ColumnOptions]
    ) -> ReceiptBatch: ...
    @overload
    async def produce_many(
        self, topic: str, values: Iterable[Data] | Arrow, *, codec: None, **options: Unpack[ColumnOptions]
    ) -> ReceiptBatch: ...
    async def produce_many(
        self,
        topic: str,
        values: Iterable[object] | Arrow,
        *,
        keys: Iterable[Data] | Arrow | None = None,
        headers: Iterable[HeadersInput | None] | Arrow | None = None,
        priority: int | Sequence[int] | Arrow = 4,
        partition: int | Sequence[int] | Arrow | None = None,
        timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | Arrow | None = None,
        dedup_ids: Iterable[DedupId | None] | Arrow | None = None,
        retry: Retry | Sequence[Retry | None] | None = None,
        codec: Encoder[T] | Default | None = DEFAULT,
        durability: DurabilityWord | None = None,
        timeout: Timeout = DEFAULT,
    ) -> ReceiptBatch:
        """Store many messages, each column with one entry for each value, and return where they are.

        A column may be an Arrow array of any library (pyarrow, polars, pandas): it is sent from the memory it lies in,
        without an object for each entry, as `values` and `keys` of a batch that was read are. What is null in one of
        partitions or priorities was not asked for.

        `retry` is one for all messages, or one (or None) for each.

        When a codec refuses one of the values, nothing is sent; a note on the error has its row.

        When it raises, `error.details["acknowledged"]` is how many messages are stored for certain: in each partition
        those that come first.
        """
        values, headers = encoded_columns(chosen_encoder(codec, self._codec), values, headers)
        columns = Columns(
            values,
            keys=keys,
            headers=headers,
            priority=priority,
            partition=partition,
            timestamps=timestamps,
            dedup_ids=dedup_ids,
            retry=retry,
        )
        return await self._sessions.sender().many(topic, columns, check_durability(durability), self.deadline(timeout))

    @overload
    def producer(
        self: AsyncProducing[Message], *, codec: Default = DEFAULT, **options: Unpack[SendingOptions]
    ) -> AsyncProducer[Data]: ...
    @overload
    def producer(
        self: AsyncProducing[TypedMessage[T]], *, codec: Default = DEFAULT, **options: Unpack[SendingOptions]
    ) -> AsyncProducer[T | None]: ...
    @overload
    def producer(self, *, codec: Encoder[T], **options: Unpack[SendingOptions]) -> AsyncProducer[T | None]: ...
    @overload
    def producer(self, *, codec: None, **options: Unpack[SendingOptions]) -> AsyncProducer[Data]: ...
    def producer(
        self,
        *,
        linger: Duration = 0.005,
        batch_bytes: int = BATCH_BYTES,
        buffer_bytes: int = BUFFER_BYTES,
        compression: CompressionWord | None = None,
        durability: DurabilityWord | None = None,
        max_block: Duration | None = 60.0,
        delivery_timeout: Duration | None = 120.0,
        on_delivery: Callable[[DeliveryReport], object] | None = None,
        codec: Encoder[T] | Default | None = DEFAULT,
    ) -> AsyncProducer[T | None]:
        """Return what sends messages in batches, without waiting for each: see AsyncProducer.

        A batch goes out when it has `batch_bytes` for a partition, or its first message is `linger` seconds old.
        `buffer_bytes` of messages may be unanswered; then `send` waits for `max_block` seconds. A batch is repeated
        until its first message is `delivery_timeout` seconds old. `compression` is None or "zstd", `durability` that
        of `produce`. `on_delivery` is called with a DeliveryReport once for each batch, from whichever task finds the
        answer.
        """
        check_callback(on_delivery)
        options = producer_options(
            linger=linger,
            batch_bytes=batch_bytes,
            buffer_bytes=buffer_bytes,
            compression=compression,
            durability=durability,
            max_block=max_block,
            delivery_timeout=delivery_timeout,
        )
        encoder = chosen_encoder(codec, self._codec)
        return AsyncProducer(self._sessions.producer_session(), options, on_delivery, encoder)
