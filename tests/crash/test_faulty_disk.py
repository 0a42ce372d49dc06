"""Every file operation of a log fails once, in every way a disk fails: errors are typed, and nothing promised is lost.

Each case runs one fixed piece of work while the N-th call of one operation fails, for every N there is;
then the disk is well again. A log that was not fenced must go on by itself, a fenced one after a restart;
and whatever was promised before, between and after must survive every crash.
"""

from __future__ import annotations

import dataclasses
import errno

import pytest
from tests.helpers.faulty_files import Fault
from tests.helpers.log_driver import KIB, SMALL, LogDriver
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.errors import DiskFullError, StorageError

pytestmark = pytest.mark.crash

FAULTS = [
    ("write_at", errno.ENOSPC, 0),
    ("write_at", errno.ENOSPC, 300),
    ("write_at", errno.EIO, 700),
    ("create", errno.ENOSPC, 0),
    ("create", errno.EMFILE, 0),
    ("create", errno.EROFS, 0),
    ("open", errno.EMFILE, 0),
    ("view", errno.ENOMEM, 0),
    ("reserve", errno.ENOSPC, 0),
    ("read_at", errno.EIO, 0),
    ("rename", errno.EIO, 0),
    ("sync_folder", errno.EIO, 0),
    ("unlink", errno.EIO, 0),
    ("remove_folder", errno.EIO, 0),
    ("save_array", errno.ENOSPC, 0),
    ("list_folder", errno.EIO, 0),
]


SETTINGS = dataclasses.replace(SMALL, segment_bytes=10 * KIB, retention_bytes=20 * KIB)

NOT_IN_WORK = {"read_at"}
NOT_IN_RECOVERY = {"unlink", "remove_folder", "save_array"}


def work(driver: LogDriver) -> None:
    """Append over the end of a segment, with everything that goes on beside it."""
    driver.read_something()
    for number in range(10):
        driver.append(batches=1 + number % 2, size=1400)
        if number % 3 == 2:
            driver.sync()
            driver.upkeep()
        driver.now_us += 500_000
    driver.expire()
    driver.read_something()
    driver.log.close()


def recover(driver: LogDriver) -> None:
    """Append a tail that only the page cache has, kill, and recover over the bad disk."""
    assert driver.faults is not None
    driver.log.close(clean=False)
    driver.adopt(driver.open(driver.faults))


def attempt(driver: LogDriver, act: object) -> None:
    """Do it; what comes out may be one of the two errors of a bad disk, and no other."""
    assert callable(act)
    try:
        act(driver)
    except (DiskFullError, StorageError):
        driver.log.close(clean=False)


def after_repair(driver: LogDriver) -> None:
    """The disk is well: the log goes on, after a restart where it must, and loses nothing in any crash."""
    driver.check_states(1)
    driver.kill()
    end = driver.end
    driver.append(size=500)
    driver.sync()
    assert driver.log.synced_offset == driver.end > end
    driver.check_states(1)


def prepared(seed: int) -> LogDriver:
    """A log with some synced batches, over a disk that can fail."""
    driver = LogDriver(seed, SETTINGS)
    for _ in range(8):
        driver.append(size=1000)
        driver.sync()
    driver.reopen_with_faults()
    return driver


@pytest.mark.parametrize(("operation", "code", "keep"), FAULTS)
def test_each_operation_of_a_running_log(operation: str, code: int, keep: int) -> None:
    """Whichever call fails while a log works, it refuses or goes on, and keeps its promises."""
    fired = 0
    while True:
        driver = prepared(fired)
        assert driver.faults is not None
        fault = driver.faults.fail(operation, code, after=fired, keep=keep)
        attempt(driver, work)
        if not fault.fired:
            break
        fired += 1
        driver.faults.heal()
        after_repair(driver)
    assert fired >= 1 or operation in NOT_IN_WORK


@pytest.mark.parametrize(("operation", "code", "keep"), FAULTS)
def test_each_operation_of_a_recovery(operation: str, code: int, keep: int) -> None:
    """Whichever call fails while a log recovers, the next start recovers it."""
    fired = 0
    while True:
        driver = prepared(fired)
        assert driver.faults is not None
        for _ in range(3):
            driver.append(size=900)
        fault = driver.faults.fail(operation, code, after=fired, keep=keep)
        attempt(driver, recover)
        if not fault.fired:
            break
        fired += 1
        driver.faults.heal()
        after_repair(driver)
    assert fired >= 1 or operation in NOT_IN_RECOVERY


@pytest.mark.parametrize("act", [work, recover])
def test_each_sync_is_lost(act: object) -> None:
    """Whichever sync fails, its pages clean and not on disk: nothing that needed it is promised, then or later."""
    fired = 0
    while True:
        driver = prepared(fired)
        for _ in range(3):
            driver.append(size=900)
        counter = Fault("sync", after=fired)
        driver.files.fail_syncs(lambda path, counter=counter: counter.takes("sync", path))
        attempt(driver, act)
        if not counter.fired:
            break
        fired += 1
        driver.files.fail_syncs(None)
        after_repair(driver)
    assert fired >= 1


def test_a_refused_append_is_not_brought_back_by_a_restart() -> None:
    """What a full disk refused is not there after a kill, whatever part of it had arrived."""
    for keep in range(0, 1200, 100):
        driver = prepared(keep)
        assert driver.faults is not None
        fault = driver.faults.fail("write_at", errno.ENOSPC, keep=keep)
        driver.append(batches=2, size=500)
        assert (fault.fired, driver.refused) == (1, 1)
        driver.check(PowerLossFiles(driver.files.disk.copy()), driver.promised_written)
