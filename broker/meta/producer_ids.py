"""Gives out producer ids: an id is used only after it is on record that it may have been.

Nameless producers get the next id of a block that is synced before its first id goes out; the next block is recorded
while a quarter is left, so that nobody waits. A name keeps its id and gets it back under a raised, synced epoch.
"""

from __future__ import annotations

from collections import deque

from ...protocol.errors import InvalidRequestError
from ...protocol.messages import InitProducerReply
from ..deferred import Deferred, failed
from ..producer_id import NAMED_PRODUCER
from .facts import ProducerIdsReserved, ProducerNamed
from .meta_log import PRODUCER_ID_BLOCK, MetaLog
from .state import NamedProducer

MAX_NAMED_PRODUCERS = 100_000
"""Names are kept for ever; each is some 100 bytes of every snapshot."""

RESERVE_BELOW = PRODUCER_ID_BLOCK // 4


class ProducerIds:
    """All producer identities of one broker."""

    def __init__(self, meta: MetaLog) -> None:
        self._meta = meta
        self._upto = meta.state.producer_ids_upto
        self._next = self._upto - PRODUCER_ID_BLOCK
        self._is_reserving = False
        self._waiting: deque[Deferred[InitProducerReply]] = deque()

    def __repr__(self) -> str:
        return f"<ProducerIds next={self._next} upto={self._upto}>"

    def take(self, name: str | None) -> Deferred[InitProducerReply]:
        """Return an identity for a new session."""
        return self._take_nameless() if name is None else self._take_named(name)

    def _take_nameless(self) -> Deferred[InitProducerReply]:
        answer: Deferred[InitProducerReply] = Deferred()
        if self._next < self._upto and not self._waiting:
            answer.resolve(InitProducerReply(self._next, 0))
            self._next += 1
        else:
            self._waiting.append(answer)
        if self._upto - self._next <= RESERVE_BELOW:
            self._reserve()
        return answer

    def _reserve(self) -> None:
        if not self._is_reserving:
            self._is_reserving = True
            upto = self._upto + PRODUCER_ID_BLOCK
            self._meta.record(ProducerIdsReserved(upto)).on_done(lambda done: self._reserved(upto, done))

    def _reserved(self, upto: int, done: Deferred[None]) -> None:
        self._is_reserving = False
        waiting, self._waiting = self._waiting, deque()
        if done.error is not None:
            for answer in waiting:
                answer.fail(done.error)
            return
        self._upto = upto
        for answer in waiting:
            self._take_nameless().on_done(lambda given, answer=answer: _pass_on(given, answer))

    def _take_named(self, name: str) -> Deferred[InitProducerReply]:
        state = self._meta.state
        if not name:
            return failed(InvalidRequestError("expected a producer name, or none at all, found an empty one"))
        known = state.named.get(name)
        if known is None and len(state.named) >= MAX_NAMED_PRODUCERS:
            return failed(InvalidRequestError(f"expected at most {MAX_NAMED_PRODUCERS} producer names, found more"))
        session = NamedProducer(NAMED_PRODUCER | state.next_named_id, 0)
        if known is not None:
            session = NamedProducer(known.id, known.epoch + 1)
        recorded = self._meta.record(ProducerNamed(name, session.id, session.epoch))
        return recorded.then(lambda _: InitProducerReply(session.id, session.epoch))


def _pass_on(given: Deferred[InitProducerReply], answer: Deferred[InitProducerReply]) -> None:
    if given.error is not None:
        answer.fail(given.error)
    else:
        answer.resolve(given.result())
