"""Batches to one partition, in order and each stored at most once, whatever happens to the connection.

Every batch has a sequence number under a producer identity; the broker stores the next number, answers a known one
with its first receipt, and refuses a gap. So batches are sent without waiting for each other, and a refusal of one is
a refusal (SEQUENCE_GAP) of all that were sent behind it:

    OPEN --a batch is refused--> HELD --the last answer is in: put back what may go on--> OPEN
      \\                           |
       `--connection lost---------´  everything unanswered goes back, unchanged, and is sent again

What a refusal proves decides how to go on. When the lowest refused batch was refused for what it is, its number is
free again and those behind it move up. When it was a gap, or the producer is not known any more, the broker has lost
batches of this identity (a power loss took what was promised less than `synced`): the lane goes on under a new one.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from ...protocol import errors
from ...protocol.errors import OutcomeUnknownError, TidelogError
from ...protocol.messages import BatchResult, InitProducerReply
from .backoff import Backoff
from .parcel import JoinedParcel, Parcel


class LaneState(Enum):
    """Whether batches may be sent."""

    OPEN = "open"
    HELD = "held until all answers are in"


class Verdict(Enum):
    """What a refusal says about a batch and its number."""

    FAILED = "not stored, never will be"
    REPEAT = "not stored, may be later"
    FOLLOWS = "not stored, because one before it is not"
    FORGOTTEN = "not stored, the broker does not know the producer"
    UNSURE = "refused, but perhaps stored"
    LOST_TRACK = "sent before, and the broker cannot tell any more"


_UNSURE = (errors.LogFencedError, errors.StorageError, errors.InternalError, errors.ProtocolError)
_PROVES_ROOM = (Verdict.FAILED, Verdict.REPEAT)
_PROVES_NOTHING_STORED = (Verdict.FAILED, Verdict.REPEAT, Verdict.FOLLOWS)


def judge(error: TidelogError, was_sent_before: bool) -> Verdict:
    """Return what the refusal of a batch means."""
    if isinstance(error, errors.SequenceGapError):
        return Verdict.FOLLOWS
    if isinstance(error, errors.UnknownProducerError):
        return Verdict.LOST_TRACK if was_sent_before else Verdict.FORGOTTEN
    if isinstance(error, _UNSURE):
        return Verdict.UNSURE
    return Verdict.REPEAT if error.retriable else Verdict.FAILED


class Lane:
    """The batches of one client to one partition."""

    def __init__(self, topic_id: int, partition: int) -> None:
        self.topic_id = topic_id
        self.partition = partition
        self.state = LaneState.OPEN
        self.identity: InitProducerReply | None = None
        self.not_before = 0.0
        self.unsent: deque[Parcel] = deque()
        self._in_flight: list[Parcel] = []
        self._returned: list[Parcel] = []
        self._refusals: list[tuple[int, Verdict]] = []
        self._next_sequence = 0
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

    def next_parcel(self, now: float) -> Parcel | None:
        """Return the parcel to send now, if any, dropping those that nobody waits for."""
        while self.unsent and not self.unsent[0].still_wanted():
            self.unsent.popleft()
        if not self.unsent or self.state is LaneState.HELD or now < self.not_before:
            return None
        return self.unsent[0]

    def take(self, parcel: Parcel, identity: InitProducerReply) -> bytearray:
        """Return the bytes of `next_parcel()`, which is in flight from here on."""
        if self.identity is None:
            self.identity, self._next_sequence = identity, 0
        if parcel.encoded is None:
            sequence = self._next_sequence
            self._next_sequence += 1
            parcel.encode(self.identity, sequence)
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
        self._settle(now, 0.0)

    def refused(self, parcel: Parcel, error: TidelogError, now: float, chance: float) -> None:
        """The parcel came back with an error; `chance` (0 to 1) spreads the pause before a repeat."""
        self.state = LaneState.HELD
        verdict = judge(error, was_sent_before=parcel.sends > 1)
        self._refusals.append((parcel.sequence, verdict))
        if verdict is Verdict.FAILED:
            parcel.refused(error, stored=False)
        elif verdict is Verdict.UNSURE:
            parcel.refused(error)
        elif verdict is Verdict.LOST_TRACK:
            parcel.refused(OutcomeUnknownError(f"sent again over a new connection, but {error.message}"))
        else:
            self._returned.append(parcel)
        self._in_flight.remove(parcel)
        self._settle(now, chance)

    def lost(self) -> None:
        """The connection is gone: what is unanswered is sent again, unchanged, but for what nobody waits for.

        Also sets right what an exception in the middle of another method left: each moves a parcel by adding it to
        where it goes before taking it from where it was.
        """
        unanswered = {id(parcel): parcel for parcel in [*self._in_flight, *self._returned] if parcel.still_wanted()}
        behind = [parcel for parcel in self.unsent if id(parcel) not in unanswered]
        in_order = sorted(unanswered.values(), key=lambda parcel: parcel.sequence)
        self.unsent = deque([*in_order, *behind])
        self._in_flight, self._returned = [], []
        self._refusals.clear()
        self.state, self.not_before = LaneState.OPEN, 0.0

    def _settle(self, now: float, chance: float) -> None:
        """Once all answers are in after a refusal, put back in order what may go on."""
        if self._in_flight or self.state is LaneState.OPEN:
            return
        verdicts = {verdict for _, verdict in self._refusals}
        lowest_sequence, lowest = min(self._refusals, key=lambda refusal: refusal[0])
        self.unsent.extendleft(sorted(self._returned, key=lambda parcel: parcel.sequence, reverse=True))
        if lowest in _PROVES_NOTHING_STORED:
            self._make_new(self.unsent)
        else:
            self._make_new(self._returned)
        if lowest in _PROVES_ROOM and not verdicts & {Verdict.UNSURE, Verdict.LOST_TRACK}:
            self._next_sequence = lowest_sequence
        else:
            self.identity = None
        if Verdict.REPEAT in verdicts:
            self.not_before = now + self._backoff.pause(chance)
            for parcel in self.unsent:  # whoever waits for one of these has to send it when the pause is over
                for delivery in parcel.deliveries:
                    delivery.stir()
        self._returned = []
        self._refusals.clear()
        self.state = LaneState.OPEN

    def _make_new(self, parcels: deque[Parcel] | list[Parcel]) -> None:
        """The broker has none of these: each is numbered anew, as if it had never been sent."""
        for parcel in parcels:
            parcel.encoded, parcel.sequence, parcel.sends = None, -1, 0
