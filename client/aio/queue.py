"""A reader of a queue group: hands out leased messages, and settles them."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Generic, NoReturn, cast

from ...protocol.errors import ClosedError, ConcurrentUseError, TidelogError
from ..codec import Decoder
from ..core.arguments import check_count
from ..core.deadline import Deadline
from ..core.granted import Leased
from ..core.leaving import RETURNED, left_by
from ..core.queue_hand import QueueHand
from ..core.queue_plan import QueuePlan
from ..core.renewal_plan import RenewalPlan
from ..core.settles import How
from ..core.times import DEFAULT, Duration, Timeout, seconds, timeout_seconds
from ..process import tell_after_fork
from ..queue_statistics import LostLease, QueueStatistics
from . import runtime
from .acquirer import Acquirer
from .link import Link
from .queue_background import QueueBackground
from .queue_batch import AsyncQueueBatch
from .queue_desk import QueueDesk
from .queue_message import AnyQueueMessage
from .queue_run import Handler, run_handler
from .turn import Turn, Turns

if TYPE_CHECKING:
    from typing import Self

LEAVING_S = 5.0
"""How long leaving the block by an exception may take, so that it is not swallowed by a broker that is away."""

CLOSED = "the queue is closed"

log = logging.getLogger("tidelog")


class AsyncQueue(Generic[AnyQueueMessage]):
    """Iterate it for leased messages, and settle each: `ack`, `nack`, `reject`; one task iterates, any may settle.

        async with client.queue("orders", group="billing") as queue:
            async for message in queue:
                charge(message.value)
                message.ack()

    It reads and settles over a connection of its own, which comes back by itself when it is lost. What it holds is kept
    alive while the user's code works. Leaving the block returns when what was settled is durable; what was not settled
    goes back at once, uncounted, or as a failed attempt if the block is left by an exception.
    """

    def __init__(
        self,
        plan: QueuePlan,
        make_link: Callable[[], Link],
        time: runtime.Time,
        timeout: float | None,
        on_lease_lost: Callable[[LostLease], object] | None,
        decoder: Decoder[object] | None,
    ) -> None:
        self._plan = plan
        self._make_link = make_link
        self._time = time
        self._member = runtime.draw()
        self._timeout = timeout
        self._on_lease_lost = on_lease_lost
        self._decoder = decoder
        self._desk: QueueDesk | None = None
        self._acquirer: Acquirer | None = None
        self._background: QueueBackground | None = None
        self._hand: QueueHand[AnyQueueMessage] | None = None
        self._begun: AsyncQueueBatch[AnyQueueMessage] | None = None
        """What the hand was made of."""
        self._turns = Turns()
        self._is_stopped = False
        self._closed: ClosedError | None = None

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
        left = math.inf if limit is None else check_count("limit", limit, 0)
        return runtime.flatten(_Limited(self, left, idle).next_items)

    async def receive(self, max_messages: int = 1, timeout: Duration | None = None) -> list[AnyQueueMessage]:
        """Return 1 to `max_messages` messages, or none when `timeout` passed or `stop()` was called."""
        most = check_count("max_messages", max_messages, 1)
        until = math.inf if timeout is None else self.now() + seconds("timeout", timeout)
        received: list[AnyQueueMessage] = []
        items = await self.items_until(until)
        while items is not None:
            received += islice(items, most - len(received))
            if len(received) == most:
                break
            items = self._items_at_hand() if received else await self.items_until(until)
        return received

    async def run(self, handler: Handler[AnyQueueMessage], concurrency: int = 1, *, signals: bool = True) -> None:
        """Call a handler with each message until `stop()`: acknowledge it when the handler returns, nack it with the
        exception that it raises.

        Up to `concurrency` run at a time: an async function in tasks, a plain one in threads. What the handler settled
        itself stays so. Afterwards those that run are finished. In the main thread SIGTERM and SIGINT stop it, a second
        one interrupts it; not with signals=False.
        """
        await run_handler(self, handler, check_count("concurrency", concurrency, 1), signals=signals)

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
                return desk.book.statistics()
        return desk.book.statistics()

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
            await acquirer.end(deadline)
            desk.give_back_all(handed)
            await desk.flush(deadline)
        finally:
            desk.hand = None
            runtime.call_soon(desk.home, partial(desk.close, self._closed))

    # -- inside ----------------------------------------------------------------------------------------------------

    async def items_until(self, until: float) -> Iterator[AnyQueueMessage] | None:
        """Return what is to be handed out next, message by message."""
        hand = self._hand
        if hand is not None and len(hand):
            self._check()
            if self._background is not None:
                self._background.start()
            return hand.items
        return self._picked_up(await self._pull(until))

    async def _next_items(self) -> Iterator[AnyQueueMessage] | None:
        return await self.items_until(math.inf)

    async def _next_batch(self, idle_s: float) -> AsyncQueueBatch[AnyQueueMessage] | None:
        hand = self._hand
        found = self._rest_of(hand) if hand is not None and len(hand) else None
        if found is None:
            found = await self._pull(self.now() + idle_s)
        if found is not None:
            found.lease.handed = found.place()[1]
            self._handed_out(len(found))
        return found

    def _rest_of(self, hand: QueueHand[AnyQueueMessage]) -> AsyncQueueBatch[AnyQueueMessage] | None:
        """Return what is left of a batch that was begun message by message."""
        batch, left = self._begun, len(hand)
        self._hand = self._begun = None
        if self._desk is not None:
            self._desk.hand = None
        hand.lease.handed = hand.position()
        hand.keep_back()
        return None if batch is None else batch[len(batch) - left :]

    def _items_at_hand(self) -> Iterator[AnyQueueMessage] | None:
        turn = Turn()
        try:
            if self._acquirer is None or not self._turns.take(turn):
                return None
            return self._picked_up(self._batch_of(self._acquirer.batch_at_hand()))
        except TidelogError:
            return None  # the next call meets it, or what it is of is given back
        finally:
            turn.is_over = True

    def _picked_up(self, batch: AsyncQueueBatch[AnyQueueMessage] | None) -> Iterator[AnyQueueMessage] | None:
        if batch is None:
            return None
        hand = QueueHand(batch.lease, batch.place()[0], batch.messages())
        desk = self._desk
        assert desk is not None
        with desk.lock:
            desk.look()  # for the last time at the hand before
            self._hand, self._begun = hand, batch
            desk.hand = cast("QueueHand[object]", hand)
        if self._is_stopped:  # since the batch was there: nobody has told this hand
            hand.keep_back()
        self._handed_out(len(hand))
        return hand.items

    def _handed_out(self, count: int) -> None:
        acquirer, background = self._acquirer, self._background
        if acquirer is not None and background is not None:
            acquirer.handed_out(count)
            background.start()
            background.watch()

    async def _pull(self, until: float) -> AsyncQueueBatch[AnyQueueMessage] | None:
        turn = Turn()
        self._check()
        try:
            if not self._turns.take(turn):
                raise ConcurrentUseError("two threads or tasks take messages from one queue; give each its own")
            acquirer, background = self._opened()
            if self._is_stopped:
                return None
            acquirer.is_pulling = True
            background.step_aside()
            return self._batch_of(await acquirer.next_batch(until))
        finally:
            turn.is_over = True

    def _batch_of(self, leased: Leased | None) -> AsyncQueueBatch[AnyQueueMessage] | None:
        if leased is None:
            return None
        return AsyncQueueBatch(leased.lease, leased.records, leased.start, leased.stop, leased.rows, self._decoder)

    def _opened(self) -> tuple[Acquirer, QueueBackground]:
        """Return what does the work, made where it is first used."""
        acquirer, background = self._acquirer, self._background
        if acquirer is not None and background is not None:
            return acquirer, background
        desk = QueueDesk(self._make_link(), self._member, self._timeout, self._on_lease_lost)
        tell_after_fork(desk)
        self._desk = desk
        acquirer = self._acquirer = Acquirer(self._plan, desk, self._timeout)
        acquirer.is_stopped = self._is_stopped
        plan = RenewalPlan(extends=self._plan.auto_extend, max_lease_s=self._plan.max_lease_s)
        background = self._background = QueueBackground(desk, acquirer, plan)
        return acquirer, background

    def _check(self) -> None:
        """Raise ClosedError, ForkedError or WrongLoopError when this cannot be used, or not here."""
        if self._closed is not None:
            raise ClosedError(CLOSED)
        if self._desk is not None:
            runtime.check_home(self._desk.home, "queue")

    def now(self) -> float:
        """Return the time by the client's clock."""
        return self._time.now()


class _Limited(Generic[AnyQueueMessage]):
    """Hands out lists until a number of messages is reached or none came for a while."""

    def __init__(self, queue: AsyncQueue[AnyQueueMessage], left: float, idle_s: float) -> None:
        self._queue = queue
        self._left = left
        self._idle_s = idle_s

    async def next_items(self) -> Iterator[AnyQueueMessage] | None:
        """Return the next list's iterator, or one that ends at the limit."""
        if self._left <= 0:
            return None
        queue = self._queue
        items = await queue.items_until(queue.now() + self._idle_s)
        return items if items is None or self._left == math.inf else self._counted(items)

    def _counted(self, items: Iterator[AnyQueueMessage]) -> Iterator[AnyQueueMessage]:
        """Count what is handed out, which is less than there was if the loop stops meanwhile."""
        for message in items:
            self._left -= 1
            yield message
            if self._left <= 0:
                return
