"""What is in force for a topic: what it was given, and the broker's defaults for the rest."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.durability import Durability
from ..protocol.lane_weights import format_lane_weights, parse_lane_weights
from ..protocol.limits import KIB, MAX_MESSAGE_BYTES, MIB
from ..protocol.topic_name import short_name
from ..protocol.topic_settings import LanesPolicy, Settings, SettingValue, awaited_groups
from .dedup import DedupSettings
from .delivery.lane_policy import LaneSettings
from .storage.settings import LogSettings

MINUTE_US = 60_000_000
DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """How much one broker holds."""

    max_partitions_per_topic: int = 1_000
    max_partitions: int = 20_000
    """Of all topics together: each costs a few descriptors and some memory."""
    max_topics: int = 10_000
    """Live topics; each costs a little in every metadata reply."""


@dataclass(frozen=True, slots=True)
class SettingsInForce:
    """A topic's settings with every default filled in; None means no limit."""

    durability: Durability
    retention_us: int | None
    retention_bytes: int | None
    segment_bytes: int
    segment_age_us: int | None
    max_message_bytes: int
    dedup: DedupSettings
    dedup_scope: str
    archive: bool
    """Whether retention waits until a segment is archived."""
    retention_waits_for: tuple[str, ...] = ()
    """Groups, by full name, that must have settled what retention removes."""
    lanes: LaneSettings = field(default_factory=LaneSettings)
    """Whose turn it is where messages have several priorities."""

    def on_wire(self) -> dict[str, SettingValue]:
        """Return them as `TopicInfo.settings` has them."""
        return {
            "archive": "on" if self.archive else "off",
            "dedup_max_ids": self.dedup.max_ids,
            "dedup_scope": self.dedup_scope,
            "dedup_window": self.dedup.window_us,
            "durability": self.durability.word,
            "lanes_max_wait": self.lanes.max_wait_us,
            "lanes_max_wait_share": self.lanes.max_wait_share,
            "lanes_policy": self.lanes.policy.value,
            "lanes_weights": format_lane_weights(self.lanes.weights),
            "max_message_bytes": self.max_message_bytes,
            "retention": self.retention_us,
            "retention_bytes": self.retention_bytes,
            "retention_waits_for": ", ".join(map(short_name, self.retention_waits_for)) or None,
            "segment_age": self.segment_age_us,
            "segment_bytes": self.segment_bytes,
        }


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """What applies to a topic that does not set it (see protocol.topic_settings), from the configuration."""

    durability: Durability = Durability.SYNCED
    retention_us: int | None = 7 * DAY_US
    retention_bytes: int | None = None
    segment_bytes: int = 64 * MIB
    segment_age_us: int | None = None
    max_message_bytes: int = MAX_MESSAGE_BYTES
    dedup_window_us: int = 10 * MINUTE_US
    dedup_scope: str = "partition"
    dedup_max_ids: int = 1_000_000
    archive: bool = False
    has_archive: bool = False
    """Whether there is an archive at all; a topic that was given `archive=on` keeps everything until there is."""
    lanes: LaneSettings = field(default_factory=LaneSettings)
    partitions: int = 6
    index_interval_bytes: int = 4 * KIB

    def in_force(self, given: Settings) -> SettingsInForce:
        """Return what holds for a topic that was given these settings (they have been checked)."""

        def of(key: str, default: int | None) -> int | None:
            value = given.get(key, default)
            assert not isinstance(value, str), f"setting {key} is {value!r}"
            return value

        def number(key: str, default: int) -> int:
            value = of(key, default)
            return default if value is None else value

        return SettingsInForce(
            durability=Durability.from_word(str(given.get("durability", self.durability.word))),
            retention_us=of("retention", self.retention_us),
            retention_bytes=of("retention_bytes", self.retention_bytes),
            segment_bytes=of("segment_bytes", self.segment_bytes) or self.segment_bytes,
            segment_age_us=of("segment_age", self.segment_age_us),
            max_message_bytes=of("max_message_bytes", self.max_message_bytes) or self.max_message_bytes,
            dedup=DedupSettings(
                window_us=number("dedup_window", self.dedup_window_us),
                max_ids=number("dedup_max_ids", self.dedup_max_ids),
            ),
            dedup_scope=str(given.get("dedup_scope", self.dedup_scope)),
            retention_waits_for=tuple(awaited_groups(given.get("retention_waits_for"))),
            archive=given.get("archive", "on" if self.archive else "off") == "on",
            lanes=self._lanes(given),
        )

    def _lanes(self, given: Settings) -> LaneSettings:
        weights, policy = given.get("lanes_weights"), given.get("lanes_policy")
        wait_us = given.get("lanes_max_wait", self.lanes.max_wait_us)
        share = given.get("lanes_max_wait_share", self.lanes.max_wait_share)
        assert not isinstance(wait_us, str), f"lanes_max_wait is {wait_us!r}"
        assert isinstance(share, int), f"lanes_max_wait_share is {share!r}"
        return LaneSettings(
            policy=self.lanes.policy if policy is None else LanesPolicy(policy),
            weights=self.lanes.weights if weights is None else parse_lane_weights(str(weights)),
            max_wait_us=wait_us,
            max_wait_share=share,
        )

    def log_settings(self, settings: SettingsInForce, max_unsynced_bytes: int) -> LogSettings:
        """Return what a partition's log of messages is opened with."""
        return LogSettings(
            segment_bytes=settings.segment_bytes,
            index_interval_bytes=self.index_interval_bytes,
            segment_age_us=settings.segment_age_us,
            retention_us=settings.retention_us,
            retention_bytes=settings.retention_bytes,
            max_unsynced_bytes=max_unsynced_bytes,
        )
