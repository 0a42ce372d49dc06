# Generated from client/aio/client.py by client/generate.py: change that, then run it.
"""The client: one connection for requests, and the way to consumers and replays, which open their own."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import datetime
from types import TracebackType

import numpy as np
import numpy.typing as npt

from ...protocol.batch import decode_batch, verify
from ...protocol.errors import NotFoundError
from ...protocol.messages import Get, GetReply, Metadata, MetadataReply, Stats, StatsReply
from ...protocol.topic_name import MessageId, short_name
from ..core.bounds import Bound
from ..core.columns import Columns
from ..core.deadline import Deadline
from ..core.plan import Plan, consumer_plan, replay_plan
from ..core.record import Data, DedupId, check_durability, make_record
from ..core.subscription import TopicChoice
from ..core.times import DEFAULT, Duration, Timeout, seconds, timeout_seconds
from ..core.url import target
from ..headers import HeadersInput
from ..health import Health, Pong, problems_of
from ..message import Message
from ..message_batch import MessageBatch
from ..receipt import Receipt, ReceiptBatch
from ..version import client_version
from . import runtime
from .consumer import Consumer
from .pinging import ping
from .reader import Reader
from .replay import Replay
from .session import Session
from .sessions import Sessions
from .topics import Topics

URL_VARIABLE = "TIDELOG_URL"


class Client:
    """A broker as seen from a program; any number of tasks may call it. Making one does no I/O.

    `url` is `tidelog://host:9440,host2/namespace` or `host:port`; left out, the environment's TIDELOG_URL, else
    localhost:9440. `timeout` is for each call in seconds, None waits for ever; every call takes its own.

    A lost connection is made again by the call that needs it. Calls that only ask are repeated until their timeout;
    `produce` and `produce_many` repeat the same batch, which the broker stores once. After a fork the child's calls
    go over a connection of their own.
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
        where = target(
            url,
            from_environment=os.environ.get(URL_VARIABLE),
            servers=servers,
            namespace=namespace,
            token=token,
            tls=tls,
        )
        self._namespace = where.namespace
        self._timeout = None if timeout is None else seconds("timeout", timeout)
        self._sessions = Sessions(where, client_name or f"python-{os.getpid()}", client_version())
        self._topics = Topics(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address}>"

    @property
    def topics(self) -> Topics:
        """Create, list, describe, set, reopen and delete topics."""
        return self._topics

    @property
    def address(self) -> str:
        """`host:port` of the broker this client is connected to or tries first."""
        return self._sessions.address

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; calls that wait and all later ones raise ClosedError, but a produce whose message is on
        its way raises OutcomeUnknownError. Consumers and replays made by this client have connections of their own,
        and stay open."""
        self._sessions.close()

    # -- asking ----------------------------------------------------------------------------------------------------

    def ping(self, *, timeout: Timeout = DEFAULT) -> Pong:
        """Ask for a sign of life."""
        return ping(self.open_session().link, self.deadline(timeout))

    def health(self, *, timeout: Timeout = DEFAULT) -> Health:
        """Say whether every partition is undamaged and takes writes."""
        session, deadline = self.open_session(), self.deadline(timeout)
        pong = self.ping(timeout=timeout)
        reply = (session.link.call(Metadata(details=True), deadline)).message
        assert isinstance(reply, MetadataReply)
        problems = problems_of(reply)
        partitions = sum(len(topic.partitions) for topic in reply.topics)
        return Health(not problems, pong, len(reply.topics), partitions, problems)

    def stats(self, *, timeout: Timeout = DEFAULT) -> dict[str, int | float]:
        """Return the broker's counters and gauges by name."""
        reply = (self.open_session().link.call(Stats(), self.deadline(timeout))).message
        assert isinstance(reply, StatsReply)
        return reply.values

    def get(self, message_id: str, *, timeout: Timeout = DEFAULT) -> Message:
        """Return one message by its id (`orders/2@45678`). Raises NotFoundError, UnknownTopicError."""
        if not isinstance(message_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"message_id: expected text such as orders/2@45678, found {message_id!r}")
        wanted = MessageId.parse(message_id, self._namespace)
        request = Get(wanted.topic, wanted.count, wanted.partition, wanted.offset)
        reply = self.open_session().link.call(request, self.deadline(timeout))
        assert isinstance(reply.message, GetReply)
        verify(reply.bulk)
        records = decode_batch(reply.bulk)
        batch = MessageBatch(short_name(wanted.topic), wanted.count, wanted.partition, records)
        at = int(np.searchsorted(batch.offsets, wanted.offset))
        if at < len(batch) and batch.offsets[at] == wanted.offset:
            return batch[at]
        raise NotFoundError(f"no message {wanted}: the broker answered with {batch!r}")

    # -- producing -------------------------------------------------------------------------------------------------

    def produce(
        self,
        topic: str,
        value: Data,
        *,
        key: Data = None,
        headers: HeadersInput | None = None,
        priority: int = 4,
        partition: int | None = None,
        timestamp: datetime | None = None,
        dedup_id: DedupId | None = None,
        durability: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Receipt:
        """Store one message and return where it is, once it is as durable as `durability` (None: the topic's) says.

        With a `dedup_id` that its partition has seen within the topic's `dedup_window`, nothing is stored, and the
        receipt is that of the first message, with `duplicate=True`. Without a key the id chooses the partition.

        Raises what the broker refuses it with, with `error.details["stored"]` False; TimedOutError or
        CannotConnectError when it was never sent; OutcomeUnknownError when it was sent and no answer came in time.
        """
        record = make_record(
            value,
            key=key,
            headers=headers,
            priority=priority,
            partition=partition,
            timestamp=timestamp,
            now_us=runtime.wall_us(),
            dedup_id=dedup_id,
        )
        promised = check_durability(durability)
        return self._sessions.sender().one(topic, record, promised, self.deadline(timeout))

    def produce_many(
        self,
        topic: str,
        values: Iterable[Data],
        *,
        keys: Iterable[Data] | None = None,
        headers: Iterable[HeadersInput | None] | None = None,
        priority: int | Sequence[int] = 4,
        partition: int | Sequence[int] | None = None,
        timestamps: Iterable[datetime] | npt.NDArray[np.datetime64] | None = None,
        dedup_ids: Iterable[DedupId | None] | None = None,
        durability: str | None = None,
        timeout: Timeout = DEFAULT,
    ) -> ReceiptBatch:
        """Store many messages, each column with one entry for each value, and return where they are.

        When it raises, `error.details["acknowledged"]` is how many messages are stored for certain: in each partition
        those that come first.
        """
        columns = Columns(
            values,
            keys=keys,
            headers=headers,
            priority=priority,
            partition=partition,
            timestamps=timestamps,
            dedup_ids=dedup_ids,
        )
        return self._sessions.sender().many(topic, columns, check_durability(durability), self.deadline(timeout))

    # -- reading ---------------------------------------------------------------------------------------------------

    def consumer(
        self,
        topics: TopicChoice,
        *,
        start: Bound = "earliest",
        end: Bound | None = None,
        partition: int | None = None,
        by: str = "append_time",
        on_corrupt: str = "raise",
        on_gap: str = "raise",
        wait_for_topic: bool = False,
        timeout: Timeout = DEFAULT,
    ) -> Consumer:
        """Return a reader that leaves no state behind: from `start` on, and up to `end` (exclusive) where one is given.

        `topics` is a name, several, or a compiled pattern that matches whole names. A bound is "earliest", "latest",
        an offset (of one partition), a datetime, or a timedelta back from now; times are append times, or the
        producers' with by="timestamp". Damaged or missing records raise, or are passed over with a warning under
        on_corrupt="skip" and on_gap="skip". `timeout` is for opening; reading itself waits as long as it takes.
        """
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
            now_us=runtime.wall_us(),
        )
        return Consumer(self._reader(plan, timeout), self._namespace)

    def replay(
        self,
        topic: str,
        *,
        start: Bound = "earliest",
        end: Bound = "latest",
        partition: int | None = None,
        by: str = "append_time",
        ordered: str | None = None,
        missing: str = "raise",
        timeout: Timeout = DEFAULT,
    ) -> Replay:
        """Return an exact, repeatable range of a topic; its bounds (see `consumer`) are resolved once, at the first
        read. Parts that are not there raise RangeNotAvailableError, or are passed over under missing="skip".

        ordered="time" merges the partitions into one order by time (the one that `by` says), then partition, then
        offset; within a partition the order stays that of the offsets, whatever its producers' clocks said.
        """
        plan = replay_plan(
            topic,
            namespace=self._namespace,
            start=start,
            end=end,
            partition=partition,
            by=by,
            ordered=ordered,
            missing=missing,
            now_us=runtime.wall_us(),
        )
        return Replay(self._reader(plan, timeout))

    # -- inside ----------------------------------------------------------------------------------------------------

    def deadline(self, timeout: Timeout) -> Deadline:
        """Return until when a call that begins now may take."""
        return Deadline.after(timeout_seconds(timeout, self._timeout), runtime.now())

    def open_session(self) -> Session:
        """Return what the client is in this process and event loop."""
        return self._sessions.sender().session

    def _reader(self, plan: Plan, timeout: Timeout) -> Reader:
        return Reader(plan, self._sessions.reader_link(), timeout_seconds(timeout, self._timeout))
