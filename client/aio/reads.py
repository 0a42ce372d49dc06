"""Reading by a client: single messages, and consumers and replays, which have connections of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, overload

from ...protocol.topic_name import MessageId
from ..codec import Codec, Decoder, chosen_decoder
from ..core.bounds import Bound
from ..core.deadline import Deadline
from ..core.plan import Plan, consumer_plan, replay_plan
from ..core.subscription import TopicChoice
from ..core.times import DEFAULT, Default, Timeout, timeout_seconds
from ..core.words import ByWord, HoleWord, OrderWord
from ..message import AnyMessage, Message, TypedMessage
from .consumer import AsyncConsumer
from .one_message import read_one
from .reader import Reader
from .replay import AsyncReplay
from .session import Session
from .sessions import Sessions

if TYPE_CHECKING:
    from typing import Unpack

    from ..core.options import ConsumerOptions, ReplayOptions

T = TypeVar("T")


class AsyncReads(Generic[AnyMessage]):
    """What of a client reads; without a codec in the call, it yields messages of the client's own kind."""

    _sessions: Sessions
    _timeout: float | None
    _codec: Codec[object] | None
    _namespace: str

    @overload
    async def get(self, message_id: str, *, codec: Decoder[T], timeout: Timeout = DEFAULT) -> TypedMessage[T]: ...
    @overload
    async def get(self, message_id: str, *, codec: None, timeout: Timeout = DEFAULT) -> Message: ...
    @overload
    async def get(self, message_id: str, *, codec: Default = DEFAULT, timeout: Timeout = DEFAULT) -> AnyMessage: ...
    async def get(
        self, message_id: str, *, codec: Decoder[object] | Default | None = DEFAULT, timeout: Timeout = DEFAULT
    ) -> object:
        """Return one message by its id (`orders/2@45678`). Raises NotFoundError, UnknownTopicError."""
        if not isinstance(message_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"message_id: expected text such as orders/2@45678, found {message_id!r}")
        decoder = chosen_decoder(codec, self._codec)
        wanted = MessageId.parse(message_id, self._namespace)
        found = await read_one(self.open_session(), wanted, self._until(timeout))
        return found[0] if decoder is None else found.with_codec(decoder)[0]

    @overload
    def consumer(
        self, topics: TopicChoice, *, codec: Decoder[T], **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer[TypedMessage[T]]: ...
    @overload
    def consumer(
        self, topics: TopicChoice, *, codec: None, **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer[Message]: ...
    @overload
    def consumer(
        self, topics: TopicChoice, *, codec: Default = DEFAULT, **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer[AnyMessage]: ...
    def consumer(
        self,
        topics: TopicChoice,
        *,
        start: Bound = "earliest",
        end: Bound | None = None,
        partition: int | None = None,
        by: ByWord = "append_time",
        on_corrupt: HoleWord = "raise",
        on_gap: HoleWord = "raise",
        wait_for_topic: bool = False,
        include_archived: bool = False,
        codec: Decoder[object] | Default | None = DEFAULT,
        timeout: Timeout = DEFAULT,
    ) -> object:
        """Return a reader that leaves no state behind: from `start` on, and up to `end` (exclusive) where one is given.

        `topics` is a name, several, or a compiled pattern that matches whole names. A bound is "earliest", "latest",
        an offset (of one partition), a datetime, or a timedelta back from now; times are append times, or the
        producers' with by="timestamp". Damaged or missing records raise, or are passed over with a warning under
        on_corrupt="skip" and on_gap="skip". `timeout` is for opening; reading itself waits as long as it takes.
        `include_archived` reads what retention removed from the broker's archive, as if it were still there.

        With a codec it reads messages whose `value` that decodes: see TypedMessage.
        """
        decoder = chosen_decoder(codec, self._codec)
        plan = consumer_plan(
            topics,
            namespace=self._namespace,
            start=start,
            end=end,
            partition=partition,
            by=by,
            on_corrupt=on_corrupt,
            on_gap=on_gap,
            wait_for_topic=wait_for_topic,
            include_archived=include_archived,
            now_us=self._sessions.time.wall_us(),
        )
        return AsyncConsumer[AnyMessage](self._reader(plan, timeout), self._namespace, decoder)

    @overload
    def replay(
        self, topic: str, *, codec: Decoder[T], **options: Unpack[ReplayOptions]
    ) -> AsyncReplay[TypedMessage[T]]: ...
    @overload
    def replay(
        self,
        topic: str,
        *,
        codec: None,
        **options: Unpack[ReplayOptions],
    ) -> AsyncReplay[Message]: ...
    @overload
    def replay(
        self, topic: str, *, codec: Default = DEFAULT, **options: Unpack[ReplayOptions]
    ) -> AsyncReplay[AnyMessage]: ...
    def replay(
        self,
        topic: str,
        *,
        start: Bound = "earliest",
        end: Bound = "latest",
        partition: int | None = None,
        by: ByWord = "append_time",
        ordered: OrderWord | None = None,
        missing: HoleWord = "raise",
        include_archived: bool = False,
        codec: Decoder[object] | Default | None = DEFAULT,
        timeout: Timeout = DEFAULT,
    ) -> object:
        """Return an exact, repeatable range of a topic; its bounds (see `consumer`) are resolved once, at the first
        read. Parts that are not there raise RangeNotAvailableError, or are passed over under missing="skip".

        ordered="time" merges the partitions into one order by time (the one that `by` says), then partition, then
        offset; within a partition the order stays that of the offsets, whatever its producers' clocks said.

        `include_archived` reads what retention removed from the broker's archive, as if it were still there. Raises
        ArchiveOffError where there is none, ArchiveUnavailableError while its store does not answer.

        A codec is for `messages()` and the messages of a batch; columns and frames hold bytes.
        """
        decoder = chosen_decoder(codec, self._codec)
        plan = replay_plan(
            topic,
            namespace=self._namespace,
            start=start,
            end=end,
            partition=partition,
            by=by,
            ordered=ordered,
            missing=missing,
            include_archived=include_archived,
            now_us=self._sessions.time.wall_us(),
        )
        return AsyncReplay[AnyMessage](self._reader(plan, timeout), decoder)

    # -- inside ----------------------------------------------------------------------------------------------------

    def open_session(self) -> Session:
        """Return what the client is in this process and event loop."""
        return self._sessions.sender().session

    def _until(self, timeout: Timeout) -> Deadline:
        return Deadline.after(timeout_seconds(timeout, self._timeout), self._sessions.time.now())

    def _reader(self, plan: Plan, timeout: Timeout) -> Reader:
        return Reader(plan, self._sessions.reader_link(), timeout_seconds(timeout, self._timeout), self._sessions.time)
