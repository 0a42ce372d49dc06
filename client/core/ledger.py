"""The account of a producer's batches: which are not answered, who waits for that, and what failed.

Everything is called with the lock of the session held. Ctrl-C may strike between any two steps: each can be done
again, and what is counted is then counted anew (`recount`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from ...protocol.batch import Codec
from ...protocol.errors import FailedMessage
from .consignment import Consignment
from .waiter import Waiter

MAX_FAILED_KEPT = 1_000
"""Messages that `DeliveryError.failed` has at most; of more only the count is kept."""


class Mark(Waiter):
    """Waits until every batch up to a number is closed, or for whatever there is to do; `is_for_room`: also for every
    batch that is closed."""

    __slots__ = ("is_for_room", "left", "number")

    def __init__(self) -> None:
        super().__init__()
        self.number: int | None = None
        self.left = 0
        self.is_for_room = False


class Ledger:
    """The batches of one producer that are not closed: not answered, or answered and not yet reported."""

    def __init__(self, durability: int, codec: Codec, *, reports: bool) -> None:
        self.durability = durability
        self.codec = codec
        self.bytes = 0
        """Of batches that are not answered."""
        self.open: dict[Consignment, None] = {}
        self.returned: dict[Consignment, None] = {}
        """Refused, because the id of their topic is gone."""
        self.to_report: deque[Consignment] = deque()
        self.delivered = self.failed = 0
        """Messages, ever."""
        self.is_in_doubt = False
        """Somebody was interrupted in the middle of a change."""
        self._reports = reports
        self._failures: list[FailedMessage] = []
        self._failures_count = 0
        self._marks: dict[Mark, None] = {}
        self._deadlines: list[tuple[float, int, Consignment]] = []
        self._last_number = 0

    def __repr__(self) -> str:
        return f"<Ledger of {len(self.open)} batches, {self.bytes} bytes unanswered, {self.failed} messages failed>"

    @property
    def unanswered(self) -> int:
        """How many messages are not answered."""
        return sum(len(each) for each in [*self.open] if not each.is_settled)

    # -- the life of a batch ---------------------------------------------------------------------------------------

    def take(self, consignment: Consignment) -> bool:
        """Enter a batch; return False if it was entered before."""
        if consignment in self.open or consignment.is_settled:
            return False
        if not consignment.number:
            self._last_number += 1
            consignment.number = self._last_number
        self.open[consignment] = None
        self.bytes += consignment.size
        heapq.heappush(self._deadlines, (consignment.deadline, id(consignment), consignment))
        return True

    def settle(self, consignment: Consignment) -> None:
        """A batch is answered, or given up."""
        consignment.is_settled = True
        self.bytes -= consignment.size
        self.returned.pop(consignment, None)
        self._count(consignment)
        if self._reports:
            self.to_report.append(consignment)
            self.stir()
        else:
            self.close(consignment)

    def give_back(self, consignment: Consignment) -> None:
        """The id of its topic is gone."""
        self.returned[consignment] = None
        self.stir()

    def follow(self, old: Consignment, fresh: list[Consignment]) -> None:
        """Enter in a batch's place what becomes of it: under its topic's new id, or without what it was refused for."""
        for each in fresh:
            each.number = old.number
            self.take(each)
        for mark in self._marks:
            if mark.number is not None and mark.number >= old.number:
                mark.left += len(fresh)
        self.returned.pop(old, None)
        if not old.is_settled:
            old.is_settled = old.is_counted = old.is_reported = True
            self.bytes -= old.size
            self.close(old)

    def close(self, consignment: Consignment) -> None:
        """Nothing more is to be done about a batch."""
        if consignment not in self.open:
            return
        del self.open[consignment]
        for mark in [*self._marks]:
            if mark.is_for_room:
                mark.stir()
            elif mark.number is not None and consignment.number <= mark.number:
                mark.left -= 1
                if mark.left <= 0:
                    mark.finish()

    def _count(self, consignment: Consignment) -> None:
        count = len(consignment)  # no signal is seen between assignments without a call: each line is done, or not
        if consignment.error is None:
            self.delivered, consignment.is_counted = self.delivered + count, True
            return
        kept = [*self._failures, *consignment.failures(MAX_FAILED_KEPT - len(self._failures))]
        failed, lately = self.failed + count, self._failures_count + count
        self._failures, self._failures_count, self.failed, consignment.is_counted = kept, lately, failed, True

    # -- waiting ---------------------------------------------------------------------------------------------------

    def wait_for_all(self, mark: Mark) -> None:
        """Finish `mark` once every batch that is open now is closed."""
        mark.number, mark.left = self._last_number, len(self.open)
        self._marks[mark] = None
        if not mark.left:
            mark.finish()

    def wait_for_room(self, mark: Mark) -> None:
        """Stir `mark` whenever a batch is closed."""
        mark.is_for_room = True
        self._marks[mark] = None

    def wait_for_work(self, mark: Mark) -> None:
        """Stir `mark` when there is something to do."""
        self._marks[mark] = None

    def leave(self, mark: Mark) -> None:
        """Nobody waits with this any more."""
        self._marks.pop(mark, None)

    @property
    def is_waited_for(self) -> bool:
        """Whether anybody waits."""
        return bool(self._marks)

    def stir(self) -> None:
        """Have everybody who waits look again."""
        for mark in [*self._marks]:
            mark.stir()

    # -- ends ------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return until when the next batch may take."""
        while self._deadlines and self._deadlines[0][2].is_settled:
            heapq.heappop(self._deadlines)
        return self._deadlines[0][0] if self._deadlines else None

    def expired(self, now: float) -> Iterator[Consignment]:
        """Yield batches that take too long; whoever asks settles each before the next."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            yield self._deadlines[0][2]

    def take_failures(self) -> tuple[list[FailedMessage], int]:
        """Return the first messages that failed since the last time, and how many did."""
        failures, count, self._failures, self._failures_count = self._failures, self._failures_count, [], 0
        return failures, count

    def doubt(self) -> None:
        """Somebody may have been interrupted in the middle of a change: before the next one, count anew."""
        self.is_in_doubt = True

    def recount(self) -> None:
        """Set right what an interruption may have left half done."""
        for each in [*self.open]:
            if each.pieces and not each.is_settled:
                self.follow(each, each.pieces)
        self.returned = {each: None for each in self.returned if not each.is_settled}
        self.bytes = sum(each.size for each in self.open if not each.is_settled)
        entered = {each for _, _, each in self._deadlines}
        reporting = set(self.to_report)
        for each in [*self.open]:
            if not each.is_settled and each not in entered:
                heapq.heappush(self._deadlines, (each.deadline, id(each), each))
            if each.is_settled and not each.is_counted:
                self._count(each)
            if each.is_settled and each not in reporting and (each.is_reported or not self._reports):
                self.close(each)
            elif each.is_settled and each not in reporting:
                self.to_report.append(each)
        for mark in self._marks:
            if mark.number is not None:
                mark.left = sum(each.number <= mark.number for each in self.open)
                if not mark.left:
                    mark.finish()
