"""The words that arguments may be, for type checkers."""

from __future__ import annotations

from typing import Literal

DurabilityWord = Literal["received", "written", "synced"]
"""When a call is answered."""

CompressionWord = Literal["zstd"]
"""How a producer packs its batches."""

ByWord = Literal["append_time", "timestamp"]
"""Which time a range goes by."""

OrderWord = Literal["time"]
"""How a replay merges partitions."""

HoleWord = Literal["raise", "skip"]
"""What to do about records that are damaged or gone."""

SettleWord = Literal["ack", "nack", "reject", "extend"]
"""What to do with a leased message by its token."""
