"""Now, on both clocks that delivery needs."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """`wall_us` is what is recorded, `monotonic_us` what deadlines of this run are measured by."""

    wall_us: int
    monotonic_us: int
