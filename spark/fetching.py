"""The records of a range from the broker, over a connection that the task opens and closes.

What may pass is waited out: a broker that restarts, a connection that is lost. `timeout_s` counts from the last record
that came. What is gone is told apart from what is late, and named.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

from ..client.arrow import Part
from ..client.blocking.client import Client
from ..client.errors import (
    CorruptError,
    OffsetOutOfRangeError,
    RangeNotAvailableError,
    TidelogError,
    TimedOutError,
    TruncatedError,
    UnknownPartitionError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from .errors import DataLossError
from .places import Range
from .rows import offsets_of

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
"""Between attempts to reach a broker."""

_LOSSES = (
    CorruptError,
    OffsetOutOfRangeError,
    RangeNotAvailableError,
    TruncatedError,
    UnknownPartitionError,
    UnknownTopicError,
    UnknownTopicIdError,
)

log = logging.getLogger("tidelog.spark")


class Fetching:
    """One pass over a range. `position` is the next offset; it never goes back."""

    def __init__(
        self,
        client: Client,
        wanted: Range,
        *,
        fails_on_data_loss: bool,
        timeout_s: float,
        includes_archived: bool = False,
    ) -> None:
        self.position = wanted.start
        self.lost = 0
        """Records that were passed over, where that is allowed."""
        self._client = client
        self._wanted = wanted
        self._fails = fails_on_data_loss
        self._timeout_s = timeout_s
        self._includes_archived = includes_archived
        self._heard_at = 0.0

    def parts(self) -> Iterator[Part]:
        """Yield what there is from `position` to the end. Raises DataLossError, and TimedOutError that names the
        partition, the offset and the broker."""
        self._heard_at = time.monotonic()
        pause = FIRST_PAUSE_S
        while self.position < self._wanted.end:
            before = self.position
            try:
                yield from self._pass()
                return
            except DataLossError:
                raise
            except _LOSSES as error:
                self._lose(str(error), error)
                return
            except TidelogError as error:
                pause = FIRST_PAUSE_S if self.position > before else min(2 * pause, LONGEST_PAUSE_S)
                if not error.retriable or time.monotonic() + pause > self._heard_at + self._timeout_s:
                    raise self._gave_up(error) from error
            time.sleep(pause)

    def _pass(self) -> Iterator[Part]:
        """Read over one consumer, which finds its broker again by itself."""
        wanted, hole = self._wanted, "raise" if self._fails else "skip"
        with self._client.consumer(
            wanted.place.topic,
            start=self.position,
            end=wanted.end,
            partition=wanted.place.partition,
            on_corrupt=hole,
            on_gap=hole,
            include_archived=self._includes_archived,
            codec=None,
            timeout=self._timeout_s,
        ) as consumer:
            for batch in consumer.batches(idle_timeout=self._timeout_s):
                if wanted.count and batch.topic_count != wanted.count:
                    self._lose(f"the topic was made again (for the {batch.topic_count}th time)", None)
                    return
                part = batch.part()
                if not self._follows(part):
                    return
                yield part
                self._heard_at = time.monotonic()
            if consumer.is_finished:
                self._skip_to(wanted.end)
                return
        self._missing()

    def _follows(self, part: Part) -> bool:
        """Move behind a part. Whatever lies before it in the range is lost; a part that lies before what was read is
        of a log that has lost its end."""
        first, end = offsets_of(part)
        if first < self.position:
            self._lose(f"the log goes on at offset {first} and has lost what was behind it", None)
            return False
        self._skip_to(first)
        if is_younger(part, self._wanted):
            self._lose("the log lost its end and has grown again with other records", None)
            return False
        self.position = end
        return True

    def _skip_to(self, offset: int) -> None:
        if offset > self.position:
            lost = offset - self.position
            self._lose(f"offsets {self.position} to {offset} are not there", None, lost)
            self.position = offset

    def _missing(self) -> None:
        """Nothing came for long: the end of the range was lost, or the broker is away."""
        wanted = self._wanted
        topic = self._client.topics.list([wanted.place.topic])[0]
        end = topic.partitions[wanted.place.partition].end_offset
        if topic.count == (wanted.count or topic.count) and end >= wanted.end:
            raise TimedOutError(f"no record came for {self._timeout_s:g} s")
        self._lose(f"the partition ends at offset {end}", None)

    def _lose(self, why: str, cause: TidelogError | None, lost: int | None = None) -> None:
        """Raise DataLossError, or log what is passed over: all that is left, unless `lost` says how many."""
        count = self._wanted.end - self.position if lost is None else lost
        found = f"expected {self._wanted}, found at offset {self.position}: {why}"
        if self._fails:
            raise DataLossError(
                f"{found}; failOnDataLoss=false reads what is there",
                **(cause.details if cause is not None else {}),
            ) from cause
        self.lost += count
        log.warning("%s; passed over up to %s records", found, f"{count:,}")

    def _gave_up(self, error: TidelogError) -> TidelogError:
        """Return the error of a task that cannot go on, of the same kind where it waited in vain."""
        text = (
            f"{self._wanted.place}: expected offset {self.position} (of {self._wanted.start} to {self._wanted.end})"
            f" from {self._client.address} within fetchTimeoutMs={self._timeout_s * 1000:.0f}, found: {error}"
        )
        kind = TimedOutError if error.retriable else type(error)
        return kind(text, **error.details)


def is_younger(part: Part, wanted: Range) -> bool:
    """Whether records were appended after the range was planned: after a power loss others may have their offsets."""
    return bool(wanted.epoch) and part.records.header.leader_epoch > wanted.epoch
