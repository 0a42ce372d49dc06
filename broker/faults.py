"""A broker's answers with faults, for the tests of programs that use it.

    settle  --(duplicate, lose_lease)--> the lease ends first, as if it had run out --> handled: LEASE_LOST
    produce, settle --handled--(cut_after_send)--> the connection is cut, the answer goes nowhere

What the broker promises holds all the same: a fault is something that can happen to any client. Each is decided by the
seed and the message it happens to, or for produce by how many such requests there were: how settles are gathered into
requests makes no difference. None happens twice to a message, nor to two produce requests in a row, so whoever tries
again gets on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from ..protocol.messages import Message, Produce, Settle, SettleError, SettleItem, Settling
from ..protocol.messages.queue import BY_TOKEN
from .delivery.offset_set import set_of_packed
from .handlers import Answer, Context, Peer, handle
from .logging import get_logger

MAX_REMEMBERED = 1_000_000
"""Messages that had their fault; a test has far fewer, and beyond it there are no more."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How likely each fault is."""

    duplicate: float
    lose_lease: float
    cut_after_send: float


class CutPeer(Peer, Protocol):
    """A connection that can be cut."""

    def cut(self) -> None:
        """End the connection at once: what is answered from here on goes nowhere."""
        ...


class FaultyHandler:
    """Handles requests as the broker does, and does something wrong now and then."""

    def __init__(self, chances: Chances, seed: int) -> None:
        self._chances = chances
        self._seed = seed
        self._had: set[tuple[object, ...]] = set()
        self._produces = 0
        self.fired = {"duplicate": 0, "lose_lease": 0, "cut_after_send": 0}
        """How often each fault happened: to settled ranges, and to connections."""
        self._has_cut = False

    def __repr__(self) -> str:
        return f"<FaultyHandler seed={self._seed} {self._chances}>"

    def __call__(self, context: Context, peer: CutPeer, request: Message, bulk: memoryview) -> Answer:
        """Answer a request. Raises what refuses it."""
        if isinstance(request, Settle):
            self._end_leases(context, request)
        answer = handle(context, peer, request, bulk)
        if self._is_cut(request):
            self.fired["cut_after_send"] += 1
            get_logger().info("fault", kind="cut_after_send", peer=peer.client)
            peer.cut()
        return answer

    def _is_cut(self, request: Message) -> bool:
        chance = self._chances.cut_after_send
        if isinstance(request, Settle):
            struck = [self._strikes("cut_after_send", chance, request, item) for item in request.items]
            return any(struck)
        if not isinstance(request, Produce):
            return False
        self._produces += 1
        self._has_cut = not self._has_cut and self._draws("produce", self._produces) < chance
        return self._has_cut

    def _end_leases(self, context: Context, request: Settle) -> None:
        """Have what is about to be settled be lost, where that is its fate."""
        for item in request.items:
            ended = self._ended(request, item)
            if ended:
                context.queues.settle(Settle(request.group_id, request.generation, BY_TOKEN, 0, ended))

    def _ended(self, request: Settle, item: SettleItem) -> list[SettleItem]:
        is_of_handled = item.what in (Settling.ACCEPT, Settling.RELEASE, Settling.REJECT)
        if is_of_handled and self._strikes("lose_lease", self._chances.lose_lease, request, item):
            self.fired["lose_lease"] += 1
            return [_released(item, "lose_lease"), _returned(item)]
        if item.what is Settling.ACCEPT and self._strikes("duplicate", self._chances.duplicate, request, item):
            self.fired["duplicate"] += 1
            return [_released(item, "duplicate")]
        return []

    def _strikes(self, kind: str, chance: float, request: Settle, item: SettleItem) -> bool:
        """Whether a fault happens for the first time to one of the messages that an item names."""
        if not chance:
            return False
        is_struck = False
        for offset in set_of_packed(item.ranges, MAX_REMEMBERED):
            about = (kind, request.group_id, item.topic_id, item.partition, offset)
            if about not in self._had and len(self._had) < MAX_REMEMBERED and self._draws(*about) < chance:
                self._had.add(about)
                is_struck = True
        if is_struck:
            get_logger().info("fault", kind=kind, topic_id=item.topic_id, partition=item.partition)
        return is_struck

    def _draws(self, *about: object) -> float:
        return random.Random(f"{self._seed}/{about}").random()


def _released(item: SettleItem, kind: str) -> SettleItem:
    error = SettleError("tidelog.testing.Faults", kind)
    return SettleItem(item.topic_id, item.partition, item.lease, Settling.RELEASE, item.ranges, error=error)


def _returned(item: SettleItem) -> SettleItem:
    return SettleItem(item.topic_id, item.partition, item.lease, Settling.RETURN)
