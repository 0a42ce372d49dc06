"""One live topic: what is recorded of it, and its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol.errors import TidelogError, UnknownPartitionError
from ..protocol.messages import PartitionInfo, TopicInfo
from ..protocol.topic_name import short_name
from ..protocol.topic_settings import SettingValue
from .errors import anew
from .id_share import IdShare
from .meta import TopicRecord
from .partition import Partition
from .storage.settings import LogSettings
from .topic_defaults import SettingsInForce
from .watches import Wake


class Topic:
    """A topic's name, settings and partitions. A partition that could not be opened is offline, the others serve."""

    def __init__(
        self, record: TopicRecord, settings: SettingsInForce, partitions: Sequence[Partition | TidelogError]
    ) -> None:
        self._record = record
        self._settings = settings
        self._slots = list(partitions)
        self._share_ids()

    def __repr__(self) -> str:
        return f"<Topic {self.name!r} id={self.id} partitions={len(self._slots)} offline={len(self.offline)}>"

    @property
    def id(self) -> int:
        """Its id, never used again."""
        return self._record.id

    @property
    def name(self) -> str:
        """Its full name."""
        return self._record.name

    @property
    def count(self) -> int:
        """How often its name was made, this time included."""
        return self._record.count

    @property
    def created_us(self) -> int:
        """When it was made."""
        return self._record.created_us

    @property
    def changed_version(self) -> int:
        """The metadata version at which it changed last: a waiting fetch that knows less is answered."""
        return self._record.changed_version

    @property
    def given(self) -> dict[str, SettingValue]:
        """The settings it was given; the others follow the broker's defaults."""
        return self._record.settings

    @property
    def settings(self) -> SettingsInForce:
        """The settings in force."""
        return self._settings

    @property
    def partition_count(self) -> int:
        """Its partitions, those offline included."""
        return len(self._slots)

    @property
    def partitions(self) -> list[Partition]:
        """The partitions that serve."""
        return [slot for slot in self._slots if isinstance(slot, Partition)]

    @property
    def offline(self) -> dict[int, TidelogError]:
        """Why partitions could not be opened, by index."""
        return {index: slot for index, slot in enumerate(self._slots) if not isinstance(slot, Partition)}

    def partition(self, index: int) -> Partition:
        """Return a partition. Raises UnknownPartitionError, or what keeps it offline."""
        if not 0 <= index < len(self._slots):
            raise UnknownPartitionError(
                f"expected a partition of {short_name(self.name)} from 0 to {len(self._slots) - 1}, found {index}",
                partitions=len(self._slots),
            )
        slot = self._slots[index]
        if isinstance(slot, Partition):
            return slot
        raise anew(slot)

    def info(self) -> TopicInfo:
        """Describe the topic without its partitions."""
        return TopicInfo(
            self.name,
            self.id,
            self.count,
            self.created_us,
            [],
            self._settings.on_wire(),
            sorted(self.given),
        )

    def partition_info(self, index: int, leader: str, *, details: bool) -> PartitionInfo:
        """Describe one of its partitions."""
        slot = self._slots[index]
        if isinstance(slot, Partition):
            return slot.info(leader, details=details)
        return PartitionInfo(index, leader, 0, fenced=True)

    # -- changes -------------------------------------------------------------------------------------------------

    def add(self, partitions: Sequence[Partition]) -> None:
        """Take in partitions that were added to it."""
        self._slots += partitions
        self._share_ids()

    def put(self, partition: Partition) -> None:
        """Bring a partition that was offline into service."""
        self._slots[partition.index] = partition
        self._share_ids()

    def change_settings(self, settings: SettingsInForce, log_settings: LogSettings) -> None:
        """Go on under other settings, and answer those who wait: the topic changed."""
        self._settings = settings
        for partition in self.partitions:
            partition.change_settings(settings, log_settings)
        self._share_ids()
        for partition in self.partitions:
            partition.wake(Wake.CHANGED)

    def _share_ids(self) -> None:
        """Of an id that is to be unique in the topic, let only one partition take it."""
        is_shared = self._settings.dedup_scope == "topic"
        for partition in self.partitions:
            partition.share_ids(IdShare(partition.index, len(self._slots)) if is_shared else None)
