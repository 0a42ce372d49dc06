"""Which process this is: what was made before a fork must not be used after it."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet

_generation = 0


def generation() -> int:
    """Return a number that differs in every forked child. Costs a tenth of `os.getpid()`."""
    return _generation


def _forked() -> None:
    global _generation
    _generation += 1
    for each in list(_watching):
        each.inherited()


class Inherited(Protocol):
    """What a forked child finds of the parent's, and may not go on with."""

    def inherited(self) -> None:
        """This is the child; called once, right after the fork. Takes no lock: nobody is there to let go of it."""
        ...


_watching: WeakSet[Inherited] = WeakSet()


def tell_after_fork(inherited: Inherited) -> None:
    """Call `inherited()` of this in every child forked from here on, as long as there are other references to it."""
    _watching.add(inherited)


os.register_at_fork(after_in_child=_forked)
