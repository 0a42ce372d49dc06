"""Encode, decode and verify record batches."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tidelog.client.message_batch import MessageBatch
from tidelog.protocol.batch import Codec, check_from_producer, decode_batch, encode_batch, verify_body

from .content import values_of

SHAPES = [(1, 100), (1_000, 100), (1_000, 1_000)]
CODECS = [Codec.NONE, Codec.ZSTD]

shapes = pytest.mark.parametrize(("count", "size"), SHAPES)
codecs = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


@shapes
@codecs
def test_encode(benchmark: BenchmarkFixture, count: int, size: int, codec: Codec) -> None:
    """A batch is encoded from values."""
    values = values_of(count, size)
    batch = benchmark(lambda: encode_batch(values, timestamp_us=7, codec=codec))
    assert list(decode_batch(batch).values) == values


@shapes
@codecs
def test_decode(benchmark: BenchmarkFixture, count: int, size: int, codec: Codec) -> None:
    """A batch is decoded into columns."""
    values = values_of(count, size)
    batch = encode_batch(values, timestamp_us=7, codec=codec)
    assert list(benchmark(lambda: decode_batch(batch)).values) == values


@shapes
def test_values_of_a_column(benchmark: BenchmarkFixture, count: int, size: int) -> None:
    """A column becomes a list of bytes."""
    values = values_of(count, size)
    column = decode_batch(encode_batch(values, timestamp_us=7)).values
    assert benchmark(lambda: list(column)) == values


@shapes
def test_verify(benchmark: BenchmarkFixture, count: int, size: int) -> None:
    """A body's checksum is computed and compared."""
    batch = encode_batch(values_of(count, size), timestamp_us=7)
    assert benchmark(lambda: verify_body(batch)) is True


@shapes
def test_messages(benchmark: BenchmarkFixture, count: int, size: int) -> None:
    """A batch becomes one object for each message."""
    values = values_of(count, size)
    records = decode_batch(encode_batch(values, timestamp_us=7))
    messages = benchmark(lambda: MessageBatch("t", 1, 0, records).messages())
    assert [message.value for message in messages] == values
    assert [message.offset for message in messages] == list(range(count))


@shapes
def test_check_from_producer(benchmark: BenchmarkFixture, count: int, size: int) -> None:
    """The broker checks every byte of a batch's structure."""
    batch = encode_batch(values_of(count, size), timestamp_us=7)
    assert benchmark(lambda: check_from_producer(batch)).record_count == count
