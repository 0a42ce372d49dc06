"""What befalls a life of queue groups beside crashes: syncs that fail, a disk that is full, a wall clock that is wrong."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from .broker_core import SECOND
from .queue_history import Stepped

if TYPE_CHECKING:
    from .queue_life import QueueLife

STEPS_US = (-3_600 * SECOND, 365 * 86_400 * SECOND)
"""By how much the wall clock is set wrong."""


def fail_syncs(life: QueueLife) -> None:
    """Let some syncs of a round fail; a broker with a fenced log is killed and started again."""
    before = life.files.failed_syncs
    life.files.fail_syncs(lambda path: path.startswith("partitions") and life.rng.random() < 0.5)
    if life.core.begin_round():
        life.core.finish_round()
    life.files.fail_syncs(None)
    life.failed_syncs += life.files.failed_syncs - before
    life.harvest()
    if any(one.is_fenced or one.delivery.is_fenced for one in life.partitions):
        life.restart(power=False)


def fill_disk(life: QueueLife) -> None:
    """Let the next writes to delivery logs find no room, or room for their first bytes."""
    times, keep = life.rng.choice((1, 3)), life.rng.choice((0, 0, 40))
    life.full.append(life.faulty.fail("write_at", errno.ENOSPC, path="*/delivery/0*", times=times, keep=keep))


def step_clock(life: QueueLife) -> None:
    """Set the wall clock back, or far forward."""
    by_us = life.rng.choice(STEPS_US)
    life.steps += 1
    life.core.clock.step_wall(by_us)
    life.note(Stepped(by_us=by_us))
