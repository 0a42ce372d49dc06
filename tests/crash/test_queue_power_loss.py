"""Queue groups over a disk that loses power: every frame decided by lot, the machine gone at any file operation, the disk
full and the wall clock wrong now and then.

A life is in `queue_life`; everything in it follows from the seed in the test's id.
"""

from __future__ import annotations

import pytest
from tests.helpers.queue_history import Final, QueueHistory
from tests.helpers.queue_life import QueueLife
from tests.helpers.queue_life_end import copies_amiss
from tests.helpers.queue_rules import violations

pytestmark = pytest.mark.crash

SEEDS = range(6)
LIVES = 4
ENDED = ("acknowledged", "dead-lettered")


@pytest.mark.parametrize("seed", SEEDS)
def test_queue_groups_that_lose_power(seed: int, soak: int) -> None:
    """Whatever was under way when the broker died, and however often: acknowledged stays acknowledged, attempts are
    what was counted, repeats are answered as the first time, and everything else is delivered in the end."""
    crashes = repeats = refused = late = grants = failed_syncs = full = steps = letters = 0
    for number in range(LIVES * soak):
        life = QueueLife(seed + len(SEEDS) * number)
        life.run()
        history = QueueHistory(life.events)
        assert violations(history) == []
        assert copies_amiss(life) == []
        open_ones = [final for final in life.events if isinstance(final, Final) and final.state not in ENDED]
        assert open_ones == []
        crashes += life.crashes
        repeats += life.book.repeats
        refused += life.book.refused
        grants += life.book.grants
        late += life.late
        failed_syncs += life.failed_syncs
        full += sum(fault.fired for fault in life.full)
        steps += life.steps
        letters += sum(isinstance(event, Final) and event.state == "dead-lettered" for event in life.events)
    assert crashes > LIVES * soak
    assert repeats > 0
    assert refused > 0
    assert late > 0
    assert failed_syncs > 0
    assert full > 0
    assert steps > 0
    assert letters > 0
    assert grants > 25 * LIVES * soak
