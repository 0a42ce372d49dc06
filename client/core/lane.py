"""Batches to one partition, in order and each stored at most once, whatever happens to the connection.

Every batch has a sequence number under a producer identity; the broker stores the next number, answers a known one
with its first receipt, and refuses a gap. So batches are sent without waiting for each other, and a refusal of one is
a refusal (SEQUENCE_GAP) of all that were sent behind it:

    OPEN --a batch is refused--> HELD --the last answer is in: put back what may go on--> OPEN
      \\                           |
       `--connection lost---------´  everything unanswered goes back, unchanged, and is sent again

What a refusal proves decides how to go on. A batch that was on the wire once and is refused is not stored, and so
nothing that was sent behind it is: its number is free again and the others move up. A repeat that is refused proves
nothing about its first copy, whose answer was lost, unless the refusal is a gap: it goes out again as it was. When
the lowest refusal is a gap, or the producer is not known any more, the broker has lost batches of this identity (a
power loss took what was promised less than `synced`): the lane goes on under a new one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from itertools import count

from ...protocol import errors
from ...protocol.errors import Detail, OutcomeUnknownError, TidelogError
from ...protocol.messages import BatchResult
from .backoff import Backoff
from .parcel import Identity, JoinedParcel, Parcel

MAX_JOINED_IN_FLIGHT = 2
"""Unanswered batches of a lane beyond which single calls wait and share the next one. Measured with 2, 4, 8 and 64
callers: with 1 two callers halve each other's speed, with 2 they do not, and 64 callers get through 2 to 3 times as
much as with 32, because the broker has as many requests less to handle.

The second has at least as many records as the first, while it may still grow and both ask for the same durability.
Otherwise callers fall into three groups of which one always waits, and groups of one never grow. Measured with 4, 8
and 64 callers on one machine, the broker has an eighth to a fifth fewer requests to handle."""


class LaneState(Enum):
    """Whether batches may be sent."""

    OPEN = "open"
    HELD = "held until all answers are in"


class Verdict(Enum):
    """What a refusal says about a batch."""

    FAILED = "not stored, never will be"
    REPEAT = "not now; not stored, if this was its first time on the wire"
    FOLLOWS = "not stored, because one before it is not"
    FORGOTTEN = "not stored, the broker does not know the producer"
    UNSURE = "refused, but perhaps stored"
    WAITS = "sent before, and nobody can tell before those in front of it are answered"
    LOST_TRACK = "sent before, and the broker cannot tell any more"


_UNSURE = (
    errors.LogFencedError,
    errors.StorageError,
    errors.InternalError,
    errors.ProtocolError,
    errors.SequenceReusedError,
    errors.ProducerFencedError,
)
_GONE = (errors.UnknownTopicIdError, errors.UnknownPartitionError)
_ENDS_IDENTITY = {Verdict.FORGOTTEN, Verdict.UNSURE, Verdict.LOST_TRACK}


def judge(error: TidelogError, was_sent_before: bool) -> Verdict:
    """Return what the refusal of a batch means."""
    if isinstance(error, errors.SequenceGapError):
        return Verdict.FOLLOWS
    if isinstance(error, errors.UnknownProducerError):
        return Verdict.LOST_TRACK if was_sent_before else Verdict.FORGOTTEN
    if isinstance(error, _GONE):
        return Verdict.FAILED
    if isinstance(error, _UNSURE):
        return Verdict.UNSURE
    if error.retriable:
        return Verdict.REPEAT
    return Verdict.UNSURE if was_sent_before else Verdict.FAILED


@dataclass(frozen=True, slots=True)
class _Refusal:
    """What was refused while the lane is held, and whether it is thereby known not to be stored."""

    identity: Identity | None
    sequence: int
    verdict: Verdict
    is_proof: bool


@dataclass(frozen=True, slots=True)
class _End:
    """A parcel that is refused for good, and what its senders are told."""

    parcel: Parcel
    error: TidelogError
    details: dict[str, Detail]

    def tell(self) -> None:
        """Tell them; once more makes no difference."""
        self.parcel.refused(self.error, **self.details)


class Lane:
    """The batches of one client to one partition."""

    def __init__(self, topic_id: int, partition: int) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.state = LaneState.OPEN
        self.identity: Identity | None = None
        self.not_before = 0.0
        self.refusal: TidelogError | None = None
        """Why there was a pause last, while nothing was stored since."""
        self.unsent: deque[Parcel] = deque()
        self._in_flight: list[Parcel] = []
        self._returned: list[Parcel] = []
        self._refusals: list[_Refusal] = []
        self._end: _End | None = None
        """Being told: what somebody was told is not stored must never go out again, so it is noted before."""
        self._next_sequence = 0
        self._orders = count()
        self._backoff = Backoff()

    def __repr__(self) -> str:
        return (
            f"<Lane {self.topic_id}/{self.partition} {self.state.name}, {len(self.unsent)} unsent, "
            f"{len(self._in_flight)} in flight, next sequence {self._next_sequence}>"
        )

    @property
    def open_parcel(self) -> JoinedParcel | None:
        """The parcel that single calls may still join."""
        last = self.unsent[-1] if self.unsent else None
        return last if isinstance(last, JoinedParcel) else None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is on its way."""
        return not (self.unsent or self._in_flight or self._returned)

    def has_waiting(self, parcel: Parcel) -> bool:
        """Whether a parcel is to be sent, now or when all answers are in."""
        return parcel in self.unsent or parcel in self._returned

    def next_parcel(self, now: float) -> Parcel | None:
        """Return the parcel to send now, if any, dropping new ones that nobody waits for."""
        while self.unsent and self.unsent[0].encoded is None and not self.unsent[0].still_wanted():
            self.unsent.popleft()
        if not self.unsent or self.state is LaneState.HELD or now < self.not_before:
            return None
        first = self.unsent[0]
        if first.encoded is None:
            if isinstance(first, JoinedParcel) and not self._has_room_for(first):
                return None
            for parcel in self._in_flight:
                if parcel.identity != self.identity:
                    return None  # another identity's sequence does not protect the order
        return first

    def _has_room_for(self, parcel: JoinedParcel) -> bool:
        """Whether a batch of single calls may go out beside those on the way. See MAX_JOINED_IN_FLIGHT."""
        if not self._in_flight:
            return True
        last = self._in_flight[-1]
        may_grow = parcel is self.unsent[-1] and parcel.durability == last.durability
        is_small = may_grow and len(parcel.deliveries) < len(last.deliveries)
        return len(self._in_flight) < MAX_JOINED_IN_FLIGHT and not is_small

    def take(self, parcel: Parcel, identity: Identity) -> bytearray:
        """Return the bytes of `next_parcel()`, which is in flight from here on."""
        if self.identity is None:
            self._next_sequence = 0
            self.identity = identity
        if parcel.encoded is None:
            parcel.order = next(self._orders)
            parcel.encode(self.identity, self._next_sequence)
            self._next_sequence = parcel.sequence + 1
        parcel.sends += 1
        self._in_flight.append(parcel)
        self.unsent.popleft()
        assert parcel.encoded is not None
        return parcel.encoded

    def answered(self, parcel: Parcel, result: BatchResult, durability: int, now: float) -> None:
        """The parcel is stored."""
        parcel.answered(result, durability)
        self._in_flight.remove(parcel)
        self._backoff.reset()
        self.refusal = None
        if self.state is LaneState.HELD:
            self._settle(now, 0.0)

    def refused(self, parcel: Parcel, error: TidelogError, now: float, chance: float) -> None:
        """The parcel came back with an error; `chance` (0 to 1) spreads the pause before a repeat."""
        self.state = LaneState.HELD
        was_sent_before = parcel.sends > 1
        verdict = judge(error, was_sent_before)
        if verdict is Verdict.LOST_TRACK and self._has_unanswered_before(parcel):
            verdict = Verdict.WAITS  # perhaps the broker does not know the producer yet
        is_proof = verdict in (Verdict.FOLLOWS, Verdict.FORGOTTEN, Verdict.FAILED) or (
            verdict is Verdict.REPEAT and not was_sent_before
        )
        self._refusals.append(_Refusal(parcel.identity, parcel.sequence, verdict, is_proof))
        if verdict is Verdict.FAILED and parcel.split(error):
            self._returned += parcel.parts or []
        elif verdict is Verdict.FAILED:
            self._end = _End(parcel, error, {"stored": False})
        elif verdict is Verdict.UNSURE:
            self._end = _End(parcel, error, {})
        elif verdict is Verdict.LOST_TRACK:
            unknown = OutcomeUnknownError(f"sent again over a new connection, but {error.message}")
            self._end = _End(parcel, unknown, {})
        else:
            if verdict is Verdict.REPEAT:
                self.refusal = error
            self._returned.append(parcel)
        if self._end is not None:
            self._end.tell()
        self._in_flight.remove(parcel)
        self._end = None
        self._settle(now, chance)

    def _has_unanswered_before(self, parcel: Parcel) -> bool:
        return any(
            other.identity == parcel.identity and other.sequence < parcel.sequence
            for other in [*self._in_flight, *self._returned, *self.unsent]
        )

    def lost(self) -> None:
        """The connection is gone: what is unanswered is sent again, unchanged unless it is known not to be stored.

        What nobody waits for any more is left out, and the identity with it, if nothing behind it is wanted; otherwise
        it goes out too, so that the sequence is whole. Also sets right what an exception in the middle of another
        method left: each moves a parcel by adding it to where it goes before taking it from where it was, and notes
        what it is going to tell before telling it.
        """
        ended = self._end
        if ended is not None:
            ended.tell()
        unanswered = {
            id(part): part
            for parcel in [*self._in_flight, *self._returned]
            if ended is None or parcel is not ended.parcel
            for part in ([parcel] if parcel.parts is None else parcel.parts)
        }
        behind = [parcel for parcel in self.unsent if id(parcel) not in unanswered]
        in_order = [*sorted(unanswered.values(), key=lambda parcel: parcel.order), *behind]
        numbered = [parcel for parcel in in_order if parcel.encoded is not None]  # refused ones that wait, too
        while numbered and not numbered[-1].still_wanted():
            in_order.remove(numbered.pop())
            self.identity = None  # its numbers have a gap from here on
        self.unsent = deque(in_order)
        self._in_flight, self._returned = [], []
        self._end = None
        for parcel in self.unsent:  # one may have its number, and whoever gave it was interrupted before counting on
            if parcel.encoded is not None and parcel.identity == self.identity:
                self._next_sequence = max(self._next_sequence, parcel.sequence + 1)
        self._conclude()
        self.not_before = 0.0

    def _settle(self, now: float, chance: float) -> None:
        """Once all answers are in after a refusal, put back in order what may go on."""
        if self._in_flight or self.state is LaneState.OPEN:
            return
        in_order = sorted(self._returned, key=lambda parcel: parcel.order)  # parts of one batch have the same
        self.unsent.extendleft(reversed(in_order))
        self._returned = []
        if any(refusal.verdict is Verdict.REPEAT for refusal in self._refusals):
            self.not_before = now + self._backoff.pause(chance)
            for parcel in self.unsent:  # whoever waits for one of these has to send it when the pause is over
                parcel.refusal = self.refusal
                for delivery in parcel.deliveries:
                    delivery.stir()
        self._conclude()

    def _conclude(self) -> None:
        """Draw the conclusions from the refusals, with everything that may go on in `unsent`."""
        for identity in dict.fromkeys(refusal.identity for refusal in self._refusals):
            self._free_from(identity, [refusal for refusal in self._refusals if refusal.identity == identity])
        self._refusals.clear()
        self.state = LaneState.OPEN

    def _free_from(self, identity: Identity | None, refusals: list[_Refusal]) -> None:
        """Number anew what is proven not to be stored of an identity's batches, and decide whether it goes on."""
        lowest = min(refusals, key=lambda refusal: refusal.sequence)
        floor = min([refusal.sequence for refusal in refusals if refusal.is_proof], default=None)
        if floor is not None:
            for parcel in self.unsent:
                if parcel.identity == identity and parcel.sequence >= floor:
                    parcel.make_new()
        if identity != self.identity:
            return
        if lowest.verdict is Verdict.FOLLOWS or any(refusal.verdict in _ENDS_IDENTITY for refusal in refusals):
            self.identity = None
        elif floor is not None:
            self._next_sequence = floor
