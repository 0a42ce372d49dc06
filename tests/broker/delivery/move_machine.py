"""The rules of what is given up: copies are announced and made, dead letters brought back or resolved."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.broker.delivery.driver import packed
from tests.broker.delivery.log_machine import KEEPING, LogMachine

from tidelog.broker.delivery.events import Event, Kind

TARGET = 9 << 32 | 1


class MoveMachine(LogMachine):
    """One group has dead letters; to send them anew from a dead-letter topic is a move of what is available."""

    @initialize()
    def begin_moving(self) -> None:
        self.intents: list[tuple[int, list[int]]] = []

    def _tell(self, kind: Kind, offsets: list[int], intent: int = 0) -> None:
        life = self.groups[KEEPING]
        where = {"lease": intent, "member": TARGET, "number": 40} if intent else {}
        self.partition.record(Event(kind, KEEPING, life.generation, packed(offsets), **where))

    def _some(self, data: st.DataObject, *words: str) -> list[int]:
        """Draw messages, most of them in one of some states."""
        life = self.groups[KEEPING]
        found = [at for at, one in life.is_to_be.every() if one.state in words]
        every = range(life.is_to_be.begin, life.is_to_be.end)
        parts = [found, found[:1], found[::2], [*every[:3], *found[-2:]]]
        return sorted({*data.draw(st.sampled_from(parts))})

    def follow(self, data: st.DataObject) -> None:
        """Take what was given up on its way, as far as it comes."""
        steps = data.draw(st.integers(0, 4))
        if steps > 0:
            self.announce_copies(data)
        if steps > 1 and self.intents:
            self.make_copies(data)
        if steps > 2 and self.intents:
            self.end_dead_letters(data, Kind.REDRIVEN if steps == 3 else Kind.RESOLVED)

    @rule(data=st.data())
    def announce_copies(self, data: st.DataObject) -> None:
        words = data.draw(st.sampled_from([("dead-lettering",), ("dead-lettering",), ("available", "dead-lettering")]))
        if offsets := self._some(data, *words):
            intent = self.partition.ids.next()
            self._tell(Kind.MOVING, offsets, intent)
            self.groups[KEEPING].is_to_be.intend(intent, offsets)
            self.intents.append((intent, offsets))
            self.recorded()

    @precondition(lambda self: self.intents)
    @rule(data=st.data())
    def make_copies(self, data: st.DataObject) -> None:
        intent, offsets = data.draw(st.sampled_from(self.intents[-4:]))
        some = data.draw(st.sampled_from([offsets, offsets, offsets[: len(offsets) // 2 + 1]]))
        self._tell(Kind.MOVED, some, intent)
        self.groups[KEEPING].is_to_be.copied(intent, self._there(some))
        self.recorded()

    @precondition(lambda self: self.intents)
    @rule(data=st.data(), kind=st.sampled_from([Kind.REDRIVEN, Kind.REDRIVEN, Kind.RESOLVED]))
    def end_dead_letters(self, data: st.DataObject, kind: Kind) -> None:
        if offsets := self._some(data, "dead-lettered"):
            self._tell(kind, offsets)
            is_to_be = self.groups[KEEPING].is_to_be
            (is_to_be.redrive if kind is Kind.REDRIVEN else is_to_be.resolve)(offsets)
            self.recorded()

    def _there(self, offsets: list[int]) -> list[int]:
        is_to_be = self.groups[KEEPING].is_to_be
        return [at for at in offsets if is_to_be.begin <= at < is_to_be.end]
