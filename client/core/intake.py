"""What a producer has taken, from an appended message to a batch on its way: how much fits, and when it is cut.

    Intake (a topic)   rows: the list that is appended to        older: lists of a smaller width, cut before it
    Buffer             all topics; granted + unanswered <= buffer_bytes

Nobody asks for room at every message: a topic is granted bytes ahead, about one batch for each partition it goes to,
and whoever has used them up cuts, and asks again.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...protocol.errors import ClosedError
from .consignment import Consignment, consign
from .contents import ColumnContents, Extras
from .cutting import RECORD_OVERHEAD_BYTES
from .directory import Directory, TopicEntry
from .ledger import Ledger
from .outbox import Outbox
from .partitioner import StickyPartitioner
from .producing import ProducerOptions
from .rows import FULL, KEYED, VALUE, Drawn, Rows

GRANT_DIVISOR = 4
"""At most so small a part of what is free is granted at once: one topic leaves room for others."""


class Now(NamedTuple):
    """A moment, by the clock of deadlines and by that on the wall."""

    at: float
    wall_us: int


class Intake:
    """The messages of one topic that are in no batch yet."""

    def __init__(self, topic: TopicEntry, sticky: StickyPartitioner, limit: int) -> None:
        self.topic = topic
        self.sticky = sticky
        self.rows = Rows(VALUE, limit)
        self.older: list[Rows] = []
        self.granted = 0
        self.spread = 1
        """Into how many batches of different partitions or priorities it was cut last."""
        self.began = math.inf
        self.began_us = 0
        self.is_gone = False
        """Its topic could not be found again."""
        self._made: tuple[Drawn, list[Consignment]] | None = None

    def __repr__(self) -> str:
        return f"<Intake of {len(self)} messages for {self.topic.shown}>"

    def __len__(self) -> int:
        return len(self.rows) + sum(len(rows) for rows in self.older)

    @property
    def used(self) -> int:
        """Bytes of the messages in it, roughly."""
        return self.granted - self.rows.left

    def widen(self, width: int) -> None:
        """Have messages of this width fit, from here on."""
        if self.rows.width < width:
            rows = Rows(width, self.rows.limit)
            rows.left, self.rows.left = self.rows.left, 0
            self.older.append(self.rows)
            self.rows = rows

    def append(self, value: bytes | None, key: bytes | None, tag: object, extras: Extras | None) -> None:
        """Add a message that there is room for."""
        self.widen(FULL if extras is not None else VALUE if key is None and tag is None else KEYED)
        self.rows.append(value, key, tag, extras)

    @property
    def is_drawn(self) -> bool:
        """Whether a cut was interrupted: the next draws the same, without what came since."""
        return any(rows.is_drawn for rows in (*self.older, self.rows))

    def drawn(self) -> list[tuple[Rows, Drawn]]:
        """Return what there is of each list, in the order in which it is to be cut.

        The last list is looked at first: a message that is in it, and one that the same thread sent before to an older
        list, are then both in, or the second is not.
        """
        last = self.rows.draw()
        found = [(rows, drawn) for rows in self.older if (drawn := rows.draw()) is not None]
        return found if last is None else [*found, (self.rows, last)]

    def batches(self, drawn: Drawn, ledger: Ledger, options: ProducerOptions, now: Now) -> list[Consignment]:
        """Return the batches of what was drawn; the same again after an interruption."""
        made = self._made
        if made is None or made[0] is not drawn:
            in_time = math.isfinite(self.began)
            made = self._made = (
                drawn,
                consign(
                    ledger,
                    drawn.messages,
                    self.topic,
                    self.sticky,
                    target_bytes=options.batch_bytes,
                    began_us=self.began_us if in_time else now.wall_us,
                    deadline=(self.began if in_time else now.at) + options.delivery_timeout,
                ),
            )
        return made[1]


class Buffer:
    """Everything that a producer has taken and that is not delivered. The lock of the session is held."""

    def __init__(self, options: ProducerOptions, outbox: Outbox, directory: Directory, *, reports: bool) -> None:
        self.options = options
        self.ledger = Ledger(options.durability, options.codec, reports=reports)
        self.intakes: dict[str, Intake] = {}
        """By full name."""
        self.filling: dict[Intake, None] = {}
        """Those that were granted room since they were cut."""
        self.dated: dict[Intake, None] = {}
        """What is known of their topics is not the latest."""
        self.is_closed = False
        """Nothing is cut any more: nobody would be told what became of it."""
        self._outbox = outbox
        self._directory = directory
        self._granted = 0

    def __repr__(self) -> str:
        return f"<Buffer of {len(self.intakes)} topics, {self._granted} bytes granted, {self.ledger!r}>"

    # -- coming in -------------------------------------------------------------------------------------------------

    def admit(self, intake: Intake, size: int, now: Now) -> bool:
        """Return whether a message of `size` may be appended, granting its topic more bytes if need be."""
        need = size + RECORD_OVERHEAD_BYTES
        if intake.rows.left < need:
            lacking = self._wanted(intake) - intake.granted
            if lacking <= 0 and intake.granted:
                return False
            free = self.options.buffer_bytes - self.ledger.bytes - self._granted
            more = max(min(lacking, free // GRANT_DIVISOR), need)
            if more > free and (self.ledger.bytes or self._granted):
                return False
            if intake not in self.filling:
                intake.began, intake.began_us = now.at, now.wall_us
                self.filling[intake] = None
            intake.granted += more
            intake.rows.left += more
            self._granted += more
        intake.rows.left -= need
        return True

    def _wanted(self, intake: Intake) -> int:
        """Return how many bytes of a topic to gather: a batch for each of the partitions it was spread over last."""
        batch_bytes = self.options.batch_bytes
        most = max(self.options.buffer_bytes // GRANT_DIVISOR, batch_bytes)
        return min(batch_bytes * intake.spread, most)

    # -- going out -------------------------------------------------------------------------------------------------

    def cut(self, intake: Intake, now: Now) -> bool:
        """Make batches of a topic's messages and put them into the outbox; False if that has to wait, because the
        topic is to be looked up first. One that only changed goes out as it is known, and is looked up soon after."""
        if self.is_closed:
            return True
        if self.ledger.returned and self.is_stale(intake):
            return False
        found = intake.is_drawn and self._cut(intake, now)
        found = self._cut(intake, now) or found
        if found and self._directory.find(intake.topic.name) != intake.topic:
            self.dated[intake] = None
        self._granted -= intake.granted
        intake.granted = intake.rows.left = 0
        intake.began = math.inf
        self.filling.pop(intake, None)
        if len(intake):
            self._came_meanwhile(intake, now)
        return True

    def _cut(self, intake: Intake, now: Now) -> bool:
        """Make batches of what is drawn; return whether there was anything."""
        found = intake.drawn()
        for rows, drawn in found:
            batches = intake.batches(drawn, self.ledger, self.options, now)
            for batch in batches:
                if self.ledger.take(batch):
                    self._outbox.submit(batch.topic.id, batch)
                elif not batch.is_settled:
                    self._outbox.submit_once(batch.topic.id, batch)
            rows.drop(drawn)
            intake.spread = len({(batch.partition, batch.priority) for batch in batches})
        return bool(found)

    def take_columns(self, intake: Intake, contents: ColumnContents, now: Now) -> bool:
        """Make batches of columns and put them into the outbox, behind all that was sent before; False if there is no
        room, or if the topic is to be looked up first. Raises ClosedError."""
        if self.is_closed:
            raise ClosedError("the producer is closed")
        in_hand = self.ledger.bytes + self._granted
        if in_hand and in_hand + contents.rows.size() > self.options.buffer_bytes:
            return False
        if not self.cut(intake, now):
            return False
        for batch in consign(
            self.ledger,
            contents,
            intake.topic,
            intake.sticky,
            target_bytes=self.options.batch_bytes,
            began_us=now.wall_us,
            deadline=now.at + self.options.delivery_timeout,
        ):
            self.ledger.take(batch)
            self._outbox.submit(batch.topic.id, batch)
        return True

    def _came_meanwhile(self, intake: Intake, now: Now) -> None:
        """Another thread appended, without the lock, while a topic was cut: that is the beginning of the next cut."""
        intake.began, intake.began_us = now.at, now.wall_us
        intake.granted = sum(rows.size() for rows in (*intake.older, intake.rows))
        self._granted += intake.granted
        self.filling[intake] = None

    def cut_all(self, now: Now) -> list[Intake]:
        """Cut every topic; return those that have to wait."""
        return [intake for intake in [*self.intakes.values()] if not self.cut(intake, now)]

    def cut_due(self, now: Now) -> None:
        """Cut the topics whose oldest message has lingered long enough."""
        for intake in [*self.filling]:
            if intake.began + self.options.linger <= now.at:
                self.cut(intake, now)

    def next_due(self) -> float:
        """Return when the next topic is to be cut; infinity if none is."""
        began = [intake.began for intake in [*self.filling] if not (self.ledger.returned and self.is_stale(intake))]
        return min(began, default=math.inf) + self.options.linger

    # -- topics that change ----------------------------------------------------------------------------------------

    def intake(self, topic: TopicEntry, sticky: StickyPartitioner, limit: int) -> Intake:
        """Return the intake of a topic, which is this one from here on unless batches are on their way to another
        that had its name."""
        intake = self.intakes.get(topic.name)
        if intake is None:
            intake = self.intakes.setdefault(topic.name, Intake(topic, sticky, limit))
        elif intake.topic.id == topic.id or not self._is_on_its_way(intake):
            self.learn(intake, topic, sticky, limit)
        return intake

    def learn(self, intake: Intake, topic: TopicEntry, sticky: StickyPartitioner, limit: int) -> None:
        """Take over what is known of a topic now."""
        intake.topic, intake.sticky, intake.is_gone = topic, sticky, False
        for rows in (*intake.older, intake.rows):
            rows.limit = limit
        self.dated.pop(intake, None)

    def is_stale(self, intake: Intake) -> bool:
        """Whether batches of a topic came back because its id is gone: nothing goes out before they do."""
        return any(batch.topic.name == intake.topic.name for batch in self.ledger.returned)

    def stale(self) -> list[Intake]:
        """Return the topics to look up anew: those of which every batch is answered or came back."""
        names = {batch.topic.name for batch in self.ledger.returned}
        return [intake for name in names if not self._is_on_its_way(intake := self.intakes[name])]

    def _is_on_its_way(self, intake: Intake) -> bool:
        name, returned = intake.topic.name, self.ledger.returned
        return any(
            not batch.is_settled and batch not in returned for batch in self.ledger.open if batch.topic.name == name
        )

    def follow(self, intake: Intake) -> None:
        """Send what came back to the topic that has the name now, in the order in which it was sent first."""
        mine = [batch for batch in self.ledger.returned if batch.topic.name == intake.topic.name]
        for batch in sorted(mine, key=lambda each: each.number):
            fresh = consign(
                self.ledger,
                batch.messages,
                intake.topic,
                intake.sticky,
                target_bytes=self.options.batch_bytes,
                began_us=batch.timestamp_us,
                deadline=batch.deadline,
            )
            is_new = intake.topic.id != batch.topic.id  # not so if it was looked up before that one was gone too
            for each in fresh:
                each.reroutes, each.returns = batch.reroutes + is_new, 0 if is_new else batch.returns + 1
            batch.pieces = fresh
            self.ledger.follow(batch, fresh)
            for each in fresh:
                self._outbox.submit_once(each.topic.id, each)

    def recount(self) -> None:
        """Set right what an interruption may have left half done."""
        for intake in [*self.intakes.values()]:
            if intake.began == math.inf and len(intake):  # what came while it was cut
                intake.began, self.filling[intake] = -math.inf, None
            elif intake.began == math.inf:
                self.filling.pop(intake, None)
        self._granted = sum(intake.granted for intake in self.filling)
        self.ledger.recount()
        for batch in sorted(self.ledger.open, key=lambda each: each.number):
            if not batch.is_settled and batch not in self.ledger.returned:
                self._outbox.submit_once(batch.topic.id, batch)
        self.ledger.is_in_doubt = False

    # -- looking ---------------------------------------------------------------------------------------------------

    def statistics(self) -> tuple[int, int, int]:
        """Return how many messages are in it, of about how many bytes, and how many it ever took."""
        waiting = sum(len(intake) for intake in [*self.intakes.values()])
        used = sum(intake.used for intake in [*self.filling])
        return waiting + self.ledger.unanswered, used + self.ledger.bytes, waiting + self.accepted

    @property
    def accepted(self) -> int:
        """Messages in batches, ever."""
        return self.ledger.delivered + self.ledger.failed + self.ledger.unanswered
