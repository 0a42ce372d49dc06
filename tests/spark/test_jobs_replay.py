"""The replay job without a JVM: steps, pace, and what runs that died in each of their steps leave and repeat."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tidelog import Client, UnknownTopicError
from tidelog.spark.errors import OptionError
from tidelog.spark.jobs.errors import JobBusyError, JobFailedError, JobStateError
from tidelog.spark.jobs.folder import exclusive
from tidelog.spark.jobs.pacing import Clock, Pace
from tidelog.spark.jobs.progress import Progress
from tidelog.spark.jobs.replay import Replayed, ReplayRun, Times
from tidelog.spark.offsets import Offsets

pytestmark = pytest.mark.process


class Died(Exception):
    """The run ends here."""


class Copier:
    """Copies as a step of Spark would; ends the run before, in the middle of, or after some step."""

    def __init__(self, client: Client, target: str, *, dies_in: int = -1, after: int | None = None) -> None:
        self.steps: list[tuple[dict[int, int], dict[int, int]]] = []
        self._client = client
        self._target = target
        self._dies_in = dies_in
        self._after = after

    def __call__(self, progress: Progress, start: Offsets, end: Offsets, times: Times) -> None:
        self.steps.append(({p.partition: at for p, at in start.items()}, {p.partition: at for p, at in end.items()}))
        left = self._after if len(self.steps) - 1 == self._dies_in else None
        for place, first in start.items():
            if end[place] > first:
                with self._client.consumer(
                    place.topic, partition=place.partition, start=first, end=end[place]
                ) as consumer:
                    rows = [*consumer]
                kept = [row for row in rows if times is None or times[0] <= row.timestamp_us < times[1]]
                kept = kept if left is None else kept[:left]
                ids = [f"{progress.id}/{row.partition}/{row.offset}" for row in kept] if progress.copied.once else None
                if kept:
                    self._client.produce_many(
                        self._target, [row.value for row in kept], partition=place.partition, dedup_ids=ids
                    )
        if len(self.steps) - 1 == self._dies_in:
            raise Died


def run(client: Client, path: Path, source: str, target: str, copy: Callable[..., None], **options: Any) -> Replayed:
    """Run the job in steps of 100 records."""
    return ReplayRun(client, client, source, target, **options).run(path, copy, Pace(None, 100, Clock()))


def make(client: Client, name: str, *counts: int) -> tuple[str, str]:
    """Make a source with so many numbered records in its partitions, and a target."""
    for topic in (name, f"{name}-copy"):
        client.topics.create(topic, partitions=len(counts))
    for partition, count in enumerate(counts):
        if count:
            client.produce_many(name, [b"%d" % at for at in range(count)], partition=partition)
    return name, f"{name}-copy"


def stored(client: Client, topic: str, partition: int) -> list[int]:
    """The numbers in a partition, in order."""
    with client.consumer(topic, partition=partition, end="latest") as consumer:
        return [int(message.value or b"-1") for message in consumer]


def test_steps_in_proportion_and_in_order(client: Client, tmp_path: Path) -> None:
    """Each step takes of each partition what it has; what comes after the first run began is not copied; a second run
    with the same file does nothing."""
    source, target = make(client, "replay-steps", 150, 50, 0)
    copy = Copier(client, target)
    path = tmp_path / "progress.json"

    def also(progress: Progress, start: Offsets, end: Offsets, times: Times) -> None:
        copy(progress, start, end, times)
        client.produce(source, b"later", partition=2)

    assert run(client, path, source, target, also) == Replayed(records=200, steps=2, repeated=0, foreign=0)
    assert copy.steps == [({0: 0, 1: 0}, {0: 75, 1: 25}), ({0: 75, 1: 25}, {0: 150, 1: 50})]
    assert [stored(client, target, at) for at in range(3)] == [[*range(150)], [*range(50)], []]
    assert run(client, path, source, target, copy) == Replayed(records=200, steps=0, repeated=0, foreign=0)
    assert json.loads(path.read_text())["written"] == 200


@pytest.mark.parametrize("after", [0, 30, None])
@pytest.mark.parametrize("once", [False, True])
def test_a_run_that_died_in_a_step_repeats_that_step_alone(
    once: bool, after: int | None, client: Client, tmp_path: Path
) -> None:
    """The next run writes the step again and goes on; how many are there twice is told exactly where nobody else
    writes, and is none with dedup ids. No record is missing."""
    source, target = make(client, f"replay-died-{once}-{after}".lower(), 250)
    path = tmp_path / "progress.json"
    with pytest.raises(Died):
        run(client, path, source, target, Copier(client, target, dies_in=1, after=after), once=once)
    again = Copier(client, target)
    twice = 0 if once else 100 if after is None else after
    assert run(client, path, source, target, again, once=once) == Replayed(250, 2, twice, 0)
    assert again.steps == [({0: 100}, {0: 200}), ({0: 200}, {0: 250})]
    assert sorted(stored(client, target, 0)) == sorted([*range(250), *range(100, 100 + twice)])


def test_bounds_by_offset_and_by_time(client: Client, tmp_path: Path) -> None:
    """A range of offsets of some partitions; producers' times pick single records."""
    source, target = make(client, "replay-bounds", 100)
    offsets = {"start": {0: 20}, "end": {0: 30}}
    assert run(client, tmp_path / "offsets", source, target, Copier(client, target), **offsets).records == 10
    assert stored(client, target, 0) == [*range(20, 30)]
    for hour in (3, 1, 2, 4):
        client.produce(source, b"%d" % hour, timestamp=datetime(2025, 1, 14, hour, tzinfo=UTC))
    times = {"start": datetime(2025, 1, 14, 2, tzinfo=UTC), "end": datetime(2025, 1, 14, 4, tzinfo=UTC)}
    done = run(client, tmp_path / "times", source, target, Copier(client, target), by="timestamp", **times)
    assert done.records == 2
    assert stored(client, target, 0)[10:] == [3, 2]


def test_other_producers_are_noticed(client: Client, tmp_path: Path) -> None:
    """What the target grew beyond the steps is told; a step that wrote too little ends the run, and is written again."""
    source, target = make(client, "replay-foreign", 100)

    def too_few(progress: Progress, start: Offsets, end: Offsets, times: Times) -> None:
        client.produce_many(target, [b"1"] * 99, partition=0)

    with pytest.raises(JobFailedError, match="expected replay-foreign-copy to grow by 100 records, found 99"):
        run(client, tmp_path / "few", source, target, too_few)

    def too_many(progress: Progress, start: Offsets, end: Offsets, times: Times) -> None:
        client.produce_many(target, [b"1"] * 103, partition=0)

    assert run(client, tmp_path / "many", source, target, too_many) == Replayed(100, 1, 0, 3)


def test_what_is_refused(client: Client, tmp_path: Path) -> None:
    """A target that is missing, too small, or the source; a progress file of another replay, in use, or damaged; a
    topic made again: each with its error, and nothing written."""
    source, target = make(client, "replay-refused", 10, 10)
    client.topics.create("replay-small", partitions=1)
    path, copy = tmp_path / "progress", Copier(client, target)
    with pytest.raises(UnknownTopicError, match="replay-missing"):
        run(client, path, source, "replay-missing", copy)
    with pytest.raises(
        JobStateError, match="replay-small: expected 2 partitions or more, as replay-refused has, found 1"
    ):
        run(client, path, source, "replay-small", copy)
    with pytest.raises(JobStateError, match="expected another topic to replay replay-refused into, found itself"):
        run(client, path, source, source, copy)
    with pytest.raises(ValueError, match="expected a time with a zone, found 2025-01-14T00:00:00"):
        run(client, path, source, target, copy, start=datetime(2025, 1, 14))
    for name in ("startingTimestamp", "endingoffsets", "assign", "minPartitions", "columns", "bootstrap.servers"):
        with pytest.raises(OptionError, match=f"(?i)none that the replay sets by itself, found {name}"):
            run(client, path, source, target, copy, options={name: "1"})
    assert not path.exists()
    with pytest.raises(Died):
        run(client, path, source, target, Copier(client, target, dies_in=0))
    with pytest.raises(
        JobStateError, match=r"found one with ending 'latest' and not '\{\"replay-refused\":\{\"0\":5\}\}'"
    ):
        run(client, path, source, target, copy, end={0: 5})
    with exclusive(tmp_path / "progress.lock"), pytest.raises(JobBusyError, match=r"another run holds .*progress.lock"):
        run(client, path, source, target, copy)
    client.topics.delete(target)
    client.topics.create(target, partitions=2)
    with pytest.raises(JobStateError, match="found one with target_id"):
        run(client, path, source, target, copy)
    path.write_text("{}")
    with pytest.raises(JobStateError, match="expected the progress of a replay, found something else"):
        run(client, path, source, target, copy)
    assert copy.steps == []


def test_the_pace_of_a_run() -> None:
    """A second's worth a step, each begun as long after the one before as its records take at the rate; time that a slow
    step took is not made up for, so that no second begins more than the rate allows."""
    now, slept = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    pace = Pace(1000.0, None, Clock(lambda: now[0], sleep))
    assert pace.step_records == 1000
    begun: list[float] = []
    for size, took in ((1000, 0.25), (1000, 5.0), (1000, 0.25), (1000, 0.0), (500, 0.0)):
        pace.wait(size)
        begun.append(now[0])
        now[0] += took
    assert begun == [101.0, 102.0, 107.0, 108.0, 108.5]
    assert slept == [1.0, 0.75, 0.75, 0.5]
    assert Pace(0.1, None, Clock()).step_records == 1
    assert Pace(None, None, Clock()).step_records == 1_000_000
    assert [Pace(10, most, Clock()).step_records for most in (5, 5000)] == [5, 10]
    with pytest.raises(ValueError, match="rate: expected more than 0 records a second, found 0"):
        Pace(0, None, Clock())


def test_a_rate_holds_for_a_run_from_its_first_record(client: Client, tmp_path: Path) -> None:
    """Nothing is written before its time: the wait comes before a step, and nothing of it is said to be begun."""
    source, target = make(client, "replay-rate", 25)
    path, copier = tmp_path / "progress.json", Copier(client, target)
    now, seen = [0.0], list[tuple[float, int]]()

    def sleep(seconds: float) -> None:
        assert json.loads(path.read_text())["step"] is None
        now[0] += seconds

    def copy(progress: Progress, start: Offsets, end: Offsets, times: Times) -> None:
        copier(progress, start, end, times)
        seen.append((now[0], len(stored(client, target, 0))))

    job = ReplayRun(client, client, source, target)
    assert job.run(path, copy, Pace(10, None, Clock(lambda: now[0], sleep))) == Replayed(25, 3, 0, 0)
    assert seen == [(1.0, 10), (2.0, 20), (2.5, 25)]
