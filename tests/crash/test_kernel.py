"""What the storage layer believes about the kernel, asked of the kernel: ext4 under a power loss."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.helpers.ext4_image import Ext4Image, Shutdown, why_not
from tests.helpers.log_driver import KIB, SMALL, LogDriver

from tidelog.broker.storage.files import DiskFiles, write_durably

pytestmark = [pytest.mark.crash, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


SETTINGS = dataclasses.replace(SMALL, segment_bytes=32 * KIB, snapshot_interval_bytes=16 * KIB)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Ext4Image]:
    """A mounted image of a fresh ext4."""
    with Ext4Image(tmp_path) as image:
        yield image


@pytest.mark.parametrize("how", Shutdown)
def test_synced_survives_and_the_rest_does_not(image: Ext4Image, how: Shutdown) -> None:
    """Bytes and names survive exactly when they were synced; that the rest is gone proves that power was lost."""
    files = DiskFiles(image.folder)
    file = files.create("synced", 8192)
    file.write_at(0, b"x" * 8192)
    file.sync()
    files.sync_folder("")
    file.write_at(4096, b"y" * 4096)
    unsynced = files.create("unsynced")
    unsynced.write_at(0, b"z" * 4096)
    for opened in (file, unsynced, files):
        opened.close()
    image.lose_power(how)

    files = DiskFiles(image.folder)
    assert files.read("synced") == b"x" * 8192
    left = files.read("unsynced") if files.exists("unsynced") else b""
    files.close()
    assert b"z" not in left
    assert image.losses == 1


@pytest.mark.parametrize("how", Shutdown)
def test_write_durably_survives(image: Ext4Image, how: Shutdown) -> None:
    """A small file that was replaced durably is the new one after the power loss, a renamed one is whole."""
    files = DiskFiles(image.folder)
    for content in (b"one", b"two"):
        write_durably(files, "mark", content)
    files.close()
    image.lose_power(how)
    files = DiskFiles(image.folder)
    assert (files.read("mark"), files.list_folder("")) == (b"two", ["lost+found", "mark"])
    files.close()


def test_many_synced_in_one_round_survive(image: Ext4Image) -> None:
    """A round of more files than are synced one by one (syncfs) is as durable as the others."""
    files = DiskFiles(image.folder)
    opened = [files.create(f"f{n:03}", 4096) for n in range(80)]
    for number, file in enumerate(opened):
        file.write_at(0, bytes([number + 1]) * 4096)
    assert files.sync_many(opened) == [None] * 80
    files.sync_folder("")
    for file in opened:
        file.close()
    files.close()
    image.lose_power()
    files = DiskFiles(image.folder)
    assert [files.read(f"f{n:03}") == bytes([n + 1]) * 4096 for n in range(80)] == [True] * 80
    files.close()


def work(driver: LogDriver, rng: random.Random) -> None:
    """Append, sync, roll and look after the log for a while, and stop anywhere."""
    for _ in range(rng.randint(5, 60)):
        driver.append(rng.choice((1, 1, 3)))
        driver.now_us += 300_000
        if rng.random() < 0.4:
            driver.sync()
        if rng.random() < 0.3:
            driver.upkeep()


def lose_power(driver: LogDriver, image: Ext4Image, how: Shutdown) -> None:
    """Cut the power under the log, and recover over what the kernel has left."""
    driver.log.close(clean=False)
    del driver.log  # with it go the files that it has prepared
    gc.collect()
    driver.files.close()
    image.lose_power(how)
    driver.files = DiskFiles(image.folder)  # type: ignore[assignment]
    log = driver.open(driver.files)
    driver.check_recovered(log, driver.promised_synced)
    driver.check_content(log, recent_only=False)
    driver.promised_written = driver.promised_synced
    driver.adopt(log)


@pytest.mark.parametrize("how", Shutdown)
def test_a_log_survives_the_kernel(image: Ext4Image, how: Shutdown, soak: int) -> None:
    """A log on a real ext4 recovers all it promised, and serves nothing that the next power loss takes."""
    rng = random.Random(how)
    driver = LogDriver(how, SETTINGS, DiskFiles(image.folder))  # type: ignore[arg-type]
    lost = 0
    for _ in range(4 * soak):
        work(driver, rng)
        appended = driver.end
        lose_power(driver, image, how)
        recovered = driver.end
        lost += appended - recovered
        lose_power(driver, image, how)
        assert driver.end == recovered
    assert lost > 0
    driver.log.close()
    driver.files.close()


def fill_disk(folder: Path) -> Path:
    """Take all the space that is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\1" * size)
    return filler


def test_a_full_disk(image: Ext4Image) -> None:
    """A disk that is really full refuses appends, loses nothing, and is written again once there is room."""
    driver = LogDriver(5, SETTINGS, DiskFiles(image.folder))  # type: ignore[arg-type]
    for _ in range(5):
        driver.append()
        driver.sync()
    filler = fill_disk(image.folder)
    for _ in range(40):
        driver.append(size=3000)
        driver.sync()
        driver.upkeep()
        driver.now_us += 1_000_000
    assert driver.refused > 0
    assert not driver.log.fenced
    driver.read_something()
    filler.unlink()
    refused, before = driver.refused, driver.end
    for _ in range(20):
        driver.append(size=3000)
        driver.sync()
        driver.upkeep()
    assert (driver.refused, driver.end > before) == (refused, True)
    assert driver.promised_synced == driver.end
    lose_power(driver, image, Shutdown.AT_ONCE)
    assert driver.end == driver.promised_synced > before
    driver.log.close()
    driver.files.close()
