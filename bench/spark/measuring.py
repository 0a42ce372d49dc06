"""Passes over cases: verified before and after, timed alternately in between."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog import Client

from ..errors import VerificationError
from .cases import SELECTIONS, TARGETS, Case
from .memory import PeakMemory
from .rows import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Line = dict[str, object]
Seconds = Callable[[], float]
"""Does one pass and says how long it took."""

PLAIN_CLIENT = "client_batches"


def measure(cases: Sequence[Case], sums: Mapping[str, int], url: str, rounds: int) -> Iterator[Line]:
    """Yield a line for each case, then one for each ratio. Raises VerificationError before any figure is told."""
    memory: dict[str, PeakMemory] = {}
    for case in cases:  # which loads and compiles everything as well
        with PeakMemory() as memory[case.name]:
            _verify(case, sums)
    passes: dict[str, Seconds] = {case.name: _timed(case) for case in cases}
    passes[PLAIN_CLIENT] = lambda: _drain(url, sums)
    for warm_up in passes.values():  # the sink's own code is compiled too, and files are in the page cache
        warm_up()
    samples: dict[str, list[float]] = {name: [] for name in passes}
    for number in range(rounds):
        for name in [*passes] if number % 2 == 0 else reversed([*passes]):
            samples[name].append(sums["rows"] / passes[name]() / 1e6)
    for case in cases:
        _verify(case, sums)
    for name, speeds in samples.items():
        yield _line(name, speeds, memory.get(name))
    yield from _ratios(samples)


def _verify(case: Case, sums: Mapping[str, int]) -> None:
    """Compare rows and the sums of the columns that are read. Raises VerificationError."""
    columns = SELECTIONS[case.selection]
    forms = {"rows": "count(*)", "offset": "sum(offset)"}
    forms |= {name: f"sum(crc32({name}))" for name in ("key", "value") if name in columns}
    frame: DataFrame = case.load().selectExpr(*forms.values())
    found = dict(zip(forms, frame.collect()[0], strict=True))
    expected = {name: sums[name] for name in forms}
    if found != expected:
        raise VerificationError(f"{case.name}: expected {expected}, found {found}")


def _timed(case: Case) -> Seconds:
    def read() -> float:
        began = time.perf_counter()
        case.load().write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    return read


def _drain(url: str, sums: Mapping[str, int]) -> float:
    """Read the topic by the plain client in batches. Raises VerificationError."""
    rows, offsets = 0, 0
    with Client(url) as client:
        began = time.perf_counter()
        for batch in client.replay(TOPIC):
            rows += len(batch)
            offsets += int(batch.offsets.sum())
        elapsed = time.perf_counter() - began
    if (rows, offsets) != (sums["rows"], sums["offset"]):
        raise VerificationError(f"expected {sums['rows']} rows by the client, found {rows}")
    return elapsed


def _line(name: str, speeds: Sequence[float], memory: PeakMemory | None) -> Line:
    line: Line = {
        "figure": f"spark_read_{name}" if memory else name,
        "value": round(statistics.median(speeds), 3),
        "low": round(min(speeds), 3),
        "high": round(max(speeds), 3),
        "unit": "M rows/s",
        "samples": [round(each, 3) for each in speeds],
    }
    if memory is not None:
        line |= {"peak_jvm_mb": round(memory.jvm_mb), "peak_python_mb": round(memory.python_mb)}
    return line


def _ratios(samples: Mapping[str, Sequence[float]]) -> Iterator[Line]:
    for target in TARGETS:
        if {target.case, *target.to} <= samples.keys():
            others = [min(speeds) for speeds in zip(*(samples[name] for name in target.to), strict=True)]
            ratios = [one / other for one, other in zip(samples[target.case], others, strict=True)]
            value = statistics.median(ratios)
            yield {
                "figure": f"{target.case} / {' or '.join(target.to)}",
                "value": round(value, 3),
                "low": round(min(ratios), 3),
                "high": round(max(ratios), 3),
                "unit": "ratio",
                "target": target.least,
                "met": value >= target.least,
            }
