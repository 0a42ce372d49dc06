"""A broker's core with dead letters, and the door to them.

redriving = Redriving.begin(core, 8)                  # a topic of eight messages; group g gave up on all of them
redriving.redrive()                                   # all that are pending, until that is answered
redriving.pending()                                   # -> their offsets in the dead-letter topic
"""

from __future__ import annotations

from tests.helpers.broker_core import SECOND, Core, batch
from tests.helpers.giving_up import GivingUp, letter_settings
from tidelog.broker.dead_letters.desk import DeadLetterDesk
from tidelog.broker.deferred import Deferred
from tidelog.protocol.messages import DeadLetters, Purge, PurgeReply, Redrive, RedriveReply
from tidelog.protocol.offset_ranges import iter_ranges, pack_ranges

EVERYTHING = [(0, 1_000)]


class Redriving:
    """The dead letters of the topic `orders` of a core."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.giving = GivingUp(core)
        self.desk = DeadLetterDesk(core.services, core.topics, core.groups, core.queues)
        self.desk.start()

    @classmethod
    def begin(cls, core: Core, count: int = 8, partitions: int = 1) -> Redriving:
        """Make the topic with so many messages, all of which group `g` gave up on, and nothing left to sync."""
        orders = core.create("orders", partitions)
        core.produce(orders.partition(0), batch(*(b"%d" % at for at in range(count))))
        giving = GivingUp(core)
        giving.group("g", letter_settings())
        giving.reject("g", range(count))
        core.advance(3 * SECOND)
        assert len(giving.letters()) == count
        return cls(core)

    @property
    def topic_id(self) -> int:
        """The dead-letter topic's."""
        return self.core.topic("orders.dlq").id

    def ask(
        self, ranges: list[tuple[int, int]] | None = None, *, as_new: bool = False, max_redrives: int = 3
    ) -> Deferred[RedriveReply]:
        """Ask for a redrive; the answer may be pending."""
        packed = pack_ranges(EVERYTHING if ranges is None else ranges)
        return self.desk.redrive(Redrive(self.topic_id, 0, packed, as_new, max_redrives))

    def redrive(
        self, ranges: list[tuple[int, int]] | None = None, *, as_new: bool = False, max_redrives: int = 3
    ) -> RedriveReply:
        """Bring dead letters back; the answer."""
        return self.core.wait(self.ask(ranges, as_new=as_new, max_redrives=max_redrives))

    def purge(self, ranges: list[tuple[int, int]] | None = None) -> PurgeReply:
        """Give dead letters up for good; the answer."""
        return self.core.wait(self.ask_purge(ranges))

    def ask_purge(self, ranges: list[tuple[int, int]] | None = None) -> Deferred[PurgeReply]:
        """Ask for a purge; the answer may be pending."""
        packed = pack_ranges(EVERYTHING if ranges is None else ranges)
        return self.desk.purge(Purge(self.topic_id, 0, packed))

    def pending(self) -> list[int]:
        """Return the dead letters that are pending."""
        return offsets_in(self.desk.pending(DeadLetters(self.topic_id, 0)).ranges)

    def dead_lettered(self, name: str = "g") -> list[int]:
        """Return the messages that count as dead-lettered in a group."""
        state = self.giving.part(name).state
        return [] if state is None else sorted(state.dead_lettered)

    def available(self, name: str = "g") -> list[int]:
        """Return what a group can lease now, and give it back."""
        held = self.giving.take(name)
        part = self.giving.part(name)
        part.give_back([lease for _, lease in held.values()])
        return sorted(held)


def offsets_in(ranges: bytes) -> list[int]:
    """Return the offsets of packed ranges."""
    return [offset for start, end in iter_ranges(ranges) for offset in range(start, end)]
