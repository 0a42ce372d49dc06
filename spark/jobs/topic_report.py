"""What a report says of a topic, as values; how they are measured is `report`, how they are drawn `report_page`."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import cast

import msgspec


class Spread(msgspec.Struct, frozen=True):
    """How numbers lie: bytes, or microseconds."""

    count: int
    min: int
    p50: int
    p90: int
    p99: int
    max: int
    mean: float


class PartitionShare(msgspec.Struct, frozen=True):
    """What a partition has of the topic."""

    partition: int
    start: int
    end: int
    records: int
    bytes: int


class KeyShare(msgspec.Struct, frozen=True):
    """How often a key occurs; None is the records without one."""

    key: bytes | None
    records: int
    bytes: int


class Rate(msgspec.Struct, frozen=True):
    """What was appended in a step of time from `time` on."""

    time: datetime
    records: int
    bytes: int


class TopicReport(msgspec.Struct, frozen=True):
    """Everything that is reported. Sizes are of values, latencies from the producer's time, or a header's, to the
    append time; they may be negative where clocks disagree."""

    topic: str
    records: int
    bytes: int
    first: datetime | None
    last: datetime | None
    """When the first and the last record were appended."""
    sizes: Spread | None
    latencies: Spread | None
    latency_from: str
    keys: int
    """How many there are, within about 5 in a hundred."""
    without_key: int
    top_keys: tuple[KeyShare, ...]
    partitions: tuple[PartitionShare, ...]
    rate_step_s: int
    rates: tuple[Rate, ...]
    """Steps in which nothing was appended are left out."""

    @property
    def top_key_share(self) -> float:
        """Which part of the records has the most frequent key."""
        return max((each.records for each in self.top_keys if each.key is not None), default=0) / max(1, self.records)

    @property
    def partition_skew(self) -> float:
        """How many times the average the largest partition has; 1 is even."""
        most = max((each.records for each in self.partitions), default=0)
        return most * len(self.partitions) / self.records if self.records else 1.0

    def to_json(self) -> dict[str, object]:
        """Return it as JSON has it; keys that are not UTF-8 are base64 under `key_base64`."""
        fields = cast("dict[str, object]", msgspec.to_builtins(self))
        fields["top_keys"] = [_key_fields(each) for each in self.top_keys]
        return fields | {"top_key_share": self.top_key_share, "partition_skew": self.partition_skew}


def _key_fields(share: KeyShare) -> dict[str, object]:
    counts: dict[str, object] = {"records": share.records, "bytes": share.bytes}
    try:
        return {"key": None if share.key is None else share.key.decode()} | counts
    except UnicodeDecodeError:
        return {"key_base64": base64.b64encode(share.key or b"").decode()} | counts
