"""Draw what `bench.compare --json` kept as a picture: `python -m bench.chart FILE.json PICTURE.svg`.

Plain SVG, written here: each figure is a pair of bars, longer is better, with the ratio beside it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict
from xml.sax.saxutils import escape

from .figures import FIGURES
from .result import shown

SHOWN = (
    ("send", 100, "synced", "page-cache", "Produce, one call a message (synced; Kafka: page cache)"),
    ("produce_lists", 100, "synced", "flushed", "Produce, lists (both synced)"),
    ("produce_lists", 100, "written", "page-cache", "Produce, lists (written; Kafka: page cache)"),
    ("consume_messages", 100, "synced", "page-cache", "Consume, one object a message"),
    ("consume_batches", 100, "synced", "page-cache", "Consume, batches (Kafka: its messages)"),
    ("callers_8", 100, "synced", "page-cache", "8 callers, one message a call (synced; Kafka: page cache)"),
    ("callers_64", 100, "synced", "page-cache", "64 callers (synced; Kafka: page cache)"),
    ("round_trip_p50", 100, "synced", "page-cache", "One message, p50 (synced; Kafka: page cache)"),
    ("round_trip_p99", 100, "synced", "page-cache", "One message, p99 (synced; Kafka: page cache)"),
    ("deliver_p99", 100, "synced", "page-cache", "Produce to deliver at 1,000/s, p99"),
)
"""Which rows of a comparison are drawn, and what they are called."""

WIDTH, LEFT, BAR_WIDTH = 760, 20, 470
TOP, PITCH, BAR_HEIGHT = 58, 58, 14
OURS, THEIRS, INK, PALE = "#0b7285", "#adb5bd", "#212529", "#6c757d"


class ComparedRow(TypedDict):
    """What is drawn of a row."""

    figure: str
    size: int
    durability: str
    peer_durability: str
    ours: float
    peer: float
    ratio: float


class Machine(TypedDict):
    """What is said of the machine."""

    processor: str
    cores: int


class Compared(TypedDict):
    """What is read of a comparison's file."""

    date: str
    systems: list[str]
    machine: Machine
    rounds: int
    rows: list[ComparedRow]


@dataclass(frozen=True, slots=True)
class Bar:
    """One figure of the picture."""

    title: str
    unit: str
    ours: float
    peer: float
    ratio: float

    @property
    def shares(self) -> tuple[float, float]:
        """How long our bar and the peer's are, of the longest; a short time makes a long bar."""
        mine, theirs = (self.ours, self.peer) if self.unit.endswith("/s") else (1 / self.ours, 1 / self.peer)
        longest = max(mine, theirs)
        return mine / longest, theirs / longest


def bars_of(comparison: Compared) -> list[Bar]:
    """Pick the rows that are drawn; those that were not measured are left out."""
    found = {(row["figure"], row["size"], row["durability"], row["peer_durability"]): row for row in comparison["rows"]}
    bars: list[Bar] = []
    for figure, size, durability, peer_durability, title in SHOWN:
        row = found.get((figure, size, durability, peer_durability))
        if row is not None:
            bars.append(Bar(title, FIGURES[row["figure"]].unit, row["ours"], row["peer"], row["ratio"]))
    return bars


def picture(comparison: Compared) -> str:
    """Return the SVG of a comparison."""
    bars = bars_of(comparison)
    ours, peer = sorted(comparison["systems"], key=lambda name: not name.startswith("tidelog"))[:2]
    machine = comparison["machine"]
    height = TOP + PITCH * len(bars) + 34
    note = (
        f"Median of {comparison['rounds']} alternating rounds, 100-byte values, Python clients on one machine with"
        f" {machine['cores']} cores ({machine['processor']}); {comparison['date'][:10]}."
    )
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{escape(ours)} beside {escape(peer)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(ours, peer),
    ]
    for place, bar in enumerate(bars):
        lines += _bar(bar, TOP + place * PITCH)
    lines += [_text(LEFT, height - 14, note, PALE, size=11), "</svg>"]
    return "\n".join(lines) + "\n"


def _legend(ours: str, peer: str) -> Iterable[str]:
    yield _box(LEFT, 16, 14, OURS)
    yield _text(LEFT + 22, 28, ours, INK)
    yield _box(LEFT + 150, 16, 14, THEIRS)
    yield _text(LEFT + 172, 28, peer, INK)
    yield _text(WIDTH - LEFT, 28, "longer is better", PALE, anchor="end")


def _bar(bar: Bar, top: int) -> Iterable[str]:
    mine, theirs = bar.shares
    yield _text(LEFT, top + 10, bar.title, INK)
    for share, value, colour, down in ((mine, bar.ours, OURS, 16), (theirs, bar.peer, THEIRS, 16 + BAR_HEIGHT + 1)):
        length = max(round(share * BAR_WIDTH), 2)
        yield _box(LEFT, top + down, length, colour)
        yield _text(LEFT + length + 6, top + down + 11, shown(value, bar.unit), PALE, size=11)
    words = "as many" if bar.unit.endswith("/s") else "as fast"
    yield _text(WIDTH - LEFT, top + 36, f"{bar.ratio:.1f} x {words}", INK, anchor="end", weight="bold")


def _box(left: int, top: int, width: int, colour: str) -> str:
    return f'<rect x="{left}" y="{top}" width="{width}" height="{BAR_HEIGHT}" rx="2" fill="{colour}"/>'


def _text(
    left: int, base: int, text: str, colour: str, *, size: int = 13, anchor: str = "start", weight: str = "normal"
) -> str:
    return (
        f'<text x="{left}" y="{base}" fill="{colour}" font-size="{size}" text-anchor="{anchor}"'
        f' font-weight="{weight}">{escape(text)}</text>'
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Read a comparison and write its picture."""
    parser = argparse.ArgumentParser(prog="python -m bench.chart", description=__doc__)
    parser.add_argument("comparison", type=Path, help="what `python -m bench.compare --json FILE` wrote")
    parser.add_argument("picture", type=Path, help="the SVG to write")
    options = parser.parse_args(arguments)
    comparison: Compared = json.loads(options.comparison.read_text())
    if not bars_of(comparison):
        print(f"expected rows to draw in {options.comparison}, found none of them", file=sys.stderr)
        return 1
    options.picture.write_text(picture(comparison))
    return 0


if __name__ == "__main__":
    sys.exit(main())
