"""What a group makes of single messages: the state of one, and pages of those that are in some states.

A page costs what is on it, and one walk through what is leased or waits; not what the partition holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from ...protocol.delivery_states import DeliveryState
from ...protocol.errors import InvalidRequestError
from ...protocol.messages import ErrorInfo, MessageState
from ...protocol.topic_name import short_name
from ..delivery.lease import Lease
from ..delivery.marks import NEW, Mark, Marks
from ..delivery.offset_set import OffsetSet, lowest, set_of
from ..delivery.queue_state import QueueState
from ..delivery.waiting import Wait
from .ledger import Ledger


def check_states(words: Iterable[str]) -> frozenset[DeliveryState]:
    """Return the states of words. Raises InvalidRequestError."""
    known = {state.value: state for state in DeliveryState}
    found: set[DeliveryState] = set()
    for word in words:
        if word not in known:
            raise InvalidRequestError(f"expected states ({', '.join(known)}), found {word!r}")
        found.add(known[word])
    return frozenset(found)


class _Told(NamedTuple):
    """What is on record of some messages, by offset."""

    waits: dict[int, Wait]
    leases: dict[int, Lease]
    marks: dict[int, Mark]
    rejected: dict[int, Mark]

    @classmethod
    def of(cls, state: QueueState, offsets: OffsetSet) -> _Told:
        """Look it up for all of them at once."""
        leases: dict[int, Lease] = {}
        for lease in state.leases.values():
            if not lease.left.isdisjoint(offsets):
                leases.update(dict.fromkeys(lease.left & offsets, lease))
        return cls(state.waiting.find(offsets), leases, _marks(state.marks, offsets), _marks(state.rejected, offsets))


def _marks(marks: Marks, offsets: OffsetSet) -> dict[int, Mark]:
    return {offset: mark for mark, some in marks.items(offsets) for offset in some}


class MessageStateReader:
    """One group in one partition, asked about messages."""

    def __init__(self, ledger: Ledger, topic: str) -> None:
        self._group = short_name(ledger.group.name)
        self._partition = ledger.partition.index
        self._topic = short_name(topic)
        self._state = ledger.known
        self._unknown = ledger.unknown()
        self._visible = ledger.partition.visible_offset
        self._start = ledger.partition.start_offset
        self._begin = ledger.begin_offset

    def read(self, offset: int) -> MessageState:
        """Return the state of one message."""
        return self._read(OffsetSet([offset]))[0]

    def page(self, words: Collection[DeliveryState], start: int, limit: int) -> list[MessageState]:
        """Return the first messages from `start` on that are in one of these states, at most `limit`. Raises why that
        cannot be said."""
        if self._unknown is not None:
            raise self._unknown
        return self._read(lowest(self._offsets(words, start, limit), limit))

    def _read(self, offsets: OffsetSet) -> list[MessageState]:
        told = None if self._state is None else _Told.of(self._state, offsets)
        return [self._info(offset, told) for offset in offsets]

    def _info(self, offset: int, told: _Told | None) -> MessageState:
        state, available = self._state, DeliveryState.AVAILABLE.value
        info = MessageState(self._group, self._partition, offset, available, topic=self._topic)
        if offset < self._begin:
            info.state = DeliveryState.BEFORE_START.value
        elif offset < self._start:
            info.state = DeliveryState.EXPIRED_BY_RETENTION.value
        elif self._unknown is not None:
            info.state, info.problem = DeliveryState.UNKNOWN.value, ErrorInfo.of(self._unknown)
        elif state is not None and told is not None and offset < state.frontier:
            self._fill(state, told, info)
        return info

    def _fill(self, state: QueueState, told: _Told, info: MessageState) -> None:
        offset, marks = info.offset, told.marks
        if offset not in state.open:
            marks = told.rejected
            word = DeliveryState.ACKNOWLEDGED
            if offset in state.damaged:
                word = DeliveryState.DAMAGED
            elif offset in state.dead_lettered:
                word = DeliveryState.DEAD_LETTERED
            elif offset in marks:
                word = DeliveryState.REJECTED
            info.state = word.value
        elif offset in state.moves.offsets:
            marks = told.rejected
            info.state = DeliveryState.DEAD_LETTERING.value
        elif offset in state.suspects:
            info.state = DeliveryState.SUSPECT.value
        elif (wait := told.waits.get(offset)) is not None:
            info.state, info.due_us = DeliveryState.WAITING.value, wait.wall_us
        elif offset not in state.ready:
            lease = told.leases[offset]
            info.state, info.due_us, info.member = DeliveryState.LEASED.value, lease.wall_deadline_us, lease.member
            info.attempts += offset in lease.handed
        mark = marks.get(offset, NEW)
        info.attempts += mark.attempts
        info.error = mark.error

    def _offsets(self, words: Collection[DeliveryState], start: int, limit: int) -> OffsetSet:
        """Return what of these states lies from `start` on; of those never leased no more than `limit`."""
        state, low = self._state, max(self._begin, self._start, start)
        frontier = low if state is None else max(low, state.frontier)
        found = OffsetSet()
        if DeliveryState.BEFORE_START in words:
            first = max(self._start, start)
            found |= _range(first, min(self._begin, first + limit))
        if state is not None:
            behind = _range(low, state.frontier)
            found |= behind & self._known(state, words, behind)
        if DeliveryState.AVAILABLE in words:
            found |= _range(frontier, min(self._visible, frontier + limit))
        return found

    def _known(self, state: QueueState, words: Collection[DeliveryState], behind: OffsetSet) -> OffsetSet:
        parts = {
            DeliveryState.AVAILABLE: state.ready,
            DeliveryState.SUSPECT: state.suspects,
            DeliveryState.WAITING: state.waiting.offsets,
            DeliveryState.DEAD_LETTERING: state.moves.offsets,
            DeliveryState.DEAD_LETTERED: state.dead_lettered,
            DeliveryState.DAMAGED: state.damaged,
        }
        found = OffsetSet()
        for word in words:
            if word in parts:
                found |= parts[word]
            elif word is DeliveryState.LEASED:
                found |= state.open - state.ready - state.suspects - state.waiting.offsets - state.moves.offsets
            elif word is DeliveryState.REJECTED:
                found |= state.rejected.offsets - state.dead_lettered - state.moves.offsets
            elif word is DeliveryState.ACKNOWLEDGED:
                found |= behind - state.open - state.rejected.offsets - state.damaged
        return found


def _range(start: int, end: int) -> OffsetSet:
    return set_of([(start, end)]) if start < end else OffsetSet()
