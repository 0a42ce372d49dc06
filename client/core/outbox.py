"""All batches that a client has on their way: which is sent next, and what an answer means.

The driver calls `next_send()` until there is nothing more to send: after every submission, after every answer and
after every reconnect. At most MAX_PRODUCES_IN_FLIGHT batches are unanswered, and of single calls two a lane: those
that come later wait and share the next batch of their partition, which is what makes many callers cheap.
"""

from __future__ import annotations

import math

import msgspec

from ...protocol.errors import OutcomeUnknownError, ProtocolError, TidelogError
from ...protocol.limits import MAX_PRODUCES_IN_FLIGHT, MAX_WAIT_US
from ...protocol.messages import InitProducer, InitProducerReply, Produce, ProduceReply
from .lane import Lane
from .parcel import Delivery, Identity, JoinedParcel, Parcel
from .record import Record


class Send(msgspec.Struct, frozen=True, gc=False):
    """A request for the driver to send; `parcel` is None for the one that asks for an identity."""

    message: Produce | InitProducer
    bulk: bytearray | None
    lane: Lane | None
    parcel: Parcel | None


class Outbox:
    """The produce requests of one client."""

    def __init__(self) -> None:
        self.in_flight = 0
        self._identity: Identity | None = None
        self._is_asking = False
        self._lanes: dict[tuple[int, int], Lane] = {}
        self._waiting: dict[Lane, None] = {}

    def __repr__(self) -> str:
        return f"<Outbox of {len(self._lanes)} lanes, {self.in_flight} in flight, {len(self._waiting)} waiting>"

    def join(self, topic_id: int, partition: int, record: Record, *, durability: int, deadline: float) -> Delivery:
        """Take one record of a single call."""
        lane = self._lane(topic_id, partition)
        parcel = lane.open_parcel
        if parcel is None or not parcel.has_room(record, durability):
            parcel = JoinedParcel(partition, record, durability, deadline)
            self._submit(lane, parcel)
        return parcel.join(record, deadline)

    def has_open_parcel(self, topic_id: int, partition: int) -> bool:
        """Whether a batch to this partition waits that single calls can join."""
        lane = self._lanes.get((topic_id, partition))
        return lane is not None and lane.open_parcel is not None

    def submit(self, topic_id: int, parcel: Parcel) -> None:
        """Take a whole batch."""
        self._submit(self._lane(topic_id, parcel.partition), parcel)

    def submit_once(self, topic_id: int, parcel: Parcel) -> None:
        """Take a whole batch, unless it is here already: for a caller that was interrupted and does not know."""
        lane = self._lane(topic_id, parcel.partition)
        if parcel.encoded is None and not lane.has_waiting(parcel):
            self._submit(lane, parcel)

    def withdraw(self, delivery: Delivery) -> bool:
        """Its caller does not wait any more. Return whether it is certain that it was not stored."""
        parcel = delivery.parcel
        if delivery.done:
            return False
        was_abandoned, delivery.is_abandoned = delivery.is_abandoned, True
        if not was_abandoned and parcel.encoded is None and isinstance(parcel, JoinedParcel):
            parcel.leave(delivery)
        return parcel.encoded is None

    def next_send(self, now: float) -> Send | None:
        """Return the next request to send; it counts as sent from here on."""
        if not self._waiting:
            return None
        for lane in list(self._waiting):
            if self.in_flight >= MAX_PRODUCES_IN_FLIGHT:
                return None
            parcel = lane.next_parcel(now)
            if parcel is None:
                if not lane.unsent:
                    del self._waiting[lane]
                continue
            if lane.identity is None and self._identity is None:
                if self._is_asking:
                    continue
                self._is_asking = True
                return Send(InitProducer(), None, None, None)
            try:
                return self._take(lane, parcel, now)
            except TidelogError as error:  # more than the format can hold
                lane.unsent.popleft()
                parcel.refused(error, stored=False)
        return None

    def next_due(self, now: float) -> float:
        """Return when a pause ends that something waits for; infinity if there is none."""
        if not self._waiting:
            return math.inf
        return min([lane.not_before for lane in self._waiting if lane.not_before > now], default=math.inf)

    def identified(self, reply: InitProducerReply | TidelogError) -> None:
        """The broker's answer to the question for an identity; an error is passed to all that need one."""
        self._is_asking = False
        if isinstance(reply, InitProducerReply):
            self._identity = Identity(reply.producer_id, reply.epoch)
            return
        for lane in self._waiting:
            while lane.identity is None and lane.unsent:
                parcel = lane.unsent.popleft()
                if parcel.encoded is None:
                    parcel.refused(reply, stored=False)
                else:  # sent under an identity that ended: what became of it, this refusal does not tell
                    parcel.refused(OutcomeUnknownError(f"sent before the connection was lost, but {reply.message}"))

    def answered(self, send: Send, reply: ProduceReply | TidelogError, now: float, chance: float) -> None:
        """The broker's answer to a batch."""
        lane, parcel = send.lane, send.parcel
        assert lane is not None
        assert parcel is not None
        self.in_flight -= 1
        used = lane.identity
        if isinstance(reply, ProduceReply) and len(reply.results) == 1 and reply.results[0].error is None:
            lane.answered(parcel, reply.results[0], reply.durability, now)
        else:
            lane.refused(parcel, _error_of(reply), now, chance)
        self._drop(used, lane)
        if lane.unsent:
            self._waiting[lane] = None

    def lost(self) -> None:
        """The connection is gone: everything unanswered will be sent again over the next one."""
        self.in_flight = 0
        self._is_asking = False
        for lane in self._lanes.values():
            used = lane.identity
            lane.lost()
            self._drop(used, lane)
            if lane.unsent:
                self._waiting[lane] = None

    def forget(self, topic_id: int) -> None:
        """The topic of this id is gone: drop its lanes once they are idle."""
        for place, lane in [*self._lanes.items()]:
            if place[0] == topic_id and lane.is_idle:
                del self._lanes[place]

    def _lane(self, topic_id: int, partition: int) -> Lane:
        lane = self._lanes.get((topic_id, partition))
        if lane is None:
            lane = self._lanes[topic_id, partition] = Lane(topic_id, partition)
        return lane

    def _submit(self, lane: Lane, parcel: Parcel) -> None:
        parcel.refusal = lane.refusal
        lane.unsent.append(parcel)
        self._waiting[lane] = None

    def _drop(self, used: Identity | None, lane: Lane) -> None:
        """Do not give a lane the identity again that it has just dropped."""
        if used is not None and lane.identity is None and self._identity == used:
            self._identity = None

    def _take(self, lane: Lane, parcel: Parcel, now: float) -> Send:
        identity = lane.identity or self._identity
        assert identity is not None
        bulk = lane.take(parcel, identity)
        self.in_flight += 1
        # Whoever still waits goes to the end of the line, so that no partition holds up the others.
        del self._waiting[lane]
        if lane.unsent:
            self._waiting[lane] = None
        max_wait_us = int(min(max(parcel.deadline - now, 0.0) * 1_000_000, MAX_WAIT_US))
        return Send(Produce(lane.topic_id, lane.partition, parcel.durability, max_wait_us), bulk, lane, parcel)


def _error_of(reply: ProduceReply | TidelogError) -> TidelogError:
    if isinstance(reply, TidelogError):
        return reply
    error = reply.results[0].error if len(reply.results) == 1 else None
    if error is not None:
        return error.error()
    return ProtocolError(f"expected one result for one batch, found {len(reply.results)}")
