"""How many messages to ask for: enough that the user's code never waits, not so many that others go without.

With a `max_in_flight` it is what is missing of that, asked for once half of it is free. Without one, what handlers
finish in a quarter of the visibility timeout, as measured: 1 to 1,000 in a request, or what they finish in a moment
where that is more, up to 10,000. Who asks for a list of so many gets as many as there are from the start.
Nothing is fetched ahead before the first measurement, nor while one message takes longer than that quarter, and
estimates grow tenfold at most, from list to list.
"""

from __future__ import annotations

from .finishing import Finishing

MAX_REQUESTED = 1_000
"""Messages of one request; another as many may be in hand."""

MAX_AT_ONCE = 10_000
"""Messages of one request, however quick handlers are: a request costs the broker and the client as much as a thousand
messages do, so much of the cost is gone by then, and as many of 100 bytes are what one answer holds."""

MOMENT_S = 0.02
"""Nobody notices that messages were kept from others for so long; two requests hold no more where they exceed
MAX_REQUESTED."""

GROWTH = 10
"""From one estimate to the next: one quick message says little about the next thousand."""

SHARE = 4
"""A message is fetched at most a quarter of the visibility timeout before its turn."""


class Prefetch:
    """The measure of one queue."""

    __slots__ = ("_ahead", "_given", "_measured_s", "_most", "_visibility_s")

    def __init__(self, most: int | None, visibility_s: float) -> None:
        self._most = most
        self._visibility_s = visibility_s
        self._measured_s: float | None = None
        """What one message takes, the user's code included."""
        self._ahead = 0
        """How many may wait here or be on their way, where it adapts."""
        self._given = (0, 0.0)
        """How many messages were handed out since the last measurement, and since when."""

    def __repr__(self) -> str:
        return f"<Prefetch of {self._most if self._most is not None else f'{self._ahead}, adapting'}>"

    @property
    def is_measured(self) -> bool:
        """Whether the user's code has asked for more than its first messages."""
        return self._measured_s is not None

    @property
    def ahead(self) -> int:
        """How many messages may be buffered or asked for, as measured so far."""
        return self._ahead

    def gave(self, count: int, now: float) -> None:
        """So many messages go to the user's code now, perhaps after others of the same list."""
        before, since = self._given
        self._given = (before + count, since if before else now)

    def measure(self, now: float, finishing: Finishing | None = None, *, has_lanes: bool = False) -> None:
        """The user's code asks for more: it is done with what it got, unless that is with handlers, of which
        `finishing` knows."""
        (count, since), self._given = self._given, (0, 0.0)
        took_s = now - since
        if finishing is not None:
            count, took_s = finishing.take(now)
        self.finished(count, took_s, has_lanes=has_lanes)

    def finished(self, count: int, took_s: float, *, has_lanes: bool = False) -> None:
        """The user's code took so long for the last `count` messages that were handed out. `has_lanes`: of several
        priorities; then no more than a moment's worth waits here, as what waits here is passed by nothing."""
        if count <= 0:
            return
        each_s = max(took_s, 0.0) / count
        before = self._measured_s
        self._measured_s = each_s if before is None else max(each_s, (before + each_s) / 2)
        fits = self._visibility_s / SHARE / max(self._measured_s, 1e-9)
        moment = int(min(MOMENT_S / max(self._measured_s, 1e-9), 1e9))
        least = 2 if has_lanes else 2 * MAX_REQUESTED
        most = min(max(least, moment), 2 * MAX_AT_ONCE)
        self._ahead = min(int(min(fits, 1e9)), max(1, self._ahead, count) * GROWTH, most)

    def wanted(self, buffered: int, held: int, *, is_waited_for: bool, listed: int = 1) -> int:
        """Return how many to ask for now, 0 for none. `buffered` wait here, `held` are all that are not settled,
        `is_waited_for`: the user's code has nothing to do, and would take a list of `listed` at once."""
        if self._most is not None:
            room = self._most - held
            is_due = room > 0 and (is_waited_for or room >= max(1, self._most // 2))
            return min(room, 100 * MAX_REQUESTED) if is_due else 0
        room, most = self._ahead - buffered, max(MAX_REQUESTED, self._ahead // 2)
        if is_waited_for:
            return max(min(most, max(1, room)), min(listed, MAX_AT_ONCE))
        return min(most, room) if room >= max(1, self._ahead // 2) else 0
