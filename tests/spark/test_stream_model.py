"""A stream of any length against a model of a broker: limits, restarts, new partitions, answers with parts missing.

Whatever happens in between, each record is read once, from where the stream began, and a run that takes what is
available never goes beyond that and ends.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tidelog.spark.offsets import Available
from tidelog.spark.options import StreamOptions
from tidelog.spark.places import Place
from tidelog.spark.reading import RangePartition
from tidelog.spark.schema import schema_of
from tidelog.spark.stream import TidelogStreamReader
from tidelog.spark.stream_offset import StreamOffset
from tidelog.spark.stream_settle import Seen

BASE = {"url": "localhost", "subscribePattern": ".*", "maxWaitMs": "0", "maxTriggerDelay": "10s"}
LIMITS: list[dict[str, str]] = [
    {},
    {"maxOffsetsPerTrigger": "7"},
    {"maxBytesPerTrigger": "500"},
    {"minOffsetsPerTrigger": "5"},
    {"maxOffsetsPerTrigger": "20", "minOffsetsPerTrigger": "3"},
]


class Broker:
    """Topics that only grow."""

    def __init__(self) -> None:
        self.ends: dict[Place, int] = {Place("a", 0): 0}
        self.epoch = 1
        self.silent: set[Place] = set()
        """Partitions that the next answer has nothing of."""

    def look(self, known: Iterable[Place]) -> Seen:
        """Answer with all that is not silent."""
        held = {place: Available(0, end, 100.0, 1, 1) for place, end in self.ends.items() if place not in self.silent}
        epochs = dict.fromkeys(held, self.epoch)
        return Seen(held, {place.topic: 5 for place in self.ends}, epochs=epochs)

    def look_at(self, places: Iterable[Place]) -> Seen:
        """Answer for topics by name."""
        return self.look(places)

    def confirm(self, seen: Seen, known: Iterable[Place]) -> Seen:
        """Every topic is in every answer."""
        assert {place.topic for place in known} <= seen.made.keys()
        return seen

    def find_cuts(self, positions: Mapping[Place, tuple[int, int]]) -> dict[Place, int]:
        """Nothing is ever lost."""
        assert not any(offset > self.ends[place] for place, (_, offset) in positions.items())
        return {}

    def origins(self, seen: Seen) -> dict[Place, int]:
        """A new stream begins at the end of what is there."""
        return {place: held.end for place, held in seen.available.items()}

    def wait(self, ends: Mapping[Place, int], seconds: float) -> None:
        """Not with maxWaitMs=0."""
        raise AssertionError(f"expected no wait, found one for {seconds} s")


class Stream(RuleBasedStateMachine):
    """Spark's part: it logs the end of a batch, runs the batch, and may die at any point."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.now = 0.0
        self.log: list[str] = []
        self.committed = 0
        self.read: dict[Place, list[tuple[int, int]]] = {}
        self.begun: dict[Place, int] = {}
        self._make_reader({})

    def _make_reader(self, limits: dict[str, str]) -> None:
        options = StreamOptions.parse({**BASE, **limits})
        self.reader = TidelogStreamReader(options, schema_of(None, ["offset"]), lambda: self.now, self.broker)
        self.limits = limits

    @property
    def start(self) -> dict[str, object]:
        """Where the next batch begins."""
        return json.loads(self.log[-1]) if self.log else dict(self.reader.initialOffset())

    def _step(self) -> bool:
        """Log one batch and run it; whether there was one."""
        start = self.start
        end = self.reader.latestOffset(start, self.reader.getDefaultReadLimit())
        if json.dumps(end) == json.dumps(start):
            return False
        self._check_limit(start, end)
        self.log.append(json.dumps(end))
        return True

    def _check_limit(self, start: dict[str, object], end: Mapping[str, object]) -> None:
        sizes = [each.range.size for each in self._partitions(start, end)]
        most = int(self.limits.get("maxOffsetsPerTrigger", "1000000000"))
        if "maxBytesPerTrigger" in self.limits:
            most = 5
        assert sum(sizes) <= most

    def _partitions(self, start: Mapping[str, object], end: Mapping[str, object]) -> list[RangePartition]:
        found = self.reader.partitions(dict(start), dict(end))
        assert all(isinstance(each, RangePartition) for each in found)
        return [each for each in found if isinstance(each, RangePartition)]

    def _run(self) -> None:
        """Run what is logged and not committed; the same ranges however often."""
        while self.committed < len(self.log):
            before: dict[str, object] = json.loads(self.log[self.committed - 1]) if self.committed else {}
            after = json.loads(self.log[self.committed])
            silent, self.broker.silent = self.broker.silent, set()
            for each in self._partitions(before, after):
                self.read.setdefault(each.range.place, []).append((each.range.start, each.range.end))
            self.broker.silent = silent
            for topic, offsets in after.get("@from", {}).items():
                for partition, offset in offsets.items():
                    assert Place(topic, int(partition)) not in self.begun
                    self.begun[Place(topic, int(partition))] = offset
            self.committed += 1

    @rule(place=st.sampled_from([Place("a", 0), Place("a", 1), Place("b", 0)]), count=st.integers(0, 30))
    def append(self, place: Place, count: int) -> None:
        """Records come, also to what was not there before."""
        self.broker.ends[place] = self.broker.ends.get(place, 0) + count

    @rule(silent=st.sets(st.sampled_from([Place("a", 0), Place("a", 1), Place("b", 0)])))
    def answer_partly(self, silent: set[Place]) -> None:
        """The broker has started again, and its answers lack partitions from now on."""
        self.broker.epoch += 1
        self.broker.silent = silent

    @rule(seconds=st.sampled_from([0.0, 1.0, 11.0]))
    def trigger(self, seconds: float) -> None:
        """One batch, if there is one."""
        self.now += seconds
        self._step()
        self._run()

    @rule(limits=st.sampled_from(LIMITS), is_logged=st.booleans())
    def die(self, limits: dict[str, str], is_logged: bool) -> None:
        """The driver dies, before or after a batch is logged, and comes back with other options."""
        if is_logged:
            self._step()
        self._make_reader(limits)
        self._run()

    @rule(limits=st.sampled_from(LIMITS), late=st.integers(0, 9))
    def take_what_is_available(self, limits: dict[str, str], late: int) -> None:
        """A run of its own: everything up to its beginning, nothing behind, and then it is done."""
        self._make_reader(limits)
        self._run()
        self.broker.silent = set()
        self.reader.prepareForTriggerAvailableNow()
        target = dict(self.broker.ends)
        for place in self.broker.ends:
            self.broker.ends[place] += late
        self.broker.ends.setdefault(Place("b", 0), late)
        most = sum(target.values()) + 2
        while self._step():
            self._run()
            most -= 1
            assert most > 0, "a run that does not end"
        reached = self.start
        for place, end in target.items():
            found = reached[place.topic]
            assert isinstance(found, dict)
            assert found[str(place.partition)] == end
        assert self.reader.latestOffset(reached, ReadAllAvailable()) == reached
        self._make_reader(limits)

    @invariant()
    def everything_is_read_once(self) -> None:
        """In order, without a hole, from where the stream began."""
        for place, ranges in self.read.items():
            position = self.begun[place]
            for first, last in ranges:
                assert first == position < last
                position = last
            assert position <= self.broker.ends[place]

    def teardown(self) -> None:
        """In the end nothing is left over."""
        self._make_reader({})
        self.broker.silent = set()
        while self._step():
            pass
        self._run()
        self.everything_is_read_once()
        for place, end in self.broker.ends.items():
            total = sum(last - first for first, last in self.read.get(place, []))
            assert total == end - self.begun[place]
        first = StreamOffset.parse(json.loads(self.log[0]))
        assert {offset for place, offset in self.begun.items() if place not in first.next} <= {0}


Stream.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestAnyStream = Stream.TestCase
