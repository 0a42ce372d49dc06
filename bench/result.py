"""A measured figure as a JSON line, and many of them as a table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .figures import FIGURES


@dataclass(frozen=True, slots=True)
class Result:
    """The rounds of one figure under one set of conditions."""

    system: str
    figure: str
    size: int
    durability: str
    samples: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median of the rounds."""
        return statistics.median(self.samples)

    def line(self) -> str:
        """Return it as one JSON line."""
        figure = FIGURES[self.figure]
        return json.dumps(
            {
                "system": self.system,
                "figure": self.figure,
                "value": round(self.value, figure.digits),
                "low": round(min(self.samples), figure.digits),
                "high": round(max(self.samples), figure.digits),
                "unit": figure.unit,
                "size": self.size,
                "durability": self.durability,
                "rounds": len(self.samples),
                "samples": [round(each, 3) for each in self.samples],
            }
        )

    @classmethod
    def of_line(cls, line: str) -> Result:
        """Read what `line` returned."""
        found = json.loads(line)
        samples = tuple(float(each) for each in found["samples"])
        return cls(found["system"], found["figure"], found["size"], found["durability"], samples)


def shown(value: float, unit: str) -> str:
    """Return a value as people read it: three digits that count, and its unit."""
    if unit == "msg/s":
        for size, letter in ((1e6, "M"), (1e3, "k")):
            if value >= size:
                digits = max(0, 2 - len(str(int(value / size))) + 1)
                return f"{value / size:.{digits}f} {letter}/s"
        return f"{value:.0f} /s"
    return f"{value:,.2f} {unit}" if value < 10 else f"{value:,.0f} {unit}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def results_table(results: Iterable[Result]) -> str:
    """Return results as a Markdown table."""
    rows: list[list[str]] = []
    for each in results:
        unit = FIGURES[each.figure].unit
        spread = f"{shown(min(each.samples), unit)} - {shown(max(each.samples), unit)}"
        rows.append([each.figure, f"{each.size} B", each.durability, shown(each.value, unit), spread])
    return table(["figure", "size", "durability", "median", "low - high"], rows)
