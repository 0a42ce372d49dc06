"""Say in the broker's log that the disk is full: producers wait and try again, so nobody else may say it."""

from __future__ import annotations

from ..protocol.errors import DiskFullError
from .clock import BrokerTime
from .report import Report

INTERVAL_US = 10_000_000
"""A refused producer comes back many times a second."""


class DiskFullNotice:
    """One line for all partitions in so long, with how many requests were refused since the one before."""

    def __init__(self, time: BrokerTime, report: Report) -> None:
        self._time = time
        self._report = report
        self._next_us: int | None = None
        self._refused = 0

    def __repr__(self) -> str:
        return f"<DiskFullNotice {self._refused} refused since the last>"

    def note(self, partition: str, error: DiskFullError) -> None:
        """Take in that an append was refused."""
        self._refused += 1
        now_us = self._time.monotonic_us()
        if self._next_us is not None and now_us < self._next_us:
            return
        self._next_us = now_us + INTERVAL_US
        self._report("disk full", partition=partition, refused=self._refused, why=error.message)
        self._refused = 0
