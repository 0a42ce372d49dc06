"""One live group, as it was recorded last: a value that is replaced when a synced fact changes it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from ...protocol.messages import GroupInfo, GroupSettings, GroupStart
from ..meta import Begin, GroupRecord
from .settings import GroupDefaults, QueueSettings


@dataclass(frozen=True, slots=True)
class Group:
    """A group's name, settings and begins. `generation` rises with every reset, of however little of it."""

    record: GroupRecord = field(repr=False)
    defaults: GroupDefaults = field(repr=False)
    name: str
    id: int
    generation: int
    settings: QueueSettings

    @classmethod
    def of(cls, record: GroupRecord, defaults: GroupDefaults) -> Group:
        """Return what a record says, with the broker's defaults."""
        settings = defaults.in_force(record.settings)
        return cls(record, defaults, record.name, record.id, record.generation, settings)

    @property
    def kind(self) -> str:
        """`queue`; `stream` in a later version."""
        return self.record.kind

    @property
    def given(self) -> GroupSettings:
        """The settings it was given; the others follow the broker's defaults."""
        return self.record.settings

    @property
    def start(self) -> GroupStart:
        """The rule by which it began, and by which it begins in topics that join later."""
        return self.record.start

    @property
    def topic_ids(self) -> Collection[int]:
        """The topics that it reads."""
        return self.record.begins.keys()

    def reads(self, topic_id: int) -> bool:
        """Whether it reads a topic."""
        return topic_id in self.record.begins

    def begin(self, topic_id: int, partition: int) -> Begin:
        """Return where it begins in a partition of a topic that it reads, as recorded.

        `Begin.offset` is to be clamped by the message log, `log.clamp(begin.epoch, begin.offset)`; and while
        `not_before_us` is set, nothing is leased until a record with that append time is there: `Groups.started`.
        """
        return self.record.begin(topic_id, partition)

    def info(self) -> GroupInfo:
        """Describe it without its partitions, members and counters."""
        return GroupInfo(
            self.name,
            self.id,
            self.kind,
            self.generation,
            self.record.created_us,
            self.start,
            self.settings.on_wire(),
            self.given,
        )
