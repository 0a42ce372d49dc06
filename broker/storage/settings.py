"""What can be set per log, with the broker's defaults."""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
SECOND_US = 1_000_000

# Retention removes whole segments, so a segment that takes longer than this part of it would overstay.
_SEGMENTS_PER_RETENTION = 4


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Sizes in bytes, times in microseconds; None means no limit."""

    segment_bytes: int = 64 * MIB
    index_interval_bytes: int = 4 * KIB
    segment_age_us: int | None = None
    retention_us: int | None = None
    retention_bytes: int | None = None
    max_unsynced_bytes: int = 256 * MIB
    snapshot_interval_bytes: int = 16 * MIB
    snapshot_min_interval_us: int = SECOND_US
    max_open_segments: int = 16

    @property
    def max_segment_age_us(self) -> int | None:
        """The age at which a segment rolls: the one that was set, at most a quarter of the retention."""
        limits = [] if self.segment_age_us is None else [self.segment_age_us]
        if self.retention_us is not None:
            limits.append(self.retention_us // _SEGMENTS_PER_RETENTION)
        return min(limits, default=None)
