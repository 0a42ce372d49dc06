"""A broker's core without an edge: topics and partitions on any `Files`, a virtual clock, rounds run by hand.

core = Core(PowerLossFiles())
topic = core.create("orders")
answer = core.produce(topic, batch(b"one"))          # pending: nothing was synced yet
core.settle()                                        # run sync rounds until nobody waits
core = core.after_power_loss(rng)                    # what a new process finds on that disk
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tests.helpers.power_loss import PowerLossFiles
from tidelog.broker.clock import BrokerTime, VirtualClock
from tidelog.broker.deferred import Deferred
from tidelog.broker.fetcher import Fetched
from tidelog.broker.group_commit import GroupCommit
from tidelog.broker.groups import GroupDefaults, Groups
from tidelog.broker.page_room import PageRoom
from tidelog.broker.partition import Partition
from tidelog.broker.produced import Produced
from tidelog.broker.queues.queues import Queues
from tidelog.broker.services import Services
from tidelog.broker.storage.files import Files, MemoryFiles
from tidelog.broker.storage.sync_round import SyncTask, run_round
from tidelog.broker.timers import Timers
from tidelog.broker.topics import Topic, TopicDefaults, TopicLimits, Topics, TopicsStatistics
from tidelog.broker.turns import Pace, in_turns
from tidelog.protocol.batch import (
    DEFAULT_PRIORITY,
    BatchHeader,
    Codec,
    RoutingColumns,
    decode_batch,
    encode_batch,
)
from tidelog.protocol.columns import DEDUP_ID, RETRY
from tidelog.protocol.dedup_id import NO_DEDUP_ID, hash_dedup_id
from tidelog.protocol.errors import TidelogError
from tidelog.protocol.messages import BatchResult, FetchPosition, InitProducerReply, StatsPlace
from tidelog.protocol.topic_settings import SettingValue

T = TypeVar("T")

SECOND = 1_000_000
DEFAULTS = TopicDefaults(segment_bytes=1 << 20, partitions=1)


def batch(
    *values: bytes,
    producer: int = 0,
    epoch: int = 0,
    sequence: int = 0,
    timestamp_us: int = 1_000_000,
    ids: Sequence[bytes | None] | None = None,
    max_attempts: Sequence[int] | None = None,
    codec: Codec = Codec.NONE,
    priority: int = DEFAULT_PRIORITY,
) -> memoryview:
    """Return one batch as a producer sends it, in a buffer of its own; `ids` are dedup ids as a user gives them, and
    `max_attempts` what each message says of itself (0: nothing)."""
    retries = None
    if max_attempts is not None:
        retries = np.zeros(len(values), RETRY)
        retries["max_attempts"] = max_attempts
    routing = RoutingColumns(dedup_ids=None if ids is None else id_column(ids), retries=retries)
    encoded = encode_batch(
        list(values),
        timestamp_us=timestamp_us,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        routing=None if ids is None and retries is None else routing,
        codec=codec,
        priority=priority,
    )
    return memoryview(encoded)


def id_column(ids: Sequence[bytes | None]) -> npt.NDArray[np.void]:
    """Return dedup ids as they stand in a batch."""
    return np.frombuffer(b"".join(NO_DEDUP_ID if one is None else hash_dedup_id(one) for one in ids), dtype=DEDUP_ID)


def joined(*batches: memoryview) -> memoryview:
    """Return batches back to back, as one request carries them."""
    return memoryview(bytearray(b"".join(batches)))


@dataclass
class Workers:
    """An `Offload`: runs work at once, or keeps it until `run` while it is `held`."""

    held: bool = False
    waiting: list[tuple[Callable[[], None], Callable[[], None]]] = field(
        default_factory=list[tuple[Callable[[], None], Callable[[], None]]]
    )

    def __call__(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        if self.held:
            self.waiting.append((work, done))
        else:
            work()
            done()

    def run(self) -> int:
        """Run what was kept, the last first: workers keep no order."""
        waiting, self.waiting = self.waiting, []
        for work, done in reversed(waiting):
            work()
            done()
        return len(waiting)


class Core:
    """One process of a broker."""

    def __init__(
        self,
        files: Files | None = None,
        *,
        clock: VirtualClock | None = None,
        defaults: TopicDefaults = DEFAULTS,
        limits: TopicLimits | None = None,
        group_defaults: GroupDefaults | None = None,
        max_unsynced_bytes: int = 1 << 28,
    ) -> None:
        self.files = files or MemoryFiles()
        self.clock = clock or VirtualClock()
        self.time = BrokerTime(self.clock)
        self.timers = Timers()
        self.commit: GroupCommit[SyncTask] = GroupCommit(max_unsynced_bytes=max_unsynced_bytes)
        self.workers = Workers()
        self.events: list[str] = []
        self._round: list[SyncTask] = []
        self.services = Services(self.files, self.time, self.timers, self.commit, self.workers, report=self._report)
        self.defaults = defaults
        self.group_defaults = group_defaults or GroupDefaults()
        self.topics = Topics.open(self.services, defaults=defaults, limits=limits or TopicLimits())
        self.groups = Groups(self.services, self.topics, self.group_defaults)
        self.queues = Queues(self.services, self.topics, self.groups, waits=self.timers, chance=lambda: 0.5)
        self.queues.start()

    def _report(self, event: str, **fields: str | int) -> None:
        self.events.append(event)

    def gauges(self) -> dict[str, int]:
        """Return the counters and gauges of all groups, read in one go."""
        pace = Pace(self.workers)
        common = in_turns(self.queues.gauges(pace))
        found = in_turns(self.queues.group_gauges(StatsPlace(), PageRoom(), pace))
        assert not isinstance(common, Deferred)
        assert not isinstance(found, Deferred)
        return common | found[0]

    def statistics(self) -> TopicsStatistics:
        """Return the counters and gauges of all topics, read in one go."""
        found = in_turns(self.topics.statistics(Pace(self.workers)))
        assert not isinstance(found, Deferred)
        return found

    # -- time and syncs ------------------------------------------------------------------------------------------

    def begin_round(self) -> int:
        """Take a sync round; it runs when it is finished. Returns how many logs are in it."""
        self._round = self.commit.next_round(self.time.monotonic_us())
        return len(self._round)

    def finish_round(self) -> None:
        """Run the syncs of the round and bring the results back."""
        tasks, self._round = self._round, []
        self.commit.round_done(run_round(self.files, tasks))

    def settle(self) -> int:
        """Run rounds until nothing is wanted; returns how many."""
        rounds = 0
        while self.begin_round():
            self.finish_round()
            rounds += 1
            assert rounds < 1_000, "rounds without end"
        return rounds

    def advance(self, duration_us: int) -> None:
        """Let time pass: deadlines and syncs behind the writer happen when they are due."""
        end_us = self.time.monotonic_us() + duration_us
        while True:
            now_us = self.time.monotonic_us()
            due = [due for due in (self.timers.next_due_us(), self.commit.next_due_us()) if due is not None]
            next_us = min([*due, end_us])
            self.clock.advance(max(min(next_us, end_us) - now_us, 0))
            for action in self.timers.expired(self.time.monotonic_us()):
                action()
            self.settle()
            if next_us >= end_us:
                return

    def wait(self, answer: Deferred[T]) -> T:
        """Return the answer after the syncs it waits for. Raises what it failed with."""
        self.settle()
        return answer.result()

    # -- requests ------------------------------------------------------------------------------------------------

    def create(self, name: str, partitions: int = 1, settings: Mapping[str, SettingValue] | None = None) -> Topic:
        """Make a topic in the default namespace."""
        return self.wait(self.topics.create(f"default/{name}", partitions=partitions, settings=settings)).topic

    def topic(self, name: str) -> Topic:
        """Return a topic of the default namespace."""
        return self.topics.named(f"default/{name}")

    def init_producer(self, name: str | None = None) -> InitProducerReply:
        """Give a producer identity."""
        return self.wait(self.topics.init_producer(name))

    def send(self, partition: Partition, *batches: memoryview, durability: int = 0) -> Deferred[Produced]:
        """Send one request; its answer may be pending."""
        produced = partition.produce(joined(*batches), durability=durability, max_wait_us=10 * SECOND)
        if isinstance(produced, Deferred):
            return produced
        answer: Deferred[Produced] = Deferred()
        answer.resolve(produced)
        return answer

    def produce(self, partition: Partition, *batches: memoryview, durability: int = 0) -> list[BatchResult]:
        """Send one request and sync until it is answered. Raises the error of the first refused batch."""
        results = self.wait(self.send(partition, *batches, durability=durability)).results
        for result in results:
            if result.error is not None:
                raise result.error.error()
        return results

    def read(self, partition: Partition, offset: int | None = None) -> list[bytes | None]:
        """Return every visible value from an offset on. Raises the error that a fetch answers."""
        return [value for found in self.read_batches(partition, offset) for value in decode_batch(found).values]

    def read_batches(self, partition: Partition, offset: int | None = None) -> list[bytes]:
        """Return every visible stored batch from the one that holds an offset on."""
        offset = partition.start_offset if offset is None else offset
        found: list[bytes] = []
        while True:
            fetched = self.fetch(partition, offset)
            if fetched.result.error is not None:
                raise fetched.result.error.error()
            if not fetched.bulk:
                return found
            found += split(bulk_of(fetched))
            offset = fetched.result.next_offset

    def fetch(self, partition: Partition, offset: int, epoch: int = 0, max_bytes: int = 1 << 20) -> Fetched:
        """Read once from an offset."""
        position = FetchPosition(partition.topic_id, partition.index, offset, epoch)
        fetched = partition.fetch(position, max_bytes=max_bytes)
        return fetched if isinstance(fetched, Fetched) else fetched.result()

    # -- the end -------------------------------------------------------------------------------------------------

    def next_process(self, files: Files, downtime_us: int = SECOND) -> Core:
        """Start again on these files, some time later."""
        clock = VirtualClock(self.clock.wall_us() + downtime_us)
        return Core(
            files,
            clock=clock,
            defaults=self.defaults,
            group_defaults=self.group_defaults,
            max_unsynced_bytes=self.commit.max_unsynced_bytes,
        )

    def after_stop(self, downtime_us: int = SECOND) -> Core:
        """Stop cleanly, and start again."""
        self.settle()
        self.topics.close()
        return self.next_process(self.files, downtime_us)

    def after_kill(self) -> Core:
        """Die by kill -9, and start again."""
        return self.next_process(model(self).kill())

    def after_power_loss(self, rng: random.Random) -> Core:
        """Lose power, and start again on one of the possible disks."""
        return self.next_process(model(self).crash(rng))


def start(files: Files | None = None, **settings: SettingValue) -> tuple[Core, Partition]:
    """Return a core with one topic, `orders`, of one partition."""
    core = Core(files)
    return core, core.create("orders", 1, settings).partition(0)


def model(core: Core) -> PowerLossFiles:
    """Return the disk model that a core runs on."""
    inner = getattr(core.files, "inner", core.files)
    assert isinstance(inner, PowerLossFiles), "only a disk model can lose a process"
    return inner


def bulk_of(fetched: Fetched) -> bytes:
    """Return the stored bytes of an answer."""
    return b"".join(piece.file.read_at(piece.position, piece.length) for piece in fetched.bulk)


def split(bulk: bytes) -> list[bytes]:
    """Return the batches that lie back to back."""
    found: list[bytes] = []
    while bulk:
        length = BatchHeader.read(bulk).batch_length
        found.append(bulk[:length])
        bulk = bulk[length:]
    return found


def errors_of(results: Sequence[BatchResult]) -> list[type[TidelogError] | None]:
    """Return the kind of error of each result, None for a stored batch."""
    return [None if result.error is None else type(result.error.error()) for result in results]
