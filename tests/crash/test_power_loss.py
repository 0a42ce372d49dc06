"""Invariants 1 and 2 over thousands of crashes: a log recovers to a durable prefix with all it acknowledged.

A life is a log that works at random (append, sync, roll, upkeep, retention, clean stops, failing disks),
crashes at a random file operation, within a recovery too, recovers, is checked, and goes on. Everything
follows from the seed: a failure is repeated with `pytest -k "[seed]"`.
"""

from __future__ import annotations

import dataclasses
import random

import pytest
from tests.helpers.log_driver import KIB, SMALL, LogDriver
from tests.helpers.power_loss import Crashed

from tidelog.broker.storage.settings import LogSettings

pytestmark = pytest.mark.crash

SHARDS = range(8)
LIVES = 5
CRASHES_PER_LIFE = 5
STATES_PER_CRASH = 1
STEPS_PER_RUN = 60

VARIANTS: tuple[LogSettings, ...] = (
    SMALL,
    dataclasses.replace(SMALL, segment_bytes=12 * KIB, retention_bytes=40 * KIB),
    dataclasses.replace(SMALL, segment_age_us=3_000_000, retention_us=40_000_000),
    dataclasses.replace(SMALL, segment_bytes=64 * KIB, snapshot_interval_bytes=200 * KIB),
)


class Life:
    """One random life of a log; `crashes` and `recoveries` prove that it was not a quiet one."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.driver = LogDriver(seed, self.rng.choice(VARIANTS))
        self.crashes = 0
        self.failed_syncs = 0

    def run(self, crashes: int) -> None:
        """Work, crash and recover so often."""
        for _ in range(crashes):
            self.driver.files.crash_at(self.rng.randint(1, 90), self.rng)
            try:
                for _ in range(STEPS_PER_RUN):
                    self.step()
            except Crashed:
                self.crashes += 1
            self.recover()

    def recover(self) -> None:
        """Recover, now and then over a crash within the recovery."""
        self.driver.check_states(STATES_PER_CRASH)
        while True:
            interrupted = self.rng.random() < 0.3
            power = self.rng.random() < 0.7
            files = self.driver.files.crash(self.rng) if power else self.driver.files.kill()
            if power:
                self.driver.promised_written = self.driver.promised_synced
            if interrupted:
                files.crash_at(self.rng.randint(1, 25), self.rng)
            try:
                self.driver.reopen(files)
            except Crashed:
                self.crashes += 1
                continue
            files.crash_at(-1, self.rng)
            return

    def step(self) -> None:
        """Do one thing."""
        driver = self.driver
        kind = self.rng.choices(
            ("append", "sync", "upkeep", "expire", "wait", "stop", "failing sync"), (50, 22, 14, 5, 5, 2, 2)
        )[0]
        if kind == "append":
            driver.append(self.rng.choice((1, 1, 1, 2, 5)))
        elif kind == "sync":
            driver.sync(self.interrupt if self.rng.random() < 0.5 else None)
        elif kind == "upkeep":
            driver.upkeep(self.interrupt if self.rng.random() < 0.5 else None)
        elif kind == "expire":
            driver.expire()
        elif kind == "wait":
            driver.now_us += self.rng.choice((1_000, 1_000_000, 5_000_000))
        elif kind == "stop":
            self.stop()
        else:
            self.fail_sync()

    def interrupt(self, operation: str, path: str) -> None:
        """Go on while another thread is between two steps of its task, now and then in a third thread."""
        if self.rng.random() < 0.25:
            driver = self.driver
            hook, driver.files.before_each = driver.files.before_each, None
            self.rng.choices((driver.append, driver.sync, driver.upkeep, driver.expire), (8, 1, 1, 1))[0]()
            driver.files.before_each = hook

    def stop(self) -> None:
        """Stop cleanly and start again."""
        self.driver.log.close()
        self.driver.promised_written = self.driver.end
        self.driver.reopen(self.driver.files.kill())

    def fail_sync(self) -> None:
        """Let syncs fail for one round; a log that was fenced takes nothing until the broker starts again."""
        files = self.driver.files
        files.fail_syncs(lambda path: self.rng.random() < 0.5)
        self.driver.sync()
        files.fail_syncs(None)
        self.failed_syncs += files.failed_syncs
        if self.driver.log.fenced:
            self.driver.append()
            self.driver.kill()


@pytest.mark.parametrize("shard", SHARDS)
def test_random_lives(shard: int, soak: int) -> None:
    """Whatever a log was doing when it crashed, it comes back as a durable prefix with all it promised."""
    crashes = failed_syncs = 0
    for number in range(LIVES * soak):
        life = Life(shard + len(SHARDS) * number)
        life.run(CRASHES_PER_LIFE)
        crashes += life.crashes
        failed_syncs += life.failed_syncs
    assert crashes > 2 * LIVES * soak
    assert failed_syncs > 0
