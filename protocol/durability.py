"""The three words for what an acknowledgement promises; never blurred, never abbreviated."""

from __future__ import annotations

from enum import IntEnum


class Durability(IntEnum):
    """How far a record has come. A larger one includes the smaller ones."""

    RECEIVED = 1
    """In the broker's memory: promised nothing."""
    WRITTEN = 2
    """Survives kill -9 of the broker."""
    SYNCED = 3
    """Survives power loss of the machine."""

    @property
    def word(self) -> str:
        """The word of receipts, docs and metrics."""
        return self.name.lower()

    @classmethod
    def from_word(cls, word: str) -> Durability:
        """Return the durability of a word. Raises ValueError that lists the words."""
        try:
            return cls[word.upper()]
        except KeyError:
            raise ValueError(f"expected received, written or synced, found {word!r}") from None
