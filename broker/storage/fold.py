"""State that is computed from a log's batches, and how it survives without reading them all again."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...protocol.batch import BatchHeader

FIRST_FOLD_SECTION = 16
"""Section ids below this are the log's own."""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a snapshot. A version that does not know its id refuses it, unless it is `optional`."""

    id: int
    version: int
    data: bytes
    optional: bool = False


class Freezing(ABC):
    """A state that is held on to little by little, where all of it at once would keep appends waiting too long.

    It is that after the last batch before it was begun, whatever is applied meanwhile.
    """

    @property
    @abstractmethod
    def is_held(self) -> bool:
        """Whether all of it is held."""

    @abstractmethod
    def hold_more(self) -> None:
        """Hold on to some more, quickly."""

    @abstractmethod
    def __call__(self) -> list[Section]:
        """Pack it once all of it is held, in any thread and while further batches are applied."""


class Fold(Protocol):
    """A fold over one log. `apply_batch` runs for every batch in order, the same live and in recovery."""

    def section_ids(self) -> frozenset[int]:
        """Return the ids that `restore` knows, `FIRST_FOLD_SECTION` and up."""
        ...

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Take in a stored batch: the stamped header and all of its bytes, valid during the call only."""
        ...

    def freeze(self) -> Callable[[], list[Section]]:
        """Hold on to the state after the last batch that was applied, quickly: appends wait for it.

        What comes back packs that state, in any thread and while further batches are applied. A `Freezing` is to be
        told to hold more until it is held; the next `freeze` ends it.
        """
        ...

    def restore(self, sections: Sequence[Section]) -> None:
        """Replace the state by what `freeze` once led to."""
        ...
