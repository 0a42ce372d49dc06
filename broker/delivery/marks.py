"""What is known of messages beyond where they are: attempts, suspicion, and how the last attempt ended.

Offsets are kept by their mark, in blocks of 1,024: what failed together has one mark, so every second of a million
takes a few MiB, and what failed alone is found among the few marks of its block.

    block 0: {a: {1, 3, 5}}    block 7: {a: {7170}, b: {7168, 7169}}             each offset under one mark
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...protocol.messages import SettleError
from .offset_set import OffsetSet, by_block

_BLOCK_BITS = 10


class Mark(NamedTuple):
    """Of messages that are not as new; all zero is the default, and is not kept."""

    attempts: int = 0
    """Hand-overs that count, from leases that have ended."""
    suspect: int = 0
    """How many of such may be leased together, 0: no suspect."""
    last_us: int = 0
    """When the last hand-over was recorded, wall clock."""
    error: SettleError | None = None
    """Why the last attempt failed."""
    first_us: int = 0
    """When the first hand-over that counts was recorded."""
    redrives: int = 0
    """How often it was brought back after it was given up."""
    given_up_us: int = 0
    """When it was given up, wall clock."""
    why: int = 0
    """The flags of the event that gave it up: AT_LIMIT, EXPIRED; 0: by its consumer's wish."""

    def suspected(self, together: int) -> Mark:
        """Return the mark of a suspect: as few may be leased together as any suspicion said."""
        return self._replace(suspect=min(together, self.suspect or together))

    def attempted(self, now_us: int, error: SettleError | None, suspect: int = 0) -> Mark:
        """Return the mark after one more attempt that failed."""
        return self._replace(
            attempts=self.attempts + 1, suspect=suspect, last_us=now_us, error=error, first_us=self.first_us or now_us
        )

    def given_up(self, now_us: int, why: int) -> Mark:
        """Return the mark of a message that gets no more attempts."""
        return self._replace(given_up_us=now_us, why=why)

    def redriven(self) -> Mark:
        """Return the mark of a message that was given up and is available again, as if for the first time."""
        return Mark(redrives=self.redrives + 1)

    def told(self) -> Mark:
        """Return the mark of a message of which its copy says why it was given up, or only the log."""
        return Mark(self.attempts, redrives=self.redrives)


NEW = Mark()


class Marked(NamedTuple):
    """Messages under one mark; the set is not to be changed."""

    mark: Mark
    offsets: OffsetSet


FEW = 16
"""Marks of a block that are walked through; of more it is noted which message has which."""


class _Block:
    """The marks of 1,024 neighbours: each may have failed with an error of its own."""

    __slots__ = ("_by_offset", "entries")

    def __init__(self) -> None:
        self.entries: dict[Mark, OffsetSet] = {}
        self._by_offset: dict[int, Mark] | None = None

    def get(self, offset: int) -> Mark:
        """Return the mark of one, `NEW` where there is none."""
        if (index := self._index()) is not None:
            return index.get(offset, NEW)
        return next((mark for mark, known in self.entries.items() if offset in known), NEW)

    def find(self, part: OffsetSet) -> list[Marked]:
        """Return some, which all have marks, by them."""
        if len(part) >= len(self.entries) or (index := self._index()) is None:
            return [Marked(mark, known & part) for mark, known in self.entries.items() if not known.isdisjoint(part)]
        found: dict[Mark, OffsetSet] = {}
        for offset in part:
            found.setdefault(index[offset], OffsetSet()).add(offset)
        return [Marked(mark, inside) for mark, inside in found.items()]

    def put(self, part: OffsetSet, mark: Mark) -> None:
        """Put some that have none under a mark."""
        known = self.entries.get(mark)
        self.entries[mark] = part if known is None else known | part
        if self._by_offset is not None:
            self._by_offset.update(dict.fromkeys(part, mark))

    def drop(self, part: OffsetSet) -> None:
        """Forget the marks of some, which all have them."""
        for mark, inside in self.find(part):
            rest = self.entries[mark] - inside
            if rest:
                self.entries[mark] = rest
            else:
                del self.entries[mark]
        if self._by_offset is not None:
            for offset in part:
                del self._by_offset[offset]

    def _index(self) -> dict[int, Mark] | None:
        """Return which has which mark, where it pays to know that; noted when it is asked for first."""
        if len(self.entries) <= FEW:
            self._by_offset = None
        elif self._by_offset is None:
            self._by_offset = {offset: mark for mark, known in self.entries.items() for offset in known}
        return self._by_offset


class Marks:
    """Marks of messages of one partition."""

    __slots__ = ("_blocks", "offsets")

    def __init__(self) -> None:
        self._blocks: dict[int, _Block] = {}
        self.offsets = OffsetSet()
        """Those that have one."""

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[Marked]:
        for block in self._blocks.values():
            yield from (Marked(mark, offsets) for mark, offsets in block.entries.items())

    def __repr__(self) -> str:
        return f"<Marks of {len(self)} messages in {len(self._blocks)} blocks>"

    def get(self, offset: int) -> Mark:
        """Return the mark of a message, `NEW` where there is none."""
        block = self._blocks.get(offset >> _BLOCK_BITS)
        return NEW if block is None else block.get(offset)

    def items(self, offsets: OffsetSet) -> list[Marked]:
        """Return the marked ones of a set, by their marks; those that are alike in neighbouring blocks as one."""
        found: list[Marked] = []
        if not self.offsets or self.offsets.isdisjoint(offsets):
            return found
        for block, part in by_block(self.offsets & offsets, _BLOCK_BITS):
            for mark, inside in self._blocks[block].find(part):
                if found and found[-1].mark == mark:
                    found[-1] = Marked(mark, found[-1].offsets | inside)
                else:
                    found.append(Marked(mark, inside))
        return found

    def parts(self, offsets: OffsetSet) -> list[Marked]:
        """Return all of a set by their marks, those that have none under `NEW`."""
        found = self.items(offsets)
        plain = offsets - self.offsets if found else offsets
        return [Marked(NEW, plain), *found] if plain else found

    def change(self, offsets: OffsetSet, how: Callable[[Mark], Mark]) -> None:
        """Replace each mark by what `how` makes of it. Those that become alike are put together at once: a thousand
        messages may each have an error of their own."""
        changed: dict[Mark, OffsetSet] = {}
        for mark, part in self.parts(offsets):
            after = how(mark)
            together = changed.get(after)
            if together is None:
                changed[after] = part.copy()
            else:
                together |= part
        self.drop(offsets)
        for mark, part in changed.items():
            self.put(part, mark)

    def put(self, offsets: OffsetSet, mark: Mark) -> None:
        """Put messages under a mark, whatever theirs was."""
        self.drop(offsets)
        if mark == NEW or not offsets:
            return
        self.offsets |= offsets
        for block, part in by_block(offsets, _BLOCK_BITS):
            self._blocks.setdefault(block, _Block()).put(part, mark)

    def drop(self, offsets: OffsetSet) -> None:
        """Forget the marks of these."""
        if not self.offsets or self.offsets.isdisjoint(offsets):
            return
        for block, part in by_block(self.offsets & offsets, _BLOCK_BITS):
            marks = self._blocks[block]
            marks.drop(part)
            if not marks.entries:
                del self._blocks[block]
        self.offsets -= offsets

    def suspects_in(self, offsets: OffsetSet) -> OffsetSet:
        """Return those of a set that are suspect."""
        found = OffsetSet()
        for mark, part in self.items(offsets):
            if mark.suspect:
                found |= part
        return found

    def frozen(self) -> list[Marked]:
        """Return what there is now, for a snapshot: quick, and not changed by what comes later."""
        return [*self]

    def check(self) -> None:
        """Derive again what must hold; for tests."""
        seen = OffsetSet()
        for block, marks in self._blocks.items():
            assert marks.entries, "no block is kept for nothing"
            for mark, marked in marks.entries.items():
                assert mark != NEW, "the default is not kept"
                assert marked, "no mark is kept for nothing"
                assert marked.min() >> _BLOCK_BITS == block == marked.max() >> _BLOCK_BITS
                assert seen.isdisjoint(marked), "one mark a message"
                assert all(marks.get(offset) == mark for offset in marked), "what is noted is so"
                seen |= marked
        assert seen == self.offsets
