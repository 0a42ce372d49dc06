"""When a peer that says nothing is asked for a sign of life, and when it is taken for gone.

    something is waited for --quiet_s without a byte--> Ping over the same connection --ANSWER_S--> gone

A peer that vanished without a word (a pulled cable, a NAT entry that expired, a machine that was switched off) leaves
a connection that looks open. A broker that is merely slow, or lets a fetch wait, answers the Ping meanwhile: replies
come in any order. One that is not to be expected to read the Ping is given longer.
"""

from __future__ import annotations

import math
from enum import Enum, auto

QUIET_S = 5.0
"""Of silence, while a call waits, before the Ping. A broker answers nearly every request within milliseconds."""

READER_QUIET_S = 12.0
"""The same over the connection of a reader, whose fetches may wait for 20 s: one Ping in each, not more."""

ANSWER_S = 5.0
"""Of more silence after the Ping. A broker that stands still for that long finds out that its clients reconnect."""

STALLED_S = 60.0
"""Where the broker does not read, because enough of this connection waits in it already: a slow disk, say."""


class Verdict(Enum):
    """What silence means."""

    ASK = auto()
    WAIT = auto()
    GONE = auto()


class Vigil:
    """The silence of one peer. `until` is when to look again; before the greeting that is never."""

    __slots__ = ("_is_asked", "quiet_s", "until")

    def __init__(self) -> None:
        self.quiet_s = math.inf
        self.until = math.inf
        self._is_asked = False

    def heard(self, now: float) -> None:
        """Something came, or the first request went out after a time in which nothing was waited for."""
        self.until = now + self.quiet_s
        self._is_asked = False

    def passed(self, now: float, *, can_ask: bool) -> Verdict:
        """Say what to do at `until`, when there is nothing to read; `can_ask` if the broker would read a Ping."""
        if self._is_asked:
            return Verdict.GONE
        self._is_asked = True
        self.until = now + (ANSWER_S if can_ask else STALLED_S)
        return Verdict.ASK if can_ask else Verdict.WAIT
