"""Taking messages of a queue: what is in hand, and what is next. One task at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, cast

from ...protocol.errors import ClosedError, ConcurrentUseError, TidelogError, TimedOutError
from ..codec import Decoder
from ..core.finishing import Finishing
from ..core.granted import TOGETHER, Leased
from ..core.pace import Pace
from ..core.queue_hand import QueueHand
from ..core.queue_plan import QueuePlan
from ..core.renewal_plan import RenewalPlan
from ..process import tell_after_fork
from ..queue_statistics import LostLease
from . import runtime
from .acquirer import Acquirer
from .link import Link
from .queue_background import QueueBackground
from .queue_batch import AsyncQueueBatch, joined_messages
from .queue_desk import QueueDesk
from .queue_message import AnyQueueMessage
from .turn import Turn, Turns

CLOSED = "the queue is closed"


class AsyncTaking(Generic[AnyQueueMessage]):
    """The taking side of a queue, under what the user sees."""

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
        self._begun: list[Leased] = []
        """What the hand was made of."""
        self._finishing: Finishing | None = None
        """While `run` runs."""
        self._pace = Pace()
        self._turns = Turns()
        self._is_stopped = False
        self._closed: ClosedError | None = None

    async def items_until(self, until: float, listed: int = 1) -> Iterator[AnyQueueMessage] | None:
        """Return what is to be handed out next, message by message; `listed` of it would be taken at once."""
        hand = self._hand
        if hand is not None:
            self._pace.look(len(hand), self.now())
            if self._is_in_hand(hand):
                self._check()
                if self._background is not None:
                    self._background.start()
                return hand.items
        return self._picked_up(await self._pull(until, listed))

    async def items_there(self, until: float, listed: int) -> Iterator[AnyQueueMessage] | None:
        """Return what there is to be handed out, or None once the broker has answered that there is nothing. Raises
        TimedOutError when it has not by `until`, which is to be the first call."""
        items = self._picked_up(await self._pull(until, listed, is_looking=True))
        if items is None and not self._is_stopped and self.now() >= until:
            raise TimedOutError(f"expected an answer of the broker for group {self._plan.group} by now, found none")
        return items

    async def piece_until(self, until: float) -> Iterator[AnyQueueMessage] | None:
        """Return as much of that as may be handed out before the clock is looked at again."""
        items, hand, size = await self.items_until(until), self._hand, self._pace.size
        return islice(items, size) if items is not None and hand is not None and size < len(hand) else items

    async def _next_items(self, idle_s: float = math.inf) -> Iterator[AnyQueueMessage] | None:
        return await self.piece_until(self.now() + idle_s)

    def _is_in_hand(self, hand: QueueHand[AnyQueueMessage]) -> bool:
        """Whether there are messages in hand whose lease runs; of one that has ended the rest is passed over."""
        if len(hand) and self._desk is not None:
            self._desk.pass_over()
        return bool(len(hand))

    async def _next_batch(self, idle_s: float) -> AsyncQueueBatch[AnyQueueMessage] | None:
        hand = self._hand
        found = self._rest_of(hand) if hand is not None and self._is_in_hand(hand) else None
        if found is None and (pulled := await self._pull(self.now() + idle_s, together=1)):
            found = self._batch_of(pulled[0])
        if found is not None:
            found.lease.handed = found.place()[1]
            self._given()
            self._handed_out(len(found))
        return found

    def _rest_of(self, hand: QueueHand[AnyQueueMessage]) -> AsyncQueueBatch[AnyQueueMessage] | None:
        """Return what is left of a batch that was begun message by message; those behind it wait for their turn."""
        acquirer, desk = self._acquirer, self._desk
        assert acquirer is not None
        assert desk is not None
        begun, left = self._begun, len(hand)
        acquirer.is_giving = left > 0
        self._hand, self._begun = None, []
        desk.hand = None
        hand.lease.handed = hand.position()
        hand.keep_back()
        behind: list[Leased] = []
        while left > begun[-1].size:
            behind.insert(0, begun.pop())
            left -= behind[0].size
        acquirer.put_back(behind)
        return self._batch_of(begun[-1])[begun[-1].size - left :] if left else None

    def _items_at_hand(self) -> Iterator[AnyQueueMessage] | None:
        turn = Turn()
        try:
            if self._acquirer is None or not self._turns.take(turn):
                return None
            self._acquirer.asking.is_pulling = True  # else an answer that comes in late would be given back, with this
            return self._picked_up(self._acquirer.batches_arrived(TOGETHER))
        except TidelogError:
            return None  # the next call meets it, or what it is of is given back
        finally:
            turn.is_over = True
            if self._acquirer is not None:
                self._acquirer.asking.is_pulling = False

    async def _items_at_once(self, listed: int) -> Iterator[AnyQueueMessage] | None:
        """Return what is here; for the first list also what else there is."""
        items, acquirer, background = self._items_at_hand(), self._acquirer, self._background
        if items is not None or acquirer is None or background is None:
            return items
        turn = Turn()
        try:
            if not self._turns.take(turn):
                return None
            background.step_aside()
            return self._picked_up(await acquirer.batches_at_once(listed))
        except TidelogError:
            return None  # the next call meets it
        finally:
            turn.is_over = True

    def _picked_up(self, found: list[Leased]) -> Iterator[AnyQueueMessage] | None:
        if not found:
            return None
        hand = QueueHand(found[0].lease, found[0].at, self._messages_of(found))
        desk = self._desk
        assert desk is not None
        with desk.lock:
            desk.look()  # for the last time at the hand before
            desk.hand = cast("QueueHand[object]", hand)
            self._hand, self._begun = hand, found
            self._given()
        if self._is_stopped:  # since the batch was there: nobody has told this hand
            hand.keep_back()
        self._handed_out(len(hand))
        self._pace.begin(len(hand), desk.seen_at)
        return hand.items

    def _given(self) -> None:
        """What was taken is in the user's hand."""
        if self._acquirer is not None:
            self._acquirer.is_giving = False

    def _handed_out(self, count: int) -> None:
        acquirer, background = self._acquirer, self._background
        if acquirer is not None and background is not None:
            acquirer.handed_out(count)
            background.start()
            background.watch()

    async def _pull(
        self, until: float, listed: int = 1, *, together: int = TOGETHER, is_looking: bool = False
    ) -> list[Leased]:
        turn = Turn()
        self._check()
        try:
            if not self._turns.take(turn):
                raise ConcurrentUseError("two threads or tasks take messages from one queue; give each its own")
            acquirer, background = self._opened()
            if self._is_stopped:
                return []
            acquirer.asking.is_pulling = True
            acquirer.listed, acquirer.finishing, acquirer.is_looking = listed, self._finishing, is_looking
            background.step_aside()
            return await acquirer.next_batches(until, together)
        finally:
            turn.is_over = True
            self._look_after_what_comes()

    def _look_after_what_comes(self) -> None:
        """What was asked for may be answered when nobody waits: somebody is to give it back. So may what was told, and
        what is said meanwhile waits for that."""
        acquirer, background, desk = self._acquirer, self._background, self._desk
        if acquirer is None or background is None or desk is None:
            return
        if acquirer.asking.on_its_way() is not None or desk.book.settles.flights:
            background.look_after()

    def _batch_of(self, leased: Leased) -> AsyncQueueBatch[AnyQueueMessage]:
        return AsyncQueueBatch(leased.lease, leased.records, leased.start, leased.stop, leased.rows, self._decoder)

    def _messages_of(self, found: list[Leased]) -> list[AnyQueueMessage]:
        return self._batch_of(found[0]).messages() if len(found) == 1 else joined_messages(found, self._decoder)

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
        background = self._background = QueueBackground(desk, acquirer.asking, plan)
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
