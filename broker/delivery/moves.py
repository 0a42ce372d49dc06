"""Messages that are being moved to another log: given up ones to their dead-letter topic, dead letters sent anew.

    waiting for a copy --MOVING--> intended: copies may be in the target --MOVED--> settled
                                      `--MOVING--> intended anew, where the first intent led to no copy

They are open until their copy is durable, and neither leased nor available. Why and how the copy is made is not known
here (`broker.moving`); what is kept is what a start has to know to make each copy once.
"""

from __future__ import annotations

from dataclasses import dataclass

from .offset_set import OffsetSet


@dataclass(slots=True)
class Intent:
    """What was announced before the first copy was appended. `offsets` are replaced, never changed."""

    id: int
    offsets: OffsetSet
    """Those of which no copy is known yet."""
    target_log: int
    search_from: int
    """The offset in the target before which no copy of these can be."""


class Moves:
    """All of one group in one partition that is being moved."""

    __slots__ = ("begins", "intents", "offsets")

    def __init__(self) -> None:
        self.offsets = OffsetSet()
        """Those of intents, and those that wait for one."""
        self.intents: dict[int, Intent] = {}
        self.begins: dict[int, int] = {}
        """By target log, the offset before which no copy of this generation is: what lies there of the same messages is
        of an earlier time that they were given up, before the group was reset."""

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"<Moves of {len(self)} messages, {len(self.intents)} intents>"

    def waiting(self) -> OffsetSet:
        """Return those that no intent names."""
        found = self.offsets.copy()
        for intent in self.intents.values():
            found -= intent.offsets
        return found

    def add(self, offsets: OffsetSet) -> None:
        """Let messages wait for an intent."""
        self.offsets |= offsets

    def intend(self, intent: Intent) -> None:
        """Note what was announced. What an earlier intent names too is this one's from now on: whoever announces it
        again has seen that no copy of it was made."""
        if intent.offsets:
            self.forget(intent.offsets)
            self.offsets |= intent.offsets
            self.intents[intent.id] = intent
            self.begins.setdefault(intent.target_log, intent.search_from)

    def done(self, number: int, offsets: OffsetSet) -> OffsetSet:
        """Take out what was moved by an intent, and return it."""
        intent = self.intents.get(number)
        if intent is None:
            return OffsetSet()
        moved = offsets & intent.offsets
        self.forget(moved)
        return moved

    def forget(self, offsets: OffsetSet) -> None:
        """Let none of these be moved any more."""
        if not self.offsets or self.offsets.isdisjoint(offsets):
            return
        self.offsets -= offsets
        for intent in [*self.intents.values()]:
            intent.offsets = intent.offsets - offsets
            if not intent.offsets:
                del self.intents[intent.id]

    def may_be_copy(self, target_log: int, offset: int) -> bool:
        """Whether what lies there may be a copy that was made in this generation."""
        begin = self.begins.get(target_log)
        return begin is not None and offset >= begin

    def frozen(self) -> tuple[OffsetSet, list[tuple[int, OffsetSet, int, int]], list[tuple[int, int]]]:
        """Return what there is now, for a snapshot: quick, and not changed by what comes later."""
        intents = [(one.id, one.offsets, one.target_log, one.search_from) for one in self.intents.values()]
        return self.offsets.copy(), intents, [*self.begins.items()]

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        seen = OffsetSet()
        for number, intent in self.intents.items():
            assert number == intent.id
            assert intent.offsets, "an intent ends with its last message"
            assert seen.isdisjoint(intent.offsets), "one intent a message"
            seen |= intent.offsets
        assert seen <= self.offsets
