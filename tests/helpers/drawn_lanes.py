"""Priorities of the messages of a random life, and how they take turns; drawn apart from what else happens in it."""

from __future__ import annotations

import random

from tidelog.protocol.topic_settings import SettingValue

from .broker_core import SECOND


class DrawnLanes:
    """The lanes of one life: in every third all messages have one priority."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"lanes of {seed}")
        self._priorities = self._rng.choice(((4,), (0, 9), (0, 4, 7, 9)))
        self.settings: dict[str, SettingValue] = {
            "lanes_policy": self._rng.choice(("strict", "weighted")),
            "lanes_weights": "9:5, 7:3",
            "lanes_max_wait": self._rng.choice((None, 2 * SECOND)),
        }

    def priority(self) -> int:
        """Draw that of the next batch."""
        return self._rng.choice(self._priorities)
