"""The pins of one source's moves: where copies may be that a start would have to find.

uncertain intent    from where its search would start, or from its first copy on
recorded            from the first copy on, until the record is synced
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol.errors import TidelogError
from ..delivery.moves import Intent
from ..group_commit import Done
from .pins import Pin, Pins


class HeldCopies:
    """What one source holds in its targets."""

    def __init__(self, pins: Pins) -> None:
        self._pins = pins
        self._uncertain: dict[int, Pin] = {}
        self._unsynced: set[Pin] = set()

    def __bool__(self) -> bool:
        return bool(self._uncertain or self._unsynced)

    def __repr__(self) -> str:
        return f"<HeldCopies of {len(self._uncertain)} intents, {len(self._unsynced)} records>"

    def hold(self, intent: int, log_id: int, offset: int) -> None:
        """Keep what an intent may have led to, from an offset on."""
        self.let_go(intent)
        self._uncertain[intent] = self._pins.hold(log_id, offset)

    def let_go(self, intent: int) -> None:
        """Keep nothing for an intent: all its copies are recorded."""
        pin = self._uncertain.pop(intent, None)
        if pin is not None:
            self._pins.release(pin)

    def recorded(self, log_id: int, offset: int) -> Done:
        """Keep copies that were recorded; return what is to be told when the record is synced, or cannot be: then
        whoever opens it anew has to look."""
        pin = self._pins.hold(log_id, offset)
        self._unsynced.add(pin)

        def done(error: TidelogError | None) -> None:
            if error is None and pin in self._unsynced:
                self._unsynced.discard(pin)
                self._pins.release(pin)

        return done

    def restart(self, intents: Iterable[Intent], *, is_durable: bool) -> None:
        """Keep what these intents may have led to; what is kept so far too unless what they say `is_durable`."""
        old = {*self._uncertain.values(), *self._unsynced}
        self._uncertain = {one.id: self._pins.hold(one.target_log, one.search_from) for one in intents}
        self._unsynced = set() if is_durable else old
        for pin in old - self._unsynced:
            self._pins.release(pin)

    def close(self) -> None:
        """Keep nothing."""
        self.restart((), is_durable=True)
