"""Several ways to do the same, timed alternately; their figures and ratios as lines of JSON."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..command import EXIT_NO_FIGURE
from ..errors import VerificationError

Line = dict[str, object]

Way = Callable[[], float]
"""Does one pass and returns how many seconds it took."""

UNIT = "M rows/s"


def speeds(ways: Mapping[str, Way], rows: int, rounds: int) -> dict[str, list[float]]:
    """Return the million rows a second of each way in each round; every other round begins at the other end.

    One pass of each before, which is not timed: it loads and compiles everything, and files are in the page cache.
    """
    for way in ways.values():
        way()
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name in [*ways] if number % 2 == 0 else reversed([*ways]):
            samples[name].append(rows / ways[name]() / 1e6)
    return samples


def line(name: str, samples: Sequence[float], unit: str = UNIT) -> Line:
    """Return one figure: the median, the extremes and each round."""
    return {
        "figure": name,
        "value": round(statistics.median(samples), 3),
        "low": round(min(samples), 3),
        "high": round(max(samples), 3),
        "unit": unit,
        "samples": [round(each, 3) for each in samples],
    }


def ratios(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """Return how many times the other each round was."""
    return [first / second for first, second in zip(one, other, strict=True)]


def against(least: float, samples: Sequence[float]) -> Line:
    """Return what a line of ratios says of its target."""
    return {"target": least, "met": statistics.median(samples) >= least}


def tell(lines: Iterable[Line]) -> int:
    """Print lines as they come and return the exit code: another than 0 when something is not as it was sent."""
    try:
        for each in lines:
            print(json.dumps(each), flush=True)
    except VerificationError as error:
        print(f"no figure: {error}", file=sys.stderr)
        return EXIT_NO_FIGURE
    return 0
