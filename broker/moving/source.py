"""What is moved: seen from the move, which knows nothing of why records are moved or what their copies say.

A group's dead letters are one source, dead letters that are sent anew another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...protocol.errors import TidelogError
from ..deferred import Deferred
from ..delivery.moves import Intent
from ..delivery.offset_set import OffsetSet
from ..flow import Flow
from ..group_commit import Done
from ..partition import Partition

Header = tuple[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Copied:
    """Records of the source and their copies: the copy of the lowest is at `first_copy`, the others follow it one by
    one."""

    offsets: OffsetSet
    first_copy: int


class Rewriting(Protocol):
    """What copies say beside what their records say; called in a worker."""

    def __call__(self, offset: int, headers: Sequence[Header]) -> Sequence[Header]:
        """Return the headers of the copy of a record that has these."""
        ...


class Source(Protocol):
    """Records of one log of messages that are to be elsewhere, and where it is recorded what becomes of them.

    What is recorded is appended to a log, and is as it says at once; `when_synced` tells when all of it is durable.
    """

    @property
    def partition(self) -> Partition:
        """Where the records are; its log of messages is the origin of the copies."""
        ...

    def problem(self) -> TidelogError | None:
        """Return why nothing can be recorded now, or None."""
        ...

    def intents(self) -> Sequence[Intent]:
        """Return what was announced and is not done."""
        ...

    def to_move(self) -> OffsetSet:
        """Return all that is to be moved, announced or not."""
        ...

    def find_target(self) -> Deferred[Partition]:
        """Return where copies go now; it may be made first. Fails with why they cannot go anywhere."""
        ...

    def target_of(self, log_id: int) -> Partition | None:
        """Return the partition of a log of messages that an intent names, None where it is gone for good. Raises what
        keeps it from being read."""
        ...

    def intend(self, offsets: OffsetSet, target_log: int, search_from: int) -> int:
        """Record that copies are about to be made; return the intent's id. Raises what keeps it from being recorded."""
        ...

    def before_done(self, copied: OffsetSet) -> Flow[None]:
        """Do, durably, what has to be done of these before it is on record that they have copies: once it is, a start
        does not look at them again. It may be asked of the same ones several times."""
        ...

    def done(self, intent: int, target_log: int, copied: Sequence[Copied]) -> None:
        """Record that these copies are durable. Raises the same."""
        ...

    def when_synced(self, done: Done) -> None:
        """Call `done` once all that was recorded is synced, with an error if it cannot be."""
        ...

    def rewriting(self, offsets: OffsetSet) -> Rewriting:
        """Return what the copies of these say, as it is known now."""
        ...

    def is_copy(self, headers: Sequence[Header]) -> bool:
        """Whether a record of the target that has the right origin is a copy of this source's, by what it says."""
        ...

    def pass_over(self) -> bool:
        """Settle what cannot be read any more: removed, damaged. Return whether there was any."""
        ...

    def blocked(self, error: TidelogError) -> None:
        """Tell that nothing can be moved now; it is tried again."""
        ...

    def unblocked(self) -> None:
        """Tell that it goes on."""
        ...
