"""Encode and decode the frames of the wire."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tidelog.protocol.frames import decode_frame, encode_head, frame_bytes

CONTROL = bytes(range(60))


def test_encode_head(benchmark: BenchmarkFixture) -> None:
    """A header and control are put together."""
    head = benchmark(lambda: encode_head(3, 0, 12345, CONTROL, 100_000))
    assert frame_bytes(memoryview(head), 1 << 20) == len(head) + 100_000


@pytest.mark.parametrize("bulk_bytes", [0, 100_000])
def test_decode_frame(benchmark: BenchmarkFixture, bulk_bytes: int) -> None:
    """A frame is taken apart, without a copy of its bulk."""
    data = memoryview(encode_head(3, 0, 12345, CONTROL, bulk_bytes) + bytes(bulk_bytes))
    frame = benchmark(lambda: decode_frame(data))
    assert (frame.api, frame.correlation_id, bytes(frame.control), len(frame.bulk)) == (3, 12345, CONTROL, bulk_bytes)
