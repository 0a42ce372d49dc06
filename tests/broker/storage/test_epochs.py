"""An epoch ends where a later one begins, and that bounds what it can have known."""

from __future__ import annotations

import numpy as np

from tidelog.broker.storage.epochs import Epochs


def epochs(*pairs: tuple[int, int]) -> Epochs:
    """Epochs that began at these offsets."""
    found = Epochs()
    for epoch, offset in pairs:
        found.begin(epoch, offset)
    return found


def test_an_epoch_ends_where_any_later_one_begins() -> None:
    """Epochs that left no batch here end at the same place."""
    found = epochs((2, 0), (5, 10), (6, 30))
    assert [found.end_of(epoch, 40) for epoch in (1, 2, 3, 4, 5, 6, 7)] == [0, 10, 10, 10, 30, 40, 40]


def test_every_offset_has_its_epoch() -> None:
    """The epoch that wrote it, 0 where nothing is known."""
    found = epochs((2, 3), (5, 10))
    assert [found.of(offset) for offset in (2, 3, 9, 10, 99)] == [0, 2, 2, 5, 5]


def test_an_epoch_without_a_batch_leaves_no_entry() -> None:
    """Its end is where the next one begins all the same."""
    found = epochs((2, 0), (3, 10), (4, 10))
    assert found.pairs() == [(2, 0), (4, 10)]
    assert found.end_of(3, 50) == 10
    assert found.end_of(2, 50) == 10


def test_epochs_never_go_back() -> None:
    """A lower or equal epoch changes nothing."""
    found = epochs((5, 10), (4, 20), (5, 30))
    assert found.pairs() == [(5, 10)]
    assert found.last == 5


def test_clamp_takes_back_what_a_later_epoch_wrote_over() -> None:
    """A word of epoch 1 about offsets below 100 is worth 60, where epoch 2 began; and never more than the log."""
    found = epochs((1, 0), (2, 60))
    assert found.clamp(1, 100, 90) == 60
    assert found.clamp(1, 50, 90) == 50
    assert found.clamp(2, 100, 90) == 90


def test_a_run_of_batches_begins_its_epochs() -> None:
    """The first batch of each epoch counts."""
    found = epochs((1, 0))
    found.begin_all(np.array([1, 1, 3, 3, 4]), np.array([2, 4, 6, 8, 9]))
    assert found.pairs() == [(1, 0), (3, 6), (4, 9)]


def test_epochs_below_the_start_are_forgotten() -> None:
    """The one that covers the start stays."""
    found = epochs((1, 0), (2, 10), (3, 20))
    found.forget_before(15)
    assert found.pairs() == [(2, 10), (3, 20)]
    found.forget_before(20)
    assert found.pairs() == [(3, 20)]
