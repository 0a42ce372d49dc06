"""The streaming source as Spark calls it: one reader in one process of the driver, which Spark kills without a word.

Nothing is kept in it that a restart would need: where the stream stands is in Spark's log, where it begins too. See
`stream_offset`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .connection import client_of
from .errors import OptionError
from .offsets import Offsets, split, to_json
from .options import StreamOptions
from .places import Place
from .reading import RangePartition, read_partition
from .source import check_message_schema
from .stream_broker import Lookout
from .stream_limits import Limit, Patience
from .stream_offset import NEW, Json, StreamOffset
from .stream_settle import Seen, Settled, check_losses, ranges_of, settle

log = logging.getLogger("tidelog.spark")

SparkOffset = dict[str, object]
"""Offsets as Spark hands them back."""


class Looks(Protocol):
    """What a reader asks the broker; `Lookout` is one."""

    def look(self, known: Iterable[Place]) -> Seen:
        """Return everything that the stream reads."""
        ...

    def look_at(self, places: Iterable[Place]) -> Seen:
        """Return what there is of topics that have these partitions."""
        ...

    def confirm(self, seen: Seen, known: Iterable[Place]) -> Seen:
        """Return the same, with what became of known topics that are missing."""
        ...

    def find_cuts(self, positions: Mapping[Place, tuple[int, int]]) -> Offsets:
        """Return where logs end that lost what was before an offset since they were in an epoch."""
        ...

    def origins(self, seen: Seen) -> Offsets:
        """Return where a new stream begins."""
        ...

    def wait(self, ends: Mapping[Place, int], seconds: float) -> None:
        """Return when something may be there behind these offsets, or when the time is over."""
        ...


def stream_reader(options: StreamOptions, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a stream. Raises SchemaError."""
    check_message_schema(options.read, schema)
    return TidelogStreamReader(options, schema)


class TidelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Decides what each batch reads, and reads it."""

    def __init__(
        self,
        options: StreamOptions,
        schema: StructType,
        clock: Callable[[], float] = time.monotonic,
        looks: Looks | None = None,
    ) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        self._patience = Patience(clock, options.max_trigger_delay_s)
        self._looks = looks
        self._target: Seen | None = None
        """What there was when a run began that takes what is available now."""
        self._seen: Seen | None = None
        self._warned: set[str] = set()
        self._cut: Offsets = {}
        self._asked: object = None
        """What it was asked for last."""

    def __repr__(self) -> str:
        return f"<TidelogStreamReader {self._options.read.selection}>"

    # -- what Spark asks for -------------------------------------------------------------------------------------

    def initialOffset(self) -> Json:  # noqa: N802
        """Return the offset of a stream that has not begun: the same however often it is asked for. Where it begins
        is in the end of its first batch."""
        return NEW.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of the options. Spark knows no two at once: `latestOffset` adds the other."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take what there is at this moment as all that the run reads."""
        self._target = self._lookout.look(())

    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset | Json:  # noqa: N802
        """Return where the next batch ends: `start` itself if there is nothing for it within `maxWaitMs`.

        Raises OptionError, DataLossError, UnknownTopicError, TimedOutError, and what the client raises.
        """
        before, bounds = StreamOffset.parse(start), self._limit(limit)
        deadline = self._clock() + self._options.max_wait_s
        while True:
            seen = self._look(before)
            settled = self._settle(before, seen)
            reached = self._take(before, settled, seen, bounds)
            if reached is not None:
                return reached.to_json()
            left = deadline - self._clock()
            if self._target is not None or left <= 0:
                return start
            if seen.ends(settled.next) != settled.next:
                time.sleep(min(left, self._patience.left_s))  # there is something, and too little of it
            else:
                self._lookout.wait({place: held.end for place, held in seen.available.items()}, left)

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """Return how far the partitions go, as of the last look: what of it is not read yet is the lag."""
        if self._seen is None:
            return None
        return to_json({place: held.end for place, held in self._seen.available.items()})

    def partitions(self, start: SparkOffset, end: SparkOffset) -> Sequence[InputPartition]:
        """Return one task for each range of a batch; the same ranges for the same offsets, whatever the options say of
        limits and topics now. Raises what `latestOffset` raises."""
        before, after = StreamOffset.parse(start), StreamOffset.parse(end)
        if before == after:
            return []
        read = self._options.read
        places = [place for place, last in after.next.items() if after.start_of(place, before) < last]
        seen = self._with_cuts(self._lookout.look_at(places), after)
        ranges, losses = ranges_of(before, after, seen)
        self._tell(losses)
        pieces = split(
            ranges,
            {place: held.record_bytes for place, held in seen.available.items()},
            min_partitions=read.min_partitions,
            max_records=read.max_records_per_partition,
            max_bytes=read.max_bytes_per_partition,
        )
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one task."""
        return read_partition(partition, self._options.read, self._schema)

    def commit(self, end: SparkOffset) -> None:
        """Do nothing: Spark's checkpoint is where the stream stands."""

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def _lookout(self) -> Looks:
        if self._looks is None:  # not when the reader is made, which each task does too
            self._looks = Lookout(client_of(self._options.read.url), self._options.read)
        return self._looks

    def _look(self, before: StreamOffset) -> Seen:
        if self._target is None:
            self._seen = self._lookout.look(before.next)
        else:
            self._seen = self._target = self._lookout.confirm(self._target, before.next)
        return self._with_cuts(self._seen, before)

    def _with_cuts(self, seen: Seen, before: StreamOffset) -> Seen:
        """Return the same, with where logs lost what was read of them: asked for once whenever a log's epoch rises."""
        positions = {
            place: (epoch, before.next[place])
            for place, epoch in before.epochs.items()
            if place in seen.available
            and place in before.next
            and before.made.get(place.topic) == seen.made[place.topic]
            and epoch != seen.epochs.get(place)
        }
        asked = (positions, {place: seen.epochs.get(place) for place in positions})
        if asked != self._asked:
            self._cut, self._asked = self._lookout.find_cuts(positions) if positions else {}, asked
        return replace(seen, cut=self._cut)

    def _settle(self, before: StreamOffset, seen: Seen) -> Settled:
        origins = self._lookout.origins(seen) if before.is_new and not seen.gone else {}
        settled = settle(before, seen, origins, fails=self._options.read.fails_on_data_loss)
        self._tell(settled.losses)
        for place in settled.held:
            self._warn_once(f"{place}: the broker has no answer for it; it stays at offset {settled.next[place]}")
        for topic in settled.dropped:
            self._warn_once(f"{topic}: the stream has read it, and its options do not name it any more")
        return settled

    def _take(self, before: StreamOffset, settled: Settled, seen: Seen, limit: Limit) -> StreamOffset | None:
        """Return the end of the next batch, None if there is nothing to do."""
        ends = seen.ends(settled.next)
        rows = sum(ends.values()) - sum(settled.next.values())
        min_rows = None if self._target is not None else limit.min_rows
        if self._patience.is_over(rows, min_rows):
            sizes = {place: held.record_bytes for place, held in seen.available.items()}
            return settled.to(limit.take(settled.next, ends, sizes))
        # Where a partition begins, and what is read no more, is logged at once, with or without records.
        return settled.to(settled.next) if settled.changes(before) else None

    def _limit(self, limit: ReadLimit) -> Limit:
        """Return what a trigger takes: the options' own limits, unless Spark asks for everything in spite of them."""
        options = self._options
        if isinstance(limit, ReadAllAvailable):
            return Limit()
        least = options.min_offsets_per_trigger
        if isinstance(limit, ReadMaxRows):
            return Limit(max_rows=limit.max_rows, min_rows=least)
        if isinstance(limit, ReadMaxBytes):
            return Limit(max_bytes=limit.max_bytes, min_rows=least)
        if isinstance(limit, ReadMinRows):
            return Limit(min_rows=limit.min_rows)
        raise OptionError(f"expected a limit of rows or bytes, found {limit!r}")

    def _tell(self, losses: list[str]) -> None:
        if self._options.read.fails_on_data_loss:
            check_losses(losses)
        for loss in losses:
            log.warning("%s; going on with what is there", loss)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            log.warning("%s", text)
