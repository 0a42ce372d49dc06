"""Requests to append to one partition, in the order in which they came.

    offered --little, room, nobody before it--> stored at once
            --else--> waiting: for its check in a worker, for those before it, for room
                         --first, checked, room--> stored, after a worker made large batches without duplicates
                         --max_wait over---------> OVERLOADED, nothing stored
                         --topic deleted---------> UNKNOWN_TOPIC_ID, nothing stored
    stored --as durable as asked--> answered
           --its sync failed------> answered with an error for what is not durable

A later request never overtakes an earlier one, so the batches of a producer stay in order. Whoever gave up waiting
leaves the queue; the batches behind it then fail by their sequence, not by their place. Room goes to the partitions'
first requests in the order in which they began to wait for it, one a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from ..protocol.batch import HEADER_BYTES, BatchHeader
from ..protocol.durability import Durability
from ..protocol.errors import BatchTooLargeError, OverloadedError, TidelogError
from ..protocol.limits import BatchLimits
from ..protocol.messages import BatchResult, ErrorInfo
from .batch_check import LOOP_BUDGET, MAX_BATCHES, BatchCheck
from .deduplication import Reencodings
from .deferred import Deferred
from .group_commit import is_reached
from .message_log import MessageLog, Stored
from .produced import Produced
from .services import Services
from .timers import Timer

MAX_WAITING = 4096
"""Requests that wait at one partition; beyond it they are refused at once."""


class _Waiting:
    """One request that could not be stored at once."""

    __slots__ = ("answer", "bulk", "check", "is_checked", "prepared", "timer", "word")

    def __init__(self, bulk: memoryview, check: BatchCheck, word: Durability) -> None:
        self.bulk = bulk
        self.check = check
        self.word = word
        self.is_checked = check.is_done
        self.prepared: Reencodings | None = None
        self.answer: Deferred[Produced] = Deferred()
        self.timer: Timer | None = None


class ProduceQueue:
    """The way into one partition."""

    def __init__(self, services: Services, log: MessageLog, stored: Callable[[], None]) -> None:
        """`stored` is called when something was appended that had to wait, before that is answered."""
        self.log = log
        """Replaced when the partition is reopened."""
        self._services = services
        self._stored = stored
        self._waiting: deque[_Waiting] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __repr__(self) -> str:
        return f"<ProduceQueue {len(self)} waiting>"

    def offer(
        self, bulk: memoryview, limits: BatchLimits, word: Durability, max_wait_us: int
    ) -> Produced | Deferred[Produced]:
        """Store the batches in `bulk` as soon as it is their turn.

        Raises BatchTooLargeError for more than may ever wait for the disk, OverloadedError when too many wait.
        """
        commit = self._services.commit
        if len(bulk) > commit.max_unsynced_bytes:
            raise BatchTooLargeError(
                f"expected at most {commit.max_unsynced_bytes} bytes in one request, found {len(bulk)}",
                limit=commit.max_unsynced_bytes,
                found=len(bulk),
            )
        check = BatchCheck(bulk, limits)
        check.run(LOOP_BUDGET)
        if not self._waiting and check.is_done and commit.has_room(len(bulk)):
            # What is little enough to be checked here is little enough to be made anew here.
            return self._store(bulk, check, word, None)
        if len(self._waiting) >= MAX_WAITING:
            raise OverloadedError(f"expected at most {MAX_WAITING} requests to wait at a partition, found more")
        return self._enqueue(_Waiting(bulk, check, word), max_wait_us)

    def close(self, error: TidelogError) -> None:
        """Refuse everybody who waits: the partition is gone."""
        waiting, self._waiting = self._waiting, deque()
        for request in waiting:
            self._stop_timer(request)
            request.answer.fail(error)
        self._services.commit.off_room(self._take_room)
        self._stored = _nothing  # what was to be called leads back to the partition, and that to this

    # -- waiting -------------------------------------------------------------------------------------------------

    def _enqueue(self, request: _Waiting, max_wait_us: int) -> Deferred[Produced]:
        self._waiting.append(request)
        services = self._services
        due_us = services.time.monotonic_us() + max_wait_us
        request.timer = services.timers.add(due_us, partial(self._give_up, request, max_wait_us))
        if not request.is_checked:
            services.offload(request.check.run, partial(self._checked, request))
        else:
            self._drain()
        return request.answer

    def _checked(self, request: _Waiting) -> None:
        request.is_checked = True
        self._drain()

    def _give_up(self, request: _Waiting, max_wait_us: int) -> None:
        commit = self._services.commit
        if self._waiting[0] is request:
            commit.off_room(self._take_room)  # it was for this one's size
        self._waiting.remove(request)
        request.answer.fail(
            OverloadedError(
                f"expected room for {len(request.bulk)} bytes within {max_wait_us} us, found"
                f" {commit.unsynced_bytes} of {commit.max_unsynced_bytes} bytes waiting for the disk",
                unsynced_bytes=commit.unsynced_bytes,
            )
        )
        self._drain()

    def _take_room(self) -> None:
        self._drain(has_room=True)

    def _drain(self, *, has_room: bool = False) -> None:
        """Store from the front whatever can be stored now; `has_room` is for the first one only."""
        commit = self._services.commit
        while self._waiting and self._waiting[0].is_checked:
            request = self._waiting[0]
            if self._must_prepare(request):
                return
            if not has_room and not commit.has_room(len(request.bulk)):
                commit.on_room(len(request.bulk), self._take_room)
                return
            has_room = False
            self._waiting.popleft()
            self._stop_timer(request)
            produced = self._store(request.bulk, request.check, request.word, request.prepared)
            self._stored()
            if isinstance(produced, Produced):
                request.answer.resolve(produced)
            else:
                produced.on_done(partial(_pass_on, request.answer))

    def _must_prepare(self, request: _Waiting) -> bool:
        """Have a worker make ready what would hold the loop; the request waits for it as for its check."""
        if request.prepared is not None:
            return False
        request.prepared = self.log.prepare(request.bulk, request.check.headers)
        if request.prepared is None:
            return False
        request.is_checked = False
        self._services.offload(request.prepared.run, partial(self._checked, request))
        return True

    def _stop_timer(self, request: _Waiting) -> None:
        if request.timer is not None:
            self._services.timers.cancel(request.timer)

    # -- storing -------------------------------------------------------------------------------------------------

    def _store(
        self, bulk: memoryview, check: BatchCheck, word: Durability, prepared: Reencodings | None
    ) -> Produced | Deferred[Produced]:
        stored = self.log.store(bulk, check.headers, prepared)
        if check.refused is not None:
            refused_before = next((result.error for result in stored.results if result.error is not None), None)
            error = check.refused if refused_before is None else refused_before.error()
            stored.refuse(error, _count_batches(bulk, check.good_bytes))
        log = self.log.log
        if is_reached(log, stored.upto, word):
            return Produced(word, stored.results)
        answer: Deferred[Produced] = Deferred()
        self._services.commit.wait(log, stored.upto, word, partial(self._durable, self.log, stored, word, answer))
        return answer

    def _durable(
        self,
        log: MessageLog,
        stored: Stored,
        word: Durability,
        answer: Deferred[Produced],
        error: TidelogError | None,
    ) -> None:
        results = stored.results
        if error is not None:
            results = [
                result
                if result.error is not None or is_reached(log.log, end, word)
                else BatchResult(0, 0, 0, error=ErrorInfo.of(error))
                for result, end in zip(results, stored.ends, strict=True)
            ]
        answer.resolve(Produced(word, results))


def _nothing() -> None:
    """Nobody is to be told."""


def _pass_on(answer: Deferred[Produced], done: Deferred[Produced]) -> None:
    answer.resolve(done.result())


def _count_batches(bulk: memoryview, position: int) -> int:
    """Return how many batches seem to begin at or after a position: the refused one, and those after it."""
    count = 0
    while position + HEADER_BYTES <= len(bulk) and count < MAX_BATCHES:
        count += 1
        length = BatchHeader.read(bulk, position).batch_length
        if length < HEADER_BYTES:
            break
        position += length
    return max(count, 1)
