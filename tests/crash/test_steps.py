"""A kill or power loss between every two file operations of each thing a log does in several steps.

Each case prepares a log, then does one thing again and again, crashing in its first file operation, its
second, and so on until it gets through; after each crash the page cache as it was (kill -9) and several
states of the disk are recovered and held to the invariants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from tests.helpers.disk_model import Loss
from tests.helpers.log_driver import KIB, SMALL, LogDriver
from tests.helpers.power_loss import Crashed, PowerLossFiles

pytestmark = pytest.mark.crash

STATES = 1
HOUR_US = 3_600_000_000
SETTINGS = dataclasses.replace(SMALL, segment_age_us=HOUR_US)
Step = Callable[[LogDriver], None]


def every_crash(prepare: Step, act: Step, states: int) -> int:
    """Crash in each file operation of `act`, check what can be found; return how many operations there were."""
    at = 1
    while True:
        driver = LogDriver(at, SETTINGS)
        prepare(driver)
        driver.files.crash_at(at, driver.rng)
        try:
            act(driver)
        except Crashed:
            driver.check_states(states)
            at += 1
        else:
            driver.check_states(states)
            return at - 1


def fill(driver: LogDriver, upto: int, *, synced: bool = True) -> None:
    """Append about so many bytes."""
    for _ in range(upto // 1000):
        driver.append(size=900)
        if synced:
            driver.sync()


def unprepared(driver: LogDriver) -> None:
    """A segment with little room left, and no next one yet."""
    count = driver.log.segment_count
    room = SMALL.segment_bytes * count - 5 * KIB
    while driver.log.size_bytes < room:
        fill(driver, 1 * KIB)
    assert driver.log.segment_count == count


def nearly_full(driver: LogDriver) -> None:
    """The same with the next one prepared, and its name made durable by a snapshot."""
    unprepared(driver)
    driver.upkeep()


def roll(driver: LogDriver) -> None:
    """Go over the end of the segment, sync, and acknowledge in the new one."""
    count = driver.log.segment_count
    for _ in range(6):
        driver.append(size=1500)
    driver.sync()
    assert driver.log.segment_count == count + 1
    driver.append(size=100)
    driver.sync()


def idle(driver: LogDriver) -> None:
    """A synced log that nobody has appended to for hours, its next segment prepared."""
    fill(driver, 3 * KIB)
    driver.now_us += 2 * HOUR_US
    driver.upkeep()


def roll_empty(driver: LogDriver) -> None:
    """Go on in a new segment because the old one is too old, with nothing to put into it."""
    driver.upkeep()
    assert driver.log.is_rolling
    driver.sync()
    assert not driver.log.is_rolling


def upkeep(driver: LogDriver) -> None:
    """Whatever there is to do in the background: seal, prepare, snapshot, mark."""
    for _ in range(4):
        driver.now_us += 2_000_000
        driver.upkeep()


def rolled(driver: LogDriver) -> None:
    """Two sealed segments with nothing done in the background yet."""
    for _ in range(2):
        nearly_full(driver)
        roll(driver)


def unsynced_tail(driver: LogDriver) -> None:
    """A kill -9 left synced batches and a tail that only the page cache has."""
    fill(driver, 6 * KIB)
    fill(driver, 3 * KIB, synced=False)
    driver.files = driver.files.kill()


def unsynced_segment(driver: LogDriver) -> None:
    """The same, with the whole segment unsynced."""
    fill(driver, 4 * KIB, synced=False)
    driver.files = driver.files.kill()


def recover(driver: LogDriver) -> None:
    """Open what the kill left; that the driver checks it afterwards is not part of the steps."""
    driver.open(driver.files)


def stop(driver: LogDriver) -> None:
    """Stop cleanly."""
    driver.log.close()


@pytest.mark.parametrize(
    ("prepare", "act", "at_least"),
    [
        (nearly_full, roll, 8),
        (unprepared, roll, 9),
        (idle, roll_empty, 5),
        (rolled, upkeep, 10),
        (rolled, stop, 2),
        (unsynced_tail, recover, 6),
        (unsynced_segment, recover, 6),
    ],
    ids=["roll", "roll-unprepared", "roll-empty", "upkeep", "stop", "tail-copy", "whole-segment-copy"],
)
def test_crash_between_every_two_steps(prepare: Step, act: Step, at_least: int, soak: int) -> None:
    """Wherever it is cut, all that was acknowledged is there, and what is served is durable."""
    operations = every_crash(prepare, act, STATES * soak)
    assert operations >= at_least


@pytest.mark.parametrize("prepare", [unsynced_tail, unsynced_segment])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_crash_in_the_copy_of_the_copy(prepare: Step, power: bool, soak: int) -> None:
    """A recovery that was cut anywhere is recovered by one that is cut anywhere."""
    first, pairs = 1, 0
    while True:
        driver = LogDriver(seed=first)
        prepare(driver)
        driver.files.crash_at(first, driver.rng)
        try:
            driver.open(driver.files)
        except Crashed:
            pass
        else:
            break
        least = driver.promised_synced if power else driver.promised_written
        files = driver.files.crash(driver.rng) if power else driver.files.kill()
        pairs += _crash_in_each(driver, files, least, soak)
        first += 1
    assert pairs > 25


def _crash_in_each(driver: LogDriver, files: PowerLossFiles, least: int, soak: int) -> int:
    second = 1
    while True:
        again = PowerLossFiles(files.disk.copy())
        again.crash_at(second, driver.rng)
        try:
            driver.open(again)
        except Crashed:
            driver.check(PowerLossFiles(again.disk.copy()), least)
            for _ in range(soak):
                loss = driver.rng.choice(list(Loss))
                disk = again.disk.after_power_loss(driver.rng, loss, loss)
                driver.check(PowerLossFiles(disk), driver.promised_synced)
            second += 1
        else:
            return second - 1
