"""How long to pause before trying again: doubling, with a random part so that many clients do not return at once."""

from __future__ import annotations

INITIAL_S = 0.05
"""Short enough that a broker's restart is not noticed much longer than it takes."""

MAX_S = 2.0
"""Long enough to be no load on a broker that stays away."""


class Backoff:
    """The pauses of one series of attempts."""

    __slots__ = ("_next_s", "attempts")

    def __init__(self) -> None:
        self._next_s = INITIAL_S
        self.attempts = 0

    def pause(self, chance: float) -> float:
        """Return the next pause in seconds: `chance` (0 to 1) takes it from half to all of its nominal length."""
        nominal = self._next_s
        self._next_s = min(nominal * 2, MAX_S)
        self.attempts += 1
        return nominal * (0.5 + chance / 2)

    def reset(self) -> None:
        """Begin again: an attempt succeeded."""
        self._next_s = INITIAL_S
        self.attempts = 0
