"""What a benchmark found: a row of a table, or one JSON object, always with the same fields."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ....protocol.quantities import format_size
from ..errors import VerificationError
from ..options import OutputFormat
from ..output import StandardOutput
from .account import Faults

HEADS = ("WHAT", "CALLS", "SECONDS", "MSG/S", "MB/S", "P50 MS", "P90 MS", "P99 MS", "MAX MS")

READ_BACK = "every reply verified, every message read back: none lost, repeated, reordered, altered or misplaced"


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under what a benchmark ran."""

    topic: str
    partitions: int
    mode: str
    messages: int
    size: int
    batch: int | None
    """Messages of a call where that was chosen."""
    callers: int
    durability: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What took how long: `messages` in `seconds`, by calls of which each took its time."""

    what: str
    messages: int
    seconds: float
    took_ns: array[int]

    def fields(self, size: int) -> dict[str, object]:
        """Return the figures by name; times in whole microseconds."""
        taken = np.frombuffer(self.took_ns, np.int64)
        p50, p90, p99 = (round(each / 1_000) for each in np.percentile(taken, [50, 90, 99])) if len(taken) else (0,) * 3
        rate = self.messages / self.seconds if self.seconds else 0.0
        return {
            "measured": self.what,
            "calls": len(taken),
            "seconds": round(self.seconds, 6),
            "messages_per_s": round(rate),
            "mb_per_s": round(rate * size / 1e6, 3),
            "p50_us": p50,
            "p90_us": p90,
            "p99_us": p99,
            "max_us": round(int(taken.max()) / 1_000) if len(taken) else 0,
        }


def show(
    out: StandardOutput,
    conditions: Conditions,
    measured: Sequence[Measured],
    faults: Faults,
    output: OutputFormat,
    verified: str = READ_BACK,
) -> None:
    """Print the figures. Raises VerificationError, and prints no figure, where a message was not what it should be."""
    if faults.any:
        raise VerificationError(f"{faults} of {conditions.messages} messages in {conditions.topic}")
    if output is OutputFormat.JSON:
        for each in measured:
            given = {name: getattr(conditions, name) for name in Conditions.__slots__}
            problems = {name: getattr(faults, name) for name in Faults.__slots__}
            out.json(given | each.fields(conditions.size) | problems)
    else:
        out.text(_headline(conditions))
        out.text("")
        out.table(HEADS, [_row(each, conditions.size) for each in measured])
        out.text("")
        out.text(verified)
    out.flush()


def _headline(conditions: Conditions) -> str:
    callers = "1 caller" if conditions.callers == 1 else f"{conditions.callers} callers"
    batch = f" of {conditions.batch}" if conditions.batch else ""
    partitions = "1 partition" if conditions.partitions == 1 else f"{conditions.partitions} partitions"
    return (
        f"{conditions.messages} messages of {format_size(conditions.size)}, {conditions.mode}{batch}, {callers}, "
        f"{conditions.durability}, {partitions}"
    )


def _row(measured: Measured, size: int) -> list[object]:
    fields = measured.fields(size)
    times = [f"{int(str(fields[name])) / 1_000:.3f}" for name in ("p50_us", "p90_us", "p99_us", "max_us")]
    rates = [fields["messages_per_s"], f"{fields['mb_per_s']:.1f}"]
    return [measured.what, fields["calls"], f"{measured.seconds:.3f}", *rates, *times]
