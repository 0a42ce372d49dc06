# Generated from client/aio/queueing.py by client/generate.py: change that, then run it.
"""Queues by a client: opening one, and settling by token what another process holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from ...protocol.errors import TidelogError, TimedOutError
from ...protocol.messages import Settle, SettleItem, SettleReply, Settling
from ...protocol.messages.queue import BY_TOKEN
from ..codec import Codec, Decoder, chosen_decoder
from ..core.arguments import check_word
from ..core.bounds import Bound
from ..core.deadline import Deadline
from ..core.failure import failure_of
from ..core.lease_times import delay_us, extension_us
from ..core.lease_token import LeaseToken
from ..core.queue_plan import queue_plan
from ..core.settles import packed
from ..core.subscription import TopicChoice
from ..core.times import DEFAULT, Default, Duration, Timeout, timeout_seconds
from ..core.words import SettleWord
from ..message import AnyMessage, Message, TypedMessage
from ..queue_statistics import LostLease
from ..retry import Backoff
from .connection import Reply
from .queue import Queue
from .queue_message import QueueMessage, TypedQueueMessage
from .sessions import Sessions

if TYPE_CHECKING:
    from typing import Unpack

    from ..core.options import QueueOptions

T = TypeVar("T")

WORDS = {
    "ack": Settling.ACCEPT,
    "nack": Settling.RELEASE,
    "reject": Settling.REJECT,
    "extend": Settling.RENEW,
}

RETRY_S = 0.2
"""Between two attempts to settle by token where the broker could not."""


class Queueing(Generic[AnyMessage]):
    """What of a client is about queue groups; without a codec in the call, messages are of the client's own kind."""

    _sessions: Sessions
    _timeout: float | None
    _codec: Codec[object] | None
    _namespace: str

    @overload
    def queue(
        self, topics: TopicChoice, group: str, *, codec: Decoder[T], **options: Unpack[QueueOptions]
    ) -> Queue[TypedQueueMessage[T]]: ...
    @overload
    def queue(
        self, topics: TopicChoice, group: str, *, codec: None, **options: Unpack[QueueOptions]
    ) -> Queue[QueueMessage]: ...
    @overload
    def queue(
        self: Queueing[Message],
        topics: TopicChoice,
        group: str,
        *,
        codec: Default = DEFAULT,
        **options: Unpack[QueueOptions],
    ) -> Queue[QueueMessage]: ...
    @overload
    def queue(
        self: Queueing[TypedMessage[T]],
        topics: TopicChoice,
        group: str,
        *,
        codec: Default = DEFAULT,
        **options: Unpack[QueueOptions],
    ) -> Queue[TypedQueueMessage[T]]: ...
    def queue(
        self,
        topics: TopicChoice,
        group: str,
        *,
        start: Bound = "earliest",
        visibility_timeout: Duration | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        max_in_flight: int | None = None,
        auto_extend: bool = True,
        max_lease: Duration = 900.0,
        on_lease_lost: Callable[[LostLease], object] | None = None,
        wait_for_topic: bool = False,
        codec: Decoder[object] | Default | None = DEFAULT,
        timeout: Timeout = DEFAULT,
    ) -> object:
        """Return a reader of a queue group: each message goes to one of its members, until one settles it.

        The group is made where there is none. `start` says where a new group begins; `visibility_timeout` (how long a
        lease runs unless it is renewed), `max_attempts` and `backoff` are its settings, which an old group must match
        (GroupSettingsError); left out, they are the broker's defaults, or what the group has.

        `max_in_flight` is how many messages this queue may hold; left out, as many are fetched ahead as handlers finish
        in a quarter of the visibility timeout, 1 to 1,000 at a time (up to 10,000 where they are done in some 10 ms).
        With `auto_extend` everything held is renewed until the first message not settled has been held for `max_lease`,
        365 days at most.
        `on_lease_lost` gets a LostLease. `timeout` is for opening and for calls that wait for the broker; reading
        itself waits as long as it takes.
        """
        decoder = chosen_decoder(codec, self._codec)
        if on_lease_lost is not None and not callable(on_lease_lost):
            raise TypeError(f"on_lease_lost: expected a function, found {on_lease_lost!r}")
        plan = queue_plan(
            topics,
            group,
            namespace=self._namespace,
            start=start,
            visibility_timeout=visibility_timeout,
            max_attempts=max_attempts,
            backoff=backoff,
            max_in_flight=max_in_flight,
            auto_extend=auto_extend,
            max_lease=max_lease,
            wait_for_topic=wait_for_topic,
            now_us=self._sessions.time.wall_us(),
        )
        make_link = self._sessions.reader_link()
        limit = timeout_seconds(timeout, self._timeout)
        return Queue[QueueMessage](plan, make_link, self._sessions.time, limit, on_lease_lost, decoder)

    def settle(
        self,
        token: str,
        how: SettleWord,
        *,
        error: object = None,
        delay: Duration | None = None,
        duration: Duration | None = None,
        timeout: Timeout = DEFAULT,
    ) -> None:
        """Settle a message that another process has, or had, by its `lease_token`: "ack", "nack", "reject", "extend".

        `error` is for nack and reject, `delay` for nack, `duration` for extend. Returns when it is durable. Raises
        LeaseLostError if the lease ended or the message was settled otherwise; the same again changes nothing.
        """
        place = LeaseToken.parse(token)
        item = _item(place, how, error, delay, duration)
        request = Settle(place.group_id, place.generation, BY_TOKEN, 0, [item])
        time, link = self._sessions.time, self._sessions.sender().session.link
        deadline = Deadline.after(timeout_seconds(timeout, self._timeout), time.now())
        while True:
            problem = _refusal(link.call(request, deadline))
            if problem is None:
                return
            if not problem.retriable:
                raise problem
            if time.now() + RETRY_S >= deadline.at:
                raise TimedOutError(f"not settled: {problem}")
            time.Bell().wait(time.now() + RETRY_S)


def _refusal(reply: Reply) -> TidelogError | None:
    message = reply.message
    assert isinstance(message, SettleReply)
    result = message.results[0]
    return None if result is None else result.error()


def _item(
    place: LeaseToken, how: SettleWord, error: object, delay: Duration | None, duration: Duration | None
) -> SettleItem:
    """Return what is asked for. Raises TypeError or ValueError for what does not go together."""
    check_word("how", how, WORDS, '"ack", "nack", "reject" or "extend"')
    given = {"error": error, "delay": delay, "duration": duration}
    allowed = {"nack": ("error", "delay"), "reject": ("error",), "extend": ("duration",)}.get(how, ())
    for name, value in given.items():
        if value is not None and name not in allowed:
            raise TypeError(f"{name}: expected nothing with {how!r}, found {value!r}")
    return SettleItem(
        place.topic_id,
        place.partition,
        place.lease,
        WORDS[how],
        packed([place.offset]),
        delay_us(delay),
        extension_us(duration),
        failure_of(error) if how in ("nack", "reject") else None,
    )
