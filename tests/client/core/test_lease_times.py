"""How long a message waits or is kept, as a program says it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidelog.client.core.lease_times import delay_us, extension_us, visibility_us


def test_durations_are_exact_to_their_limits():
    """Whole microseconds, both limits included; what is left out is left to the broker."""
    assert delay_us(None) == -1
    assert [delay_us(0), delay_us(2.000002), delay_us(timedelta(days=365))] == [0, 2_000_002, 31_536_000_000_000]
    assert extension_us(None) == 0
    assert [extension_us(timedelta(microseconds=1)), extension_us(43_200)] == [1, 43_200_000_000]
    assert [visibility_us(1), visibility_us(timedelta(hours=12))] == [1_000_000, 43_200_000_000]


def test_a_slip_of_the_unit_is_hinted_at():
    """Only where a bare number is too large: 30000 may be milliseconds, 0 and a timedelta are not."""
    with pytest.raises(ValueError, match=r"found 50000; seconds, not milliseconds\?$"):
        visibility_us(50_000)
    with pytest.raises(ValueError, match=r"expected 1 to 43200 seconds \(12 h\), found 0$"):
        visibility_us(0)
    with pytest.raises(ValueError, match=r"found datetime\.timedelta\(days=1\)$"):
        visibility_us(timedelta(days=1))
