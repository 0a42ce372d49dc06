"""A settle request over all its partitions: each records what concerns it, the answer comes when all is durable.

What cannot be done is an error in the place of its item; the others are done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...protocol.durability import Durability
from ...protocol.errors import InvalidRequestError, LeaseLostError, TidelogError
from ...protocol.messages import ErrorInfo, LeaseRanges, Settle, SettleItem, SettleReply
from ...protocol.messages.queue import BY_TOKEN
from ..deferred import Deferred, Reply
from ..errors import kept
from .counters import Counters
from .group_partition import GroupPartition
from .hand_overs import by_partition, check_ranges

MAX_ITEMS = 10_000
"""Of one request; a client that has more to say asks in several."""

AS_THE_TOPIC_SAYS = 0

FindPart = Callable[[int, int], GroupPartition]


def check_settle(request: Settle) -> None:
    """Raise InvalidRequestError for more than one request may say."""
    if len(request.items) > MAX_ITEMS:
        raise InvalidRequestError(
            f"expected at most {MAX_ITEMS} items in a settle request, found {len(request.items)}", limit=MAX_ITEMS
        )
    check_ranges(request.hand_overs, "a settle request", sum(len(item.ranges) for item in request.items))


class SettleRequest:
    """One settle request on its way."""

    def __init__(self, request: Settle, find: FindPart, counters: Counters) -> None:
        self._request = request
        self._find = find
        self._counters = counters
        self._results: list[TidelogError | None] = [None] * len(request.items)
        self._pending = 1
        self._answer: Deferred[Reply] = Deferred()

    def begin(self) -> Reply | Deferred[Reply]:
        """Settle everything, and return the answer, later unless it is durable already."""
        told = by_partition(self._request.hand_overs)
        items = self._places()
        for place in {**items, **told}:
            self._settle(place, items.get(place, []), told.get(place, []))
        self._done([], None)
        return self._answer if self._answer.is_pending else self._answer.result()

    def _places(self) -> dict[tuple[int, int], list[int]]:
        """Return which items concern which partition."""
        places: dict[tuple[int, int], list[int]] = {}
        for place, item in enumerate(self._request.items):
            places.setdefault((item.topic_id, item.partition), []).append(place)
        return places

    def _settle(self, partition: tuple[int, int], places: Sequence[int], told: Sequence[LeaseRanges]) -> None:
        request = self._request
        items: list[SettleItem] = [request.items[place] for place in places]
        try:
            part = self._find(*partition)
            results = part.settle(request.member, request.number, items, told)
        except TidelogError as error:
            self._refuse(places, error)
            return
        for place, result in zip(places, results, strict=True):
            self._results[place] = result
            self._counters.lease_lost += isinstance(result, LeaseLostError)
        if items and all(result is not None for result in results):
            return
        log = part.partition.delivery.log
        assert log is not None, "what was settled was recorded"
        word = Durability(request.durability) if request.durability else part.partition.durability
        self._pending += 1
        log.wait(word, partial(self._done, places))

    def _refuse(self, places: Sequence[int], error: TidelogError) -> None:
        for place in places:
            self._results[place] = self._results[place] or kept(error)

    def _done(self, places: Sequence[int], error: TidelogError | None) -> None:
        if error is not None:
            self._refuse(places, error)
        self._pending -= 1
        if not self._pending:
            results = [None if result is None else ErrorInfo.of(result) for result in self._results]
            self._answer.resolve(Reply(SettleReply(results)))


def is_by_token(request: Settle) -> bool:
    """Whether whoever settles has a token, and is no member."""
    return request.member == BY_TOKEN
