"""Passes over cases: verified before and after, timed alternately in between."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from tidelog import Client

from ..errors import VerificationError
from .alternating import Line, Way, against, line, ratios, speeds
from .cases import SELECTIONS, TARGETS, Case
from .memory import PeakMemory
from .rows import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PLAIN_CLIENT = "client_batches"


def measure(cases: Sequence[Case], sums: Mapping[str, int], url: str, rounds: int) -> Iterator[Line]:
    """Yield a line for each case, then one for each ratio. Raises VerificationError before any figure is told."""
    memory: dict[str, PeakMemory] = {}
    for case in cases:  # which loads and compiles everything as well
        with PeakMemory() as memory[case.name]:
            _verify(case, sums)
    passes: dict[str, Way] = {case.name: _timed(case) for case in cases}
    passes[PLAIN_CLIENT] = lambda: _drain(url, sums)
    samples = speeds(passes, sums["rows"], rounds)
    for case in cases:
        _verify(case, sums)
    for name, found in samples.items():
        yield _line(name, found, memory.get(name))
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


def _timed(case: Case) -> Way:
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


def _line(name: str, samples: Sequence[float], memory: PeakMemory | None) -> Line:
    if memory is None:
        return line(name, samples)
    peaks: Line = {"peak_jvm_mb": round(memory.jvm_mb), "peak_python_mb": round(memory.python_mb)}
    return line(f"spark_read_{name}", samples) | peaks


def _ratios(samples: Mapping[str, Sequence[float]]) -> Iterator[Line]:
    for target in TARGETS:
        if {target.case, *target.to} <= samples.keys():
            others = [min(each) for each in zip(*(samples[name] for name in target.to), strict=True)]
            times = ratios(samples[target.case], others)
            yield line(f"{target.case} / {' or '.join(target.to)}", times, "ratio") | against(target.least, times)
