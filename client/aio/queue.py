"""A reader of a queue group: hands out leased messages, and settles them."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import AsyncIterator
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn

from ...protocol.errors import ClosedError, LeaseLostError, TidelogError
from ..core.arguments import check_count, check_flag
from ..core.deadline import Deadline
from ..core.finishing import Finishing
from ..core.leaving import RETURNED, left_by
from ..core.settles import How
from ..core.times import DEFAULT, Duration, Timeout, seconds, timeout_seconds
from ..queue_statistics import QueueStatistics
from . import runtime
from .acquirer import Acquirer
from .queue_batch import AsyncQueueBatch
from .queue_desk import QueueDesk
from .queue_message import AnyQueueMessage
from .queue_run import Handler, run_handler
from .taking import CLOSED, AsyncTaking

if TYPE_CHECKING:
    from typing import Self

LEAVING_S = 5.0
"""How long leaving the block by an exception may take, so that it is not swallowed by a broker that is away."""

MAX_CONCURRENCY = 1_000
"""Handlers at once in one `run`: each of a plain function has a thread of its own."""

log = logging.getLogger("tidelog")


class AsyncQueue(AsyncTaking[AnyQueueMessage], Generic[AnyQueueMessage]):
    """Iterate it for leased messages, and settle each: `ack`, `nack`, `reject`; one task iterates, any may settle.

        async with client.queue("orders", group="billing") as queue:
            async for message in queue:
                charge(message.value)
                message.ack()

    It reads and settles over a connection of its own, which comes back by itself when it is lost. What it holds is kept
    alive while the user's code works. Leaving the block returns when what was settled is durable; what was not settled
    goes back at once, uncounted, or as a failed attempt if the block is left by an exception.
    """

    def __repr__(self) -> str:
        state = ", closed" if self._closed is not None else ", stopped" if self._is_stopped else ""
        return f"<{type(self).__name__} of {self._plan.subscription} for group {self._plan.group}{state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a queue cannot be pickled: make one in the other process; its messages can be")

    def __del__(self) -> None:
        desk, background = getattr(self, "_desk", None), getattr(self, "_background", None)
        if desk is None or self._closed is not None or runtime.is_forked(desk.home):
            return
        if self._hand is not None:
            self._hand.keep_back()
        desk.hand = None
        warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)
        if background is not None:
            background.is_ended = True
            runtime.call_soon(desk.home, background.wake)
        runtime.call_soon(desk.home, partial(desk.close, ClosedError("the queue was dropped without being closed")))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
            return
        handed = left_by(error, runtime.cancellations(), is_stopped=self._is_stopped)
        with runtime.shield():
            try:
                await self._end(handed, Deadline.after(LEAVING_S, self.now()))
            except TidelogError as problem:
                log.warning("leaving a queue by %s: %s", type(error).__name__, problem)

    # -- reading ---------------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[AnyQueueMessage]:
        return runtime.flatten(self._next_items)

    def batches(self, idle_timeout: Duration | None = None) -> AsyncIterator[AsyncQueueBatch[AnyQueueMessage]]:
        """Iterate over batches until `stop()`, or until none came for `idle_timeout` seconds; `batch.ack()` settles all
        of one."""
        idle = math.inf if idle_timeout is None else seconds("idle_timeout", idle_timeout)
        return runtime.each(partial(self._next_batch, idle))

    def messages(
        self, limit: int | None = None, idle_timeout: Duration | None = None
    ) -> AsyncIterator[AnyQueueMessage]:
        """Iterate over at most `limit` messages, ending also when none came for `idle_timeout` seconds."""
        idle = math.inf if idle_timeout is None else seconds("idle_timeout", idle_timeout)
        most = None if limit is None else check_count("limit", limit, 0)
        return runtime.flatten(partial(self._next_items, idle), most)

    async def receive(self, max_messages: int = 1, timeout: Duration | None = None) -> list[AnyQueueMessage]:
        """Return 1 to `max_messages` messages, or none when `timeout` passed or `stop()` was called. So many are asked
        for, of what there is; more is waited for only while there is none."""
        most = check_count("max_messages", max_messages, 1)
        until = math.inf if timeout is None else self.now() + seconds("timeout", timeout)
        received: list[AnyQueueMessage] = []
        items = await self.items_until(until, most)
        try:
            while items is not None:
                received += islice(items, most - len(received))
                left = most - len(received)
                if not left:
                    break
                items = await (self._items_at_once(left) if received else self.items_until(until, most))
        except BaseException:  # nobody gets these
            for message in received:
                message.settle_rest(RETURNED)
            raise
        return received

    async def run(self, handler: Handler[AnyQueueMessage], concurrency: int = 1, *, signals: bool = True) -> None:
        """Call a handler with each message until `stop()`: acknowledge it when the handler returns, nack it with the
        exception that it raises.

        Up to `concurrency` run at a time: an async function in tasks, a plain one in threads. What the handler settled
        itself stays so. Afterwards those that run are finished. In the main thread SIGTERM and SIGINT stop it, a second
        one interrupts it; not with signals=False. What is no Exception ends it, and leaves it as it was raised; a
        handler's SystemExit leaves the message that it had suspect: handed out alone from then on.
        """
        most = check_count("concurrency", concurrency, 1, MAX_CONCURRENCY)
        stops_by_signals = check_flag("signals", signals)
        self._finishing = Finishing()
        try:
            await run_handler(self, handler, most, lambda: self._is_stopped, self._finishing, signals=stops_by_signals)
        finally:
            self._finishing = None

    # -- settling --------------------------------------------------------------------------------------------------

    async def flush(self, timeout: Timeout = DEFAULT) -> None:
        """Return when everything settled so far is durable. Raises LeaseLostError if something of it was lost,
        TimedOutError."""
        seconds_left = timeout_seconds(timeout, self._timeout)
        self._check()
        if self._desk is not None:
            await self._desk.flush(Deadline.after(seconds_left, self.now()))

    def statistics(self) -> QueueStatistics:
        """Return what it holds and has done."""
        desk = self._desk
        if desk is None:
            return QueueStatistics()
        if not runtime.is_forked(desk.home):
            with desk.lock:
                desk.look()
                return desk.book.statistics(self.now(), self._time.wall_us())
        return desk.book.statistics(self.now(), self._time.wall_us())

    # -- ending ----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the loop after the message in hand; from any thread or a signal handler, any number of times. What was
        only fetched ahead goes back when the block is left."""
        self._is_stopped = True
        hand, acquirer, desk = self._hand, self._acquirer, self._desk
        if hand is not None:
            hand.keep_back()
        if acquirer is not None and desk is not None:
            acquirer.is_stopped = True
            runtime.call_soon(desk.home, acquirer.notify)
            runtime.call_soon(desk.home, acquirer.asking.stopped)

    async def close(self, timeout: Timeout = DEFAULT) -> None:
        """Stop, give back what is not settled, and return when everything else is durable. Raises LeaseLostError if
        something that it waited for was lost, TimedOutError."""
        await self._end(RETURNED, Deadline.after(timeout_seconds(timeout, self._timeout), self.now()))

    async def _end(self, handed: How, deadline: Deadline) -> None:
        if self._closed is not None:
            return
        self.stop()
        desk, acquirer, background = self._desk, self._acquirer, self._background
        self._closed = ClosedError(CLOSED)
        if desk is None or acquirer is None or runtime.is_forked(desk.home):
            return
        try:
            runtime.check_home(desk.home, "queue")
            if background is not None:
                background.end()
            await self._hand_back(desk, acquirer, handed, deadline)
        except Exception:
            raise
        except BaseException as error:  # cancelled, or Ctrl-C: that must not leave leases to end by themselves
            with runtime.shield():
                await self._hand_back_at_once(desk, acquirer, handed, error)
            raise
        finally:
            desk.hand = None
            acquirer.asking.forget()
            runtime.call_soon(desk.home, partial(desk.close, self._closed))

    async def _hand_back(self, desk: QueueDesk, acquirer: Acquirer, handed: How, deadline: Deadline) -> None:
        await acquirer.asking.end(deadline)
        desk.give_back_all(handed)
        try:
            await desk.flush(deadline)
        except LeaseLostError:
            await acquirer.leave(deadline)
            raise
        await acquirer.leave(deadline)

    async def _hand_back_at_once(self, desk: QueueDesk, acquirer: Acquirer, handed: How, error: BaseException) -> None:
        desk.give_back_all(handed)  # first, so that another Ctrl-C does not keep it
        try:
            await self._hand_back(desk, acquirer, handed, Deadline.after(LEAVING_S, self.now()))
        except TidelogError as problem:
            log.warning("leaving a queue by %s: %s", type(error).__name__, problem)
