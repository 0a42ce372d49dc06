"""Checking a request in pieces: the same verdict as at once, and never much more than the budget at a time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.broker_core import batch, joined

from tidelog.broker.batch_check import BATCH_COST, BatchCheck
from tidelog.protocol.errors import InvalidBatchError
from tidelog.protocol.limits import BatchLimits


def checked(view: memoryview, budget: int | None) -> BatchCheck:
    """Check to the end, `budget` at a time."""
    check = BatchCheck(view, BatchLimits())
    while not check.is_done:
        check.run(budget)
    return check


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 50_000), min_size=1, max_size=8), bad=st.none() | st.integers(0, 7))
def test_in_pieces_as_at_once(sizes: list[int], bad: int | None) -> None:
    """Wherever the budget stops the check, the good batches and the refusal are those of one run."""
    batches = [batch(bytes(size)) for size in sizes]
    if bad is not None and bad < len(batches):
        batches[bad][60] ^= 1
    view = joined(*batches)
    # Enough for one batch, also for one whose flipped bit says that it is compressed; less would never end.
    whole, pieces = checked(view, None), checked(view, 120_000)
    good = len(batches) if bad is None else min(bad, len(batches))
    assert len(whole.headers) == len(pieces.headers) == good
    assert whole.headers == pieces.headers
    assert whole.good_bytes == pieces.good_bytes == sum(len(one) for one in batches[:good])
    assert type(whole.refused) is type(pieces.refused)


def test_the_budget_counts_batches_too() -> None:
    """Tiny batches cost their share: a budget for four of them checks four."""
    check = BatchCheck(joined(*[batch(b"")] * 10), BatchLimits())
    check.run(4 * (BATCH_COST + len(batch(b""))))
    assert len(check.headers) == 4
    assert not check.is_done


@pytest.mark.parametrize("junk", [b"\0", bytes(111), bytes(200)])
def test_a_tail_that_is_no_batch_is_refused(junk: bytes) -> None:
    """Bytes after the last whole batch are refused; the batches before them are good."""
    check = BatchCheck(joined(batch(b"a"), memoryview(junk)), BatchLimits())
    check.run()
    assert len(check.headers) == 1
    assert isinstance(check.refused, InvalidBatchError)
