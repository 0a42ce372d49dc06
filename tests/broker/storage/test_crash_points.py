"""Kill the process, or cut the power, in every single file operation of a log's life, recovery included."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.helpers.disk_model import Loss
from tests.helpers.power_loss import Crashed, PowerLossFiles

from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings

from .driver import append, open_log, read_values, sync, upkeep

SETTINGS = LogSettings(
    segment_bytes=8192, index_interval_bytes=512, snapshot_interval_bytes=4096, retention_bytes=14_000
)
SECOND_US = 1_000_000


@dataclass
class Story:
    """What was appended and promised so far, outside the process that may die."""

    values: list[bytes] = field(default_factory=list[bytes])
    written: int = 0
    synced: int = 0
    start: int = 0
    now_us: int = 0
    epoch: int = 0

    def open(self, files: PowerLossFiles) -> Log:
        """Open the log as a new process would."""
        self.epoch += 1
        self.now_us += SECOND_US
        log = open_log(files, SETTINGS, epoch=self.epoch, now_us=self.now_us)
        self.note(log)
        return log

    def append(self, log: Log, size: int) -> None:
        """Append one unique value."""
        value = b"%d/%d:" % (self.epoch, len(self.values)) + b"x" * size
        self.values.append(value)
        append(log, value, now_us=self.now_us)
        self.note(log)

    def note(self, log: Log) -> None:
        """Remember what the log promises now."""
        self.written, self.synced, self.start = log.written_offset, log.synced_offset, log.start_offset


def live(files: PowerLossFiles, story: Story) -> None:
    """Do everything that a log does: start, append, roll, sync, upkeep, expire, stop, start again."""
    log = story.open(files)
    for step in range(14):
        story.append(log, 1200)
        if step % 2:
            sync(log)
            story.note(log)
        if step % 3 == 0:
            story.now_us += SECOND_US
            upkeep(log, story.now_us)
        expired = log.expire(story.now_us)
        if expired is not None:
            story.note(log)
            assert expired.run() is None
    log.close()
    log = story.open(files)
    story.append(log, 300)
    log = story.open(files)
    story.append(log, 300)


def check(log: Log, story: Story, promised: int) -> None:
    """Everything promised is there, nothing is damaged, and the rest is a prefix of what was appended."""
    assert promised <= log.end_offset <= len(story.values)
    assert log.damaged == []
    start = log.start_offset
    assert start <= story.start or start <= promised
    assert read_values(log) == story.values[start : log.end_offset]


def crash_points(scenario: Callable[[PowerLossFiles], object]) -> int:
    """Return how many operations a scenario does."""
    files = PowerLossFiles()
    scenario(files)
    return files.operations


def lives(crash_at: int) -> tuple[PowerLossFiles, Story]:
    """Run the whole life until a crash in its n-th operation."""
    files, story = PowerLossFiles(), Story()
    files.crash_at(crash_at, random.Random(crash_at))
    with pytest.raises(Crashed):
        live(files, story)
    return files, story


TOTAL = crash_points(lambda files: live(files, Story()))


def outcomes(files: PowerLossFiles, story: Story, seed: int) -> Iterator[tuple[PowerLossFiles, int]]:
    """Yield what may be found after the crash, with the offset that was promised for it."""
    for loss in (Loss.NOTHING_SURVIVES, Loss.EACH_BY_LOT, Loss.THE_END_IS_LOST):
        yield files.crash(random.Random(seed), pages=loss, names=loss), story.synced
    yield files.kill(), story.written


def test_the_story_is_worth_crashing() -> None:
    """The life that is interrupted rolls, snapshots, expires and copies tails."""
    files = PowerLossFiles()
    live(files, Story())
    assert files.counts["rename"] >= 10
    assert files.counts["sync_folder"] >= 10
    assert files.counts["unlink"] >= 2
    assert TOTAL > 100


@pytest.mark.parametrize("part", range(8))
def test_a_crash_in_any_operation_keeps_every_promise(part: int) -> None:
    """Whatever operation the crash hits, what was promised is read back, and the log goes on."""
    for crash_at in range(1 + part, TOTAL + 1, 8):
        files, story = lives(crash_at)
        for after, promised in outcomes(files, story, crash_at):
            again = Story(list(story.values), start=story.start, now_us=story.now_us, epoch=story.epoch)
            log = again.open(after)
            check(log, again, promised)
            del again.values[log.end_offset :]
            again.append(log, 50)
            sync(log)
            assert read_values(log) == again.values[log.start_offset :]


@pytest.mark.parametrize("part", range(4))
def test_a_crash_in_any_operation_of_recovery_keeps_every_promise(part: int) -> None:
    """Recovery may be interrupted at each of its own steps, twice, and still keeps what was promised."""
    rng = random.Random(part)
    interrupted = 0
    for crash_at in range(5 + part * 3, TOTAL + 1, 12):
        files, story = lives(crash_at)
        for after, promised in outcomes(files, story, crash_at):
            for step in range(1, 200):
                found = after.kill()
                found.crash_at(step, rng)
                again = Story(list(story.values), start=story.start, now_us=story.now_us, epoch=story.epoch)
                try:
                    again.open(found)
                except Crashed:
                    interrupted += 1
                else:
                    break
                if step % 2:
                    check(again.open(found.crash(rng)), again, story.synced)
                else:
                    check(again.open(found.kill()), again, promised)
    assert interrupted > 50
