"""A log against a list: whatever is done to it, it holds what the list holds."""

from __future__ import annotations

import random

from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import encode_batch

from .driver import append_all, open_log, read_values, sync, upkeep

SETTINGS = LogSettings(
    segment_bytes=8192, index_interval_bytes=512, snapshot_interval_bytes=4096, retention_bytes=24_000
)
SECOND_US = 1_000_000


class LogMachine(RuleBasedStateMachine):
    """Append, sync, roll, read, lose the process, lose the power, expire."""

    def __init__(self) -> None:
        super().__init__()
        self.files = PowerLossFiles()
        self.epoch = 1
        self.now_us = SECOND_US
        self.counter = 0
        self.records: list[tuple[bytes, int, int]] = []  # value, append time, timestamp; from offset 0 on
        self.priorities: dict[bytes, int] = {}  # by value, which is never the same twice
        self.log: Log = open_log(self.files, SETTINGS)

    @rule(
        sizes=st.lists(st.lists(st.integers(0, 900), min_size=1, max_size=4), min_size=1, max_size=3),
        step=st.integers(-5, 20),
        spread=st.integers(0, 50),
        priority=st.sampled_from([4, 4, 9, 0]),
    )
    def append(self, sizes: list[list[int]], step: int, spread: int, priority: int = 4) -> None:
        self.now_us = max(self.now_us + step, 0)
        batches: list[bytearray] = []
        added: list[tuple[bytes, int]] = []
        for lengths in sizes:
            values = [b"%d:" % (self.counter + n) + b"x" * length for n, length in enumerate(lengths)]
            times = [1000 + (self.counter + n) * 7 % (spread + 1) + self.counter for n in range(len(values))]
            self.counter += len(values)
            batches.append(encode_batch(values, timestamps_us=times, priority=priority))
            added += zip(values, times, strict=True)
            self.priorities |= dict.fromkeys(values, priority)
        expected_us = max([self.now_us, *(time for _, time, _ in self.records[-1:])])
        before = len(self.records)
        # Noted first: a crash in the append may leave any first part of it.
        self.records += [(value, expected_us, time) for value, time in added]
        done = append_all(self.log, *batches, now_us=self.now_us)
        assert done.base_offset == before
        assert done.append_time_us == expected_us
        assert done.end_offset == len(self.records)

    @rule()
    def sync(self) -> None:
        sync(self.log)
        assert self.log.synced_offset == self.log.written_offset == len(self.records)

    @rule()
    def append_while_syncing(self) -> None:
        before = len(self.records)
        task = self.log.begin_sync()
        self.append([[10]], 1, 0)
        if task is not None:
            self.log.finish_sync(task, task.run())
            assert before <= self.log.synced_offset <= len(self.records)

    @rule()
    def upkeep(self) -> None:
        self.now_us += SECOND_US
        upkeep(self.log, self.now_us)

    @rule()
    def expire(self) -> None:
        expired = self.log.expire(self.now_us)
        if expired is not None:
            assert expired.run() is None
            assert self.log.start_offset == expired.start_offset

    @rule()
    def close_and_open(self) -> None:
        start = self.log.start_offset
        self.log.close()
        self.reopen(len(self.records))
        assert self.log.start_offset == start
        assert self.log.recovery.scanned_bytes == 0

    @rule()
    def kill(self) -> None:
        written, start = self.log.written_offset, self.log.start_offset
        self.files = self.files.kill()
        self.reopen(written)
        assert self.log.start_offset == start

    @rule(seed=st.integers(0, 2**32))
    def lose_power(self, seed: int) -> None:
        synced = self.log.synced_offset
        self.files = self.files.crash(random.Random(seed))
        self.reopen(synced)

    @rule(
        what=st.sampled_from(["append", "sync", "upkeep", "close", "expire", "open"]),
        step=st.integers(1, 12),
        power=st.booleans(),
        seed=st.integers(0, 2**32),
    )
    def crash_in(self, what: str, step: int, power: bool, seed: int) -> None:
        """Crash in the n-th operation of something, if it has so many."""
        promised = self.log.synced_offset if power else self.log.written_offset
        self.files.crash_at(step, random.Random(seed))
        try:
            if what == "append":
                self.append([[800, 800], [800]], 1, 0)
            elif what == "close":
                self.log.close()
            elif what == "open":
                self.files = self.files.kill()
                self.files.crash_at(step, random.Random(seed))
                open_log(self.files, SETTINGS, epoch=self.epoch, now_us=self.now_us)
            else:
                {"sync": self.sync, "upkeep": self.upkeep, "expire": self.expire}[what]()
        except Crashed:
            event(f"crashed in {what}")
        self.files = self.files.crash(random.Random(seed)) if power else self.files.kill()
        self.reopen(promised)

    def reopen(self, promised: int) -> None:
        self.epoch += 1
        self.log = open_log(self.files, SETTINGS, epoch=self.epoch, now_us=self.now_us)
        assert promised <= self.log.end_offset <= len(self.records)
        assert self.log.damaged == []
        assert self.log.synced_offset == self.log.end_offset
        del self.records[self.log.end_offset :]

    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.log.start_offset, self.log.end_offset))
        upto = self.log.synced_offset if data.draw(st.booleans()) else self.log.end_offset
        values = read_values(self.log, offset, max_bytes=data.draw(st.sampled_from([0, 700, 5000, 100_000])), upto=upto)
        assert values == [value for value, _, _ in self.records[offset:upto]]

    @precondition(lambda self: bool(self.records))
    @rule(data=st.data())
    def look_up(self, data: st.DataObject) -> None:
        start, end = self.log.start_offset, self.log.end_offset
        kept = self.records[start:]
        near = data.draw(st.integers(0, len(self.records) - 1))
        shift = data.draw(st.integers(-2, 2))
        append_us = self.records[near][1] + shift
        expected = [start + n for n, (_, time, _) in enumerate(kept) if time >= append_us]
        assert self.log.offset_for_append_time(append_us) == (expected[0] if expected else end)
        time_us = self.records[near][2] + shift
        late = [start + n for n, (_, _, time) in enumerate(kept) if time >= time_us]
        assert self.log.offset_for_timestamp(time_us) == (late[0] if late else end)
        early = [start + n for n, (_, _, time) in enumerate(kept) if time < time_us]
        assert self.log.end_for_timestamp(time_us) == (early[-1] + 1 if early else start)

    @rule(priority=st.sampled_from([0, 4, 7, 9]))
    def look_into_lanes(self, priority: int) -> None:
        start, end = self.log.start_offset, self.log.end_offset
        expected = [n for n in range(start, end) if self.priorities[self.records[n][0]] == priority]
        found: list[int] = []
        at = start
        while at < end:
            _, stop, lanes = self.log.lanes_at(at, priority)
            found += [] if lanes is None else lanes.within(priority, at, min(stop, end))
            at = stop
        assert found == expected
        assert not expected or self.log.lane_mask >> priority & 1

    @invariant()
    def marks_are_in_order(self) -> None:
        log = self.log
        assert log.start_offset <= log.synced_offset <= log.end_offset == len(self.records)
        assert log.written_offset <= log.end_offset
        assert log.unsynced_bytes >= 0


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
