"""Random damage to random logs: one flipped bit costs one batch at most, is reported, and is never returned as data.

B bits rot on the disk while the broker is down (after a kill, so that the synced mark is exact) or up; the
log is then read as a consumer does it: what fails its checksum is reported back with `verify`, what is
CORRUPT is passed over.
"""

from __future__ import annotations

import random
import re

import pytest
from tests.helpers.disk_model import PAGE_BYTES
from tests.helpers.log_driver import FOLDER, SMALL, LogDriver, Sent
from tests.helpers.power_loss import PowerLossFiles

from tidelog.broker.errors import CorruptError, InvalidBatchError
from tidelog.broker.storage.log import Log
from tidelog.protocol.batch import HEADER_BYTES, MAGIC, iterate_headers, verify

pytestmark = pytest.mark.crash

SEEDS = range(6)
FLIPS_PER_LOG = 12
Lost = list[tuple[int, int]]
Stored = tuple[int, int, bytes]  # base offset, epoch, what the producer signed


def grown_log(seed: int) -> LogDriver:
    """A log of a few segments, with snapshots and indexes, whose end is synced."""
    driver = LogDriver(seed, SMALL)
    rng = random.Random(seed)
    for _ in range(rng.randint(8, 40)):
        driver.append(rng.choice((1, 2, 4)))
        if rng.random() < 0.5:
            driver.sync()
        if rng.random() < 0.3:
            driver.upkeep()
        driver.now_us += 700_000
    driver.sync()
    driver.sync()
    assert driver.promised_synced == driver.end
    return driver


def used_files(files: PowerLossFiles, folder: str = FOLDER) -> list[str]:
    """Every file that holds anything, those of indexes included."""
    found: list[str] = []
    for name in files.list_folder(folder):
        path = f"{folder}/{name}"
        try:
            found += used_files(files, path)
        except NotADirectoryError:
            found += [path] if files.disk.inode(path).read(0, 1 << 30).strip(b"\0") else []
    return found


def flip(files: PowerLossFiles, path: str, rng: random.Random) -> int:
    """Change one bit that was written, of a batch's header every other time; return its position."""
    inode = files.disk.inode(path)
    content = inode.read(0, inode.size).rstrip(b"\0")
    headers = [match.start() for match in re.finditer(re.escape(MAGIC), content)]
    if headers and rng.random() < 0.5:
        position = rng.choice(headers) + rng.randrange(HEADER_BYTES)
    else:
        position = rng.randrange(len(content))
    inode.memory[position] ^= 1 << rng.randrange(8)
    return position


def read_as_a_consumer(log: Log) -> tuple[list[Stored], Lost]:
    """Return every intact batch, and the ranges that are reported as lost."""
    found: list[Stored] = []
    lost: Lost = []
    offset = log.start_offset
    while offset < log.end_offset:
        try:
            read = log.read(offset, max_bytes=4096)
            batches = intact_batches(read)
        except (CorruptError, InvalidBatchError) as error:
            if "next" not in error.details:  # found by the reader's own check: it asks the broker to look
                task = log.begin_verify(offset, max_bytes=4096)
                task.run()
                assert log.finish_verify(task), f"a bad batch at {offset} passes the broker's own check"
                continue
            start, end, offset = (error.details[name] for name in ("start", "end", "next"))
            assert isinstance(start, int)
            assert isinstance(end, int)
            assert isinstance(offset, int)
            lost.append((start, end))
            continue
        found += batches
        offset = read.next_offset
    return found, lost


def intact_batches(read: object) -> list[Stored]:
    """Take a reply apart, every checksum compared; raises as a client does."""
    found: list[Stored] = []
    for piece in read.slices:  # type: ignore[attr-defined]
        run = piece.file.read_at(piece.position, piece.length)
        for at, header in iterate_headers(run):
            verify(run, at)
            found.append((header.base_offset, header.leader_epoch, run[at + 56 : at + header.batch_length]))
    return found


def check_contained(log: Log, sent: list[Sent], most: int) -> None:
    """All that can be read is as it was sent; at most so many batches cannot, and those are reported."""
    found, lost = read_as_a_consumer(log)
    expected = {batch.base_offset: batch for batch in sent if batch.base_offset >= log.start_offset}
    assert found == [
        (base, expected[base].epoch, expected[base].body) for base, _epoch, _body in found if base in expected
    ]
    missing = sorted(expected.keys() - {base for base, _epoch, _body in found})
    assert len(missing) <= most, f"{most} bits cost the batches {missing}"
    reported = {offset for start, end in lost for offset in range(start, end)}
    gone = {offset for base in missing for offset in range(base, expected[base].end_offset)}
    assert reported == gone


@pytest.mark.parametrize("seed", SEEDS)
def test_one_bit_costs_one_batch_at_most(seed: int, soak: int) -> None:
    """A bit that flips while the broker is down costs the batch it is in, and nothing where it is in none."""
    driver = grown_log(seed)
    rng = random.Random(seed)
    for _ in range(FLIPS_PER_LOG * soak):
        files = PowerLossFiles(driver.files.disk.copy())
        path = rng.choice(used_files(files))
        flip(files, path, rng)
        log = driver.open(files)
        assert log.end_offset == driver.end
        check_contained(log, driver.sent, most=1 if path.endswith(".log") else 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_bit_in_a_running_log(seed: int, soak: int) -> None:
    """A bit that flips under a running broker is found by whoever reads it, and costs one batch at most."""
    driver = grown_log(seed)
    rng = random.Random(seed)
    for _ in range(FLIPS_PER_LOG * soak):
        files = PowerLossFiles(driver.files.disk.copy())
        log = driver.open(files)
        read_as_a_consumer(log)
        path = rng.choice([path for path in used_files(files) if path.endswith(".log")])
        flip(files, path, rng)
        check_contained(log, driver.sent, most=1)


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_remembered_by_the_bytes(seed: int, soak: int) -> None:
    """Damage stays reported and contained over later appends, tail copies, kills and power losses."""
    driver = grown_log(seed)
    rng = random.Random(seed)
    sealed_or_not = [path for path in used_files(driver.files) if path.endswith(".log")]
    flip(driver.files, rng.choice(sealed_or_not), rng)
    files = driver.files.kill()
    for _ in range(3 * soak):
        driver.files, driver.log = files, driver.open(files)
        assert driver.log.end_offset == driver.end
        check_contained(driver.log, driver.sent, most=1)
        for _ in range(rng.randint(1, 8)):
            driver.append()
        driver.note_marks()
        if rng.random() < 0.5:
            driver.sync()
            driver.upkeep()
        files = driver.files.kill()
        driver.sent = [batch for batch in driver.sent if batch.end_offset <= driver.log.written_offset]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_page_that_reads_as_zeros(seed: int) -> None:
    """A page that comes back as zeros is damage where it was synced: what lies behind it is still there."""
    driver = grown_log(seed)
    rng = random.Random(seed)
    for path in [path for path in used_files(driver.files) if path.endswith(".log")]:
        content = driver.files.read(path).rstrip(b"\0")
        pages = len(content) // PAGE_BYTES
        for page in {1, rng.randrange(1, max(pages, 2))}:
            zeroed = slice(page * PAGE_BYTES, (page + 1) * PAGE_BYTES)
            if page >= pages:
                continue
            files = PowerLossFiles(driver.files.disk.copy())
            files.disk.inode(path).memory[zeroed] = bytes(PAGE_BYTES)
            log = driver.open(files)
            assert log.end_offset == driver.end
            check_contained(log, driver.sent, most=1 + content[zeroed].count(MAGIC))
            assert log.damaged != []
