"""Copies a range of a topic into another topic: in order within each partition, at a rate, and resumably.

The range is resolved to offsets once. It is written in steps, each one job of Spark with one task for each partition
and no shuffle, so that the order of a partition is the source's. Progress is kept in a file around each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from ..bounds import Moment
from ..connection import client_of
from ..narrowing import Narrowing
from ..offsets import Offsets, advance
from ..options import ReadOptions
from ..places import Place, Range
from ..planning import plan
from .errors import JobFailedError, JobStateError
from .folder import exclusive, folder_of, made
from .lineage import find_cuts
from .own_options import SPLITTING, check_given
from .pacing import Clock, Pace
from .progress import Copied, Progress, Step, check_same, load, save
from .range_bounds import Bound, bounds_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ...client.blocking.client import Client
    from ...client.topic import Topic

OWN = (*SPLITTING, "columns", "includeHeaders")
"""Options of a read that a replay sets by itself; what splits partitions would lose their order."""

Times = tuple[int, int] | None
Writing = Callable[[Progress, Offsets, Offsets, Times], None]
"""Copies what lies between offsets, of it only records with a producer's time in [from, to) where that is given."""

Telling = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has done, over all its runs."""

    records: int
    steps: int
    """Of this run."""
    repeated: int
    """Records that are in the target twice because runs were killed, at most: other producers' count too."""
    foreign: int
    """By how many records the target grew in this run beyond what the steps wrote: other producers, or tasks that
    Spark ran again."""


def replay_topic(
    spark: SparkSession,
    source: str,
    target: str,
    *,
    url: str,
    progress: str | PathLike[str],
    to_url: str | None = None,
    start: Bound = "earliest",
    end: Bound = "latest",
    by: str = "append_time",
    rate: float | None = None,
    step_records: int | None = None,
    keeps_partitions: bool = True,
    once: bool = False,
    options: Mapping[str, str] | None = None,
    sink_options: Mapping[str, str] | None = None,
    tell: Telling | None = None,
) -> Replayed:
    """Copy keys, values, headers, priorities and producers' times of a range into another topic, which exists.

    `progress` is a file of this replay's own: a run after a crash goes on there, and one after the end does nothing.
    With `once` each message has a dedup id, so that what is written again is left out within the target's
    `dedup_window`; the broker remembers up to `dedup_max_ids` of them.
    `tell` is called after each step. Raises JobBusyError, JobStateError, JobFailedError, DataLossError,
    OptionError, and what the client raises.
    """
    from .replay_step import copying

    job = ReplayRun(
        client_of(url), client_of(to_url or url), source, target, start, end, by, keeps_partitions, once, options
    )
    copy = copying(spark, job, url, to_url or url, dict(sink_options or {}))
    return job.run(folder_of(progress), copy, Pace(rate, step_records, Clock()), tell)


class ReplayRun:
    """One run of a replay."""

    def __init__(
        self,
        client: Client,
        to_client: Client,
        source: str,
        target: str,
        start: Bound = "earliest",
        end: Bound = "latest",
        by: str = "append_time",
        keeps_partitions: bool = True,
        once: bool = False,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self.source = source
        self.target = target
        self.keeps_partitions = keeps_partitions
        self.once = once
        self.options = dict(options or {})
        check_given(self.options, "replay", OWN)
        self._client = client
        self._to_client = to_client
        self._bounds = bounds_of(source, start, end, by)
        self._read = ReadOptions.parse(
            {"url": str(client.address), "subscribe": source, **self.options, **self._bounds}
        )

    def run(self, path: Path, copy: Writing, pace: Pace, tell: Telling | None = None) -> Replayed:
        """Go on where the file says, to the end."""
        with exclusive(made(path.parent) / f"{path.name}.lock"):
            progress, repeats = self._begin(path)
            steps = foreign = 0
            while not progress.is_done:
                until = self._ahead(progress, pace.step_records)
                size = sum(until[place] - offset for place, offset in progress.done.items())
                pace.wait(size)
                self._check_same(progress, until)
                step, progress = self._next(path, progress, until)
                before = self._end_of_target() - step.target_end
                copy(progress, progress.offsets(progress.done), progress.offsets(step.until), self._times())
                grown = self._end_of_target() - step.target_end
                self._check_same(progress, until)  # again: what the step has read may be younger
                if self._is_exact and grown < size:
                    raise JobFailedError(f"expected {self.target} to grow by {size} records, found {grown}")
                written = size if self._is_exact else min(size, grown)
                extra = grown - size if self._is_exact else before
                progress = self._done(path, progress, step, written, extra if repeats else 0)
                foreign += 0 if repeats else extra
                repeats, steps = False, steps + 1
                if tell is not None:
                    tell(progress)
        return Replayed(progress.written, steps, progress.repeated, foreign)

    @property
    def _filters(self) -> bool:
        return self._bounds["by"] == "timestamp"

    @property
    def _is_exact(self) -> bool:
        """Whether every offset of the range is a record to copy."""
        return self._read.fails_on_data_loss and not self._filters

    def _begin(self, path: Path) -> tuple[Progress, bool]:
        """Return where to go on, and whether the next step may have been written in part."""
        source, target = self._topics()
        copied = Copied(
            self.source,
            source.id,
            self.target,
            target.id,
            self._shown("starting"),
            self._shown("ending"),
            self._bounds["by"],
            self.keeps_partitions,
            self.once,
        )
        found = load(path)
        if found is None:
            ranges = self._plan()
            starts = {each.place.partition: each.start for each in ranges}
            ends = {each.place.partition: each.end for each in ranges}
            epochs = {each.place.partition: each.epoch for each in ranges}
            found = Progress(copied, uuid4().hex, starts, ends, dict(starts), epochs=epochs)
            save(path, found)
        check_same(found, copied, path)
        return found, found.step is not None

    @staticmethod
    def _ahead(progress: Progress, most: int) -> dict[int, int]:
        """Return where the next step ends; one that was begun already is written again as it was."""
        if progress.step is not None:
            return progress.step.until
        reached = advance(progress.offsets(progress.done), progress.offsets(progress.ends), most)
        return {place.partition: offset for place, offset in reached.items()}

    def _check_same(self, progress: Progress, until: Mapping[int, int]) -> None:
        """Raise JobStateError where a step would copy, or has copied, other records than those that were planned."""
        source, target = self._topics()
        if (source.id, target.id) != (progress.copied.source_id, progress.copied.target_id):
            raise JobStateError(f"{self.source} or {self.target} was deleted and made again while it was replayed")
        positions = {
            Place(source.name, partition): (progress.epochs.get(partition, 0), offset)
            for partition, offset in until.items()
            if offset > progress.done[partition]
        }
        for place, survived in find_cuts(self._client, self._read, [source], positions).items():
            raise JobStateError(
                f"expected {place} as it was when the replay was planned, up to offset {positions[place][1]}, found a"
                f" log that has lost what was behind {survived} since: plan another replay, with a progress file of"
                " its own"
            )

    def _next(self, path: Path, progress: Progress, until: dict[int, int]) -> tuple[Step, Progress]:
        """Return the step to write, which is in the file by then."""
        if progress.step is not None:
            return progress.step, progress
        step = Step(until, self._end_of_target())
        progress = msgspec.structs.replace(progress, step=step)
        save(path, progress)
        return step, progress

    @staticmethod
    def _done(path: Path, progress: Progress, step: Step, written: int, repeated: int) -> Progress:
        progress = msgspec.structs.replace(
            progress,
            done=step.until,
            step=None,
            written=progress.written + written,
            repeated=progress.repeated + repeated,
        )
        save(path, progress)
        return progress

    def _topics(self) -> tuple[Topic, Topic]:
        """Return both topics. Raises JobStateError for a target that cannot take the source's partitions."""
        (source,) = self._client.topics.list([self.source])
        (target,) = self._to_client.topics.list([self.target])
        if source.id == target.id and source.name == target.name and self._same_broker:
            raise JobStateError(f"expected another topic to replay {self.source} into, found itself")
        if self.keeps_partitions and len(target.partitions) < len(source.partitions):
            raise JobStateError(
                f"{self.target}: expected {len(source.partitions)} partitions or more, as {self.source} has, found"
                f" {len(target.partitions)}; without keeping partitions keys choose them"
            )
        return source, target

    @property
    def _same_broker(self) -> bool:
        return str(self._client.address) == str(self._to_client.address)

    def _plan(self) -> list[Range]:
        return plan(self._client, self._read, Narrowing())

    def _times(self) -> Times:
        """Return which producers' times are copied, where bounds are of those."""
        if not self._filters:
            return None
        start, end = self._read.starting.point, self._read.ending.point
        low = start.time_us if isinstance(start, Moment) else -(1 << 62)
        high = end.time_us if isinstance(end, Moment) else (1 << 62) - 1
        return low, high

    def _end_of_target(self) -> int:
        """Return how many records the target has ever had."""
        (target,) = self._to_client.topics.list([self.target])
        return sum(each.end_offset for each in target.partitions)

    def _shown(self, side: str) -> str:
        return next((text for name, text in self._bounds.items() if name.startswith(side)), "")
