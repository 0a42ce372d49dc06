# Generated from client/aio/producer.py by client/generate.py: change that, then run it.
"""Send messages without waiting for each: they are gathered, go out as batches, and are reported or raised later.

Profiled (py-spy, blocking, values of 100 bytes to one partition): half of the time that a loop of sends takes is the
call and the lines of `send`, the rest is the socket and what is done once for each batch. So what a message costs is
the call, and everything else in `send` has to stay a comparison. Measured beside it: a lock round the append doubles
the time of these lines, and one more level of function adds a sixth; seven arguments that may be left out, each looked
up among the defaults and compared, cost 150 ns of 400, which is why they are one dictionary, empty for most.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, cast

from ...protocol.batch import DEFAULT_PRIORITY
from ...protocol.errors import ClosedError, DeliveryError, TidelogError, TimedOutError
from ..codec import Encoder, Taken, as_headers, encode_value
from ..core.arguments import check_options
from ..core.contents import Extras
from ..core.cutting import RECORD_OVERHEAD_BYTES
from ..core.data import Data
from ..core.intake import Intake
from ..core.options import MessageOptions
from ..core.partitioner import choose_partition
from ..core.producing import ProducerOptions
from ..core.record import DedupId, Record, check_size, make_record
from ..core.rows import KEYED, VALUE, Rows
from ..core.times import Duration, seconds
from ..delivery import DeliveryReport, ProducerStatistics
from ..headers import HeadersInput
from ..process import tell_after_fork
from ..retry import Retry
from . import runtime
from .background import Background
from .column_sending import ColumnSending
from .dispatcher import Dispatcher, counted
from .session import Session
from .turn import Turn, Turns

if TYPE_CHECKING:
    from typing import Unpack

HAS_LOOPS = runtime.HAS_LOOPS

LEAVING_S = 5.0
"""How long leaving the block by an exception may take, so that it is not swallowed by a broker that is away."""

log = logging.getLogger("tidelog")


class Producer(ColumnSending[Taken]):
    """Sends messages in batches, over a connection of its own; any number of threads may send and flush.

    Order is kept for each task, key and priority, through lost connections and repeats, and each message is stored
    once. When a batch fails for good, later ones go on: what failed is in the report of its batch, and in the
    DeliveryError of the next `flush` or of leaving the block.

        with client.producer() as producer:
            for value in source:
                producer.send("orders", value)
    """

    def __init__(
        self,
        make_session: Callable[[], Session],
        options: ProducerOptions,
        on_delivery: Callable[[DeliveryReport], object] | None,
        encoder: Encoder[object] | None,
    ) -> None:
        self._ready: dict[str, Rows] = {}
        """Where a message may be appended at once, by the topic as the user writes it; empty if anything is amiss."""
        self._encoder = encoder
        self._ask: Callable[[], object] = lambda: None
        self._here: object = None
        self._make_session = make_session
        self._options = options
        self._on_delivery = on_delivery
        self._background: Background | None = None
        self._lock = runtime.Lock()
        self._is_closing = self._owes_failures = False
        self._closers = Turns()
        tell_after_fork(self)  # from its beginning: a thread may be in its first `send` when another one forks

    def __repr__(self) -> str:
        state = "closed" if self._is_closing else "open"
        return f"<{type(self).__name__} {state}, {counted(self.statistics().buffered, 'message')} not answered>"

    def __reduce__(self) -> str:
        raise TypeError("a producer has a connection and cannot be pickled; pickle the client, and make another there")

    def __del__(self) -> None:
        background: Background | None = getattr(self, "_background", None)
        if background is None or self._is_closing or runtime.is_forked(background.dispatcher.session.home):
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
        background.finish_alone()

    def __enter__(self) -> Producer[Taken]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        with runtime.shield():
            try:
                self.close(LEAVING_S)
            except TidelogError as problem:
                log.warning("leaving a producer by %s: %s", type(error).__name__, problem)

    def send(self, topic: str, value: Taken, **options: Unpack[MessageOptions]) -> None:
        """Take one message; it is on its way when its batch is full, or `linger` later.

        If this raises, the message was not taken, and nothing it raises is about an earlier one: TypeError and the
        like for what may not be sent, UnknownTopicError, MessageTooLargeError, BufferFullError when there was no room
        for `max_block`. `tag` is anything, and comes back in the report.
        """
        key = tag = None
        try:
            rows = self._ready.get(topic)
            if (
                rows is not None
                and (not options or len(options) == ("key" in options) + ("tag" in options))
                and not (HAS_LOOPS and self._ask() != self._here)
            ):
                if options:
                    key, tag = options.get("key"), options.get("tag")
                data = value if type(value) is bytes else value.encode() if type(value) is str else None
                if data is None:
                    pass
                elif key is None and tag is None and rows.width == VALUE:
                    size = len(data)
                    left = rows.left - size - RECORD_OVERHEAD_BYTES
                    if left >= 0 and size <= rows.limit:
                        rows.left = left
                        rows.items.append(data)
                        if self._is_closing:
                            self._take_back(rows, (data,))
                        return
                elif rows.width != VALUE:
                    code = key if type(key) is bytes else key.encode() if type(key) is str else None
                    size = len(data) if code is None else len(data) + len(code)
                    left = rows.left - size - RECORD_OVERHEAD_BYTES
                    if left >= 0 and size <= rows.limit and (code is not None or key is None):
                        rows.left = left
                        rows.items += (data, code, tag) if rows.width == KEYED else (data, code, tag, None)
                        if self._is_closing:
                            self._take_back(rows, (data, code, tag))
                        return
        except (TypeError, UnicodeEncodeError):  # a topic without a hash, text without bytes: said by what follows
            pass
        check_options("send", options, MessageOptions.__annotations__)
        self._send(topic, value, **options)

    def _send(
        self,
        topic: str,
        value: Taken,
        *,
        key: Data = None,
        headers: HeadersInput | None = None,
        priority: int = DEFAULT_PRIORITY,
        partition: int | None = None,
        timestamp: datetime | None = None,
        dedup_id: DedupId | None = None,
        retry: Retry | None = None,
        tag: object = None,
    ) -> None:
        """Take a message that is not plain, or not at once."""
        dispatcher = (background := self._usable()).dispatcher
        data: object = value
        if self._encoder is not None:
            headers = as_headers(headers)
            data = encode_value(self._encoder, value, headers)
        record = make_record(
            cast("Data", data),
            key=key,
            headers=headers,
            priority=priority,
            partition=partition,
            timestamp=timestamp,
            now_us=dispatcher.session.time.wall_us(),
            dedup_id=dedup_id,
            retry=retry,
        )
        deadline = dispatcher.deadline(self._options.max_block)
        intake = dispatcher.open(topic, record.partition, record.size, deadline)
        check_size(record.size, intake.rows.limit)
        extras = _extras(record, dedup_id)
        if extras is not None:
            found = intake.topic
            choose_partition(record, found.partitions, found.shown, id_chooses=found.id_chooses)
        background.start()
        dispatcher.make_room(intake, record.size, partial(self._append, intake, record, extras, tag), deadline)
        if self._encoder is None and not self._is_closing:
            self._ready[topic] = intake.rows
        background.hurry(intake)

    send.__dict__["__wrapped__"] = _send  # so that help() shows the arguments one by one

    def _take_back(self, rows: Rows, message: tuple[object, ...]) -> None:
        """Another thread closed it between two lines of a `send`: raise ClosedError, unless the message was cut."""
        background = self._background
        if background is not None and background.dispatcher.locked(partial(rows.take_back, message)):
            raise ClosedError("the producer is closed")

    def _append(self, intake: Intake, record: Record, extras: Extras | None, tag: object) -> None:
        """Append a message that there is room for."""
        if self._is_closing:
            raise ClosedError("the producer is closed")
        intake.append(record.value, record.key, tag, extras)

    def _usable(self) -> Background:
        """Return what does the work. Raises ClosedError, ForkedError, WrongLoopError."""
        if self._is_closing:
            raise ClosedError("the producer is closed")
        background = self._background
        if background is not None:
            runtime.check_home(background.dispatcher.session.home, "producer")
            return background
        with self._lock:
            if self._is_closing:
                raise ClosedError("the producer is closed")
            if self._background is None:
                self._ask, self._here = runtime.place()
                dispatcher = Dispatcher(self._make_session(), self._options, self._on_delivery)
                self._background = Background(dispatcher, self._ready)
            return self._background

    def inherited(self) -> None:
        """This is a child after a fork: what was taken is the parent's to send. One that no message was given to yet is
        as good as new, but for its lock, which a thread of the parent may have held."""
        self._lock = runtime.Lock()
        self._ready.clear()
        if self._background is not None:
            self._background.dispatcher.session.abandon()

    def flush(self, timeout: Duration | None = None) -> None:
        """Return when everything sent before is as durable as was asked for, and reported.

        Raises DeliveryError for all that failed since the last time. TimedOutError when `timeout` seconds passed
        first: nothing is lost by that. Without a timeout it takes at most `delivery_timeout`.
        """
        limit = math.inf if timeout is None else seconds("timeout", timeout)
        if self._background is None and not self._is_closing:
            return
        dispatcher = (background := self._usable()).dispatcher
        dispatcher.reporter.check_not_reporting("flush()")
        try:
            dispatcher.flush(dispatcher.deadline(limit))
        finally:
            background.due_at(dispatcher.buffer.next_due())  # of what came while it was cut
        _raise_failures(dispatcher)

    def close(self, timeout: Duration | None = None) -> None:
        """Flush, and close the connection. What is not delivered after `timeout` seconds is given up.

        Raises DeliveryError for all that failed since the last flush, or was given up.
        """
        limit = math.inf if timeout is None else seconds("timeout", timeout)
        turn = Turn()
        try:
            is_first = not self._is_closing
            background = self._begin_to_close(turn)
            if background is None:
                return
            try:
                if is_first:
                    _flush_all(background.dispatcher, limit)
            finally:
                _give_up(background)
            self._owes_failures = False
        finally:
            turn.is_over = True
        _raise_failures(background.dispatcher)

    def _begin_to_close(self, turn: Turn) -> Background | None:
        """From here on nothing is taken. Return what there is to close, if any: once, or again for whoever comes after
        a close that was interrupted, however often that was."""
        background = self._background
        is_inherited = background is not None and runtime.is_forked(background.dispatcher.session.home)
        if background is not None and not is_inherited and not self._is_closing:
            self._usable().dispatcher.reporter.check_not_reporting("close()")
        with self._lock:
            background = None if is_inherited else self._background
            if background is not None:
                is_due = not self._is_closing or self._owes_failures
                background = background if is_due and self._closers.take(turn) else None
            self._owes_failures |= background is not None
            self._is_closing = True
        self._ready.clear()
        return background

    def statistics(self) -> ProducerStatistics:
        """Return what it has in hand and has done."""
        background = self._background
        return ProducerStatistics(0, 0, 0, 0, 0, 0) if background is None else background.dispatcher.statistics()


def _extras(record: Record, dedup_id: DedupId | None) -> Extras | None:
    is_plain = record.priority == DEFAULT_PRIORITY and record.partition is None and not record.has_own_time
    if is_plain and not record.pairs and record.dedup_id is None and record.retry is None:
        return None
    time_us = record.timestamp_us if record.has_own_time else None
    return Extras(record.pairs, record.priority, record.partition, time_us, record.dedup_id, dedup_id, record.retry)


def _flush_all(dispatcher: Dispatcher, limit: float) -> None:
    until = dispatcher.deadline(limit)
    with suppress(TimedOutError):
        dispatcher.flush(until)
        while dispatcher.is_needed:  # other threads were in the middle of `send`
            dispatcher.flush(until)


def _give_up(background: Background) -> None:
    """End for good what is not delivered, and tell it."""
    dispatcher = background.dispatcher
    dispatcher.locked(partial(dispatcher.give_up_all, "the producer was closed"))
    dispatcher.end()
    background.wake()
    dispatcher.reporter.report()


def _raise_failures(dispatcher: Dispatcher) -> None:
    failures, count = dispatcher.locked(dispatcher.ledger.take_failures)
    if count:
        what = f"not delivered: {counted(count, 'message')}, the first because: {failures[0].error}"
        raise DeliveryError(what, failed=failures, count=count)
