"""What a broker for tests does wrong on purpose, decided by a seed: the same run has the same faults."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class Faults:
    """How likely each fault is, from 0 (never) to 1 (always).

    Whatever the broker promises still holds; these are what clients must live with all the same. Which messages are
    struck the seed decides, and none is twice by the same fault.
    """

    duplicate: float = 0.0
    """A message that was handled is delivered again: its lease ended just before its acknowledgement came."""
    lose_lease: float = 0.0
    """The same for all that its lease held, whatever the message is settled as: those beside it come again too."""
    cut_after_send: float = 0.0
    """The connection is cut after a produce or settle request was carried out and before its reply is sent."""

    def __post_init__(self) -> None:
        for each in fields(self):
            chance: object = getattr(self, each.name)
            if isinstance(chance, bool) or not isinstance(chance, int | float) or not 0 <= chance <= 1:
                raise ValueError(f"{each.name}: expected a chance from 0 to 1, found {chance!r}")


NAMES = tuple(each.name for each in fields(Faults))
"""What each is called."""
