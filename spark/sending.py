"""The producer of this process: one for each broker and way to write, which tasks of the same worker use in turn.

Batches are on their way while the next rows are made; what is not answered is bounded by the producer's buffer, and
then the task waits. The broker stores each batch once, however often it is sent over a broken connection.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Literal, cast

from ..client.delivery import DeliveryReport
from ..client.errors import CannotConnectError, ConnectionLostError, TidelogError, TimedOutError
from .connection import client_of
from .errors import RowError
from .options import WriteOptions
from .sink_rows import Rows, priority_runs
from .sink_schema import PRIORITY
from .sink_tally import Tally

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0
"""Between attempts to reach a broker that is not there; the client's own pauses are about as long."""

PING_S = 5.0

_NO_ROW = "no row"

_sendings: dict[tuple[int, WriteOptions], Sending] = {}
"""By process: what came by a fork is its parent's."""


class Sending:
    """A producer, and what it has stored of the task that uses it."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._client = client_of(options.url)
        self._producer = self._client.producer(
            compression=cast('Literal["zstd"] | None', options.compression),
            durability=cast('Literal["received", "written", "synced"] | None', options.durability),
            max_block=options.delivery_timeout_s,
            delivery_timeout=options.delivery_timeout_s,
            on_delivery=self._delivered,
        )
        self.tally = Tally()
        self._last_priority: int | str | None = _NO_ROW

    def begin(self) -> None:
        """Begin a task: wait until the broker answers. Raises CannotConnectError and the like once `deliveryTimeoutMs`
        are over."""
        self.tally = Tally()
        self._last_priority = _NO_ROW
        until = time.monotonic() + self._options.delivery_timeout_s
        pause = FIRST_PAUSE_S
        while True:
            try:
                self._client.ping(timeout=min(PING_S, max(until - time.monotonic(), pause)))
                return
            except (CannotConnectError, ConnectionLostError, TimedOutError) as error:
                if time.monotonic() + pause >= until:
                    within = f"no broker within {self._options.delivery_timeout_s:g} s"
                    raise type(error)(f"{within}: {error.message}", **{**error.details, "stored": False}) from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_S)

    def send(self, rows: Rows, task: int) -> None:
        """Send rows to their topic, once there is room. Raises RowError, and what the broker refuses a batch for."""
        given = {_ARGUMENTS[name]: column for name, column in rows.columns.items()}
        try:
            self._producer.send_many(rows.topic, **given)
        except (TypeError, ValueError, TidelogError) as error:
            place = rows.place(error)
            if place is None:
                raise
            raise RowError(f"row {place} of task {task}, topic {rows.topic!r}: {error}") from None
        self.tally.payload_bytes += rows.payload_bytes
        if self.tally.error is not None:
            self.finish()

    def send_in_order(self, rows: Rows, task: int) -> None:
        """Send rows so that they are stored in their order, whatever their priorities: one priority after the other."""
        for run in priority_runs(rows):
            priority = None if PRIORITY not in run.columns else run.columns[PRIORITY][0].as_py()
            if self._last_priority not in (_NO_ROW, priority):
                self.finish()
            self._last_priority = priority
            self.send(run, task)

    def finish(self) -> None:
        """Return once everything is stored. Raises DeliveryError for what is not."""
        self._producer.flush()

    def discard(self) -> None:
        """Leave it to nobody: what is not answered is given up, though some of it may be stored."""
        _sendings.pop((os.getpid(), self._options), None)
        with suppress(TidelogError):
            self._producer.close(timeout=0)

    def _delivered(self, report: DeliveryReport) -> None:
        self.tally.delivered(report)


_ARGUMENTS = {
    "value": "values",
    "key": "keys",
    "headers": "headers",
    "priority": "priority",
    "partition": "partition",
    "timestamp": "timestamps",
    "dedup_id": "dedup_ids",
}
"""What each column is called by a producer."""


def sending_of(options: WriteOptions) -> Sending:
    """Return what sends with these options in this process."""
    where = (os.getpid(), options)
    found = _sendings.get(where)
    if found is None:
        found = _sendings[where] = Sending(options)
    return found
