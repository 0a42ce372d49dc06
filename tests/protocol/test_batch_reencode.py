"""A batch with some of its records: what a broker stores when it leaves out duplicates."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import batches
from tests.helpers.batches import Record

from tidelog.protocol import batch
from tidelog.protocol.batch import Attributes, BatchHeader, Codec, RoutingColumns
from tidelog.protocol.columns import RETRY
from tidelog.protocol.errors import InvalidBatchError
from tidelog.protocol.limits import MAX_BATCH_PAYLOAD_BYTES

DATA = st.none() | st.binary(max_size=8)
RECORDS = st.lists(
    st.tuples(
        DATA,
        DATA,
        st.lists(st.tuples(st.text(max_size=3).filter(lambda name: not name.startswith("tidelog.")), DATA), max_size=2),
        st.integers(-9, 9),
        st.binary(min_size=16, max_size=16),
        st.booleans(),
    ),
    min_size=1,
    max_size=8,
)


@given(records=RECORDS, codec=st.sampled_from(Codec))
def test_the_records_that_are_kept_are_as_they_were(records: list[tuple], codec: Codec):
    """Every column keeps its entries, and the batch is whole: checksum, structure, sequence, flag."""
    ids = [record[4] for record in records]
    sent = batch.encode_batch(
        [record[0] for record in records],
        keys=[record[1] for record in records],
        headers=[record[2] for record in records],
        timestamps_us=[record[3] for record in records],
        priority=7,
        codec=codec,
        producer_id=5,
        producer_epoch=6,
        base_sequence=7,
        routing=RoutingColumns(
            dedup_ids=np.frombuffer(b"".join(ids), dtype="V16"),
            retries=np.array([(row + 1, 3, 20, 2_000, 5, row + 5) for row in range(len(records))], dtype=RETRY),
        ),
    )
    kept = np.array([record[5] for record in records])
    made = batch.reencode(sent, kept, max_payload_bytes=MAX_BATCH_PAYLOAD_BYTES)
    assert batch.verify_body(made)
    found, header = batch.decode_batch(made), BatchHeader.read(made)
    assert (header.priority, header.producer_id, header.producer_epoch, header.base_sequence) == (7, 5, 6, 7)
    assert header.attributes & Attributes.REENCODED
    expected = [record for record in records if record[5]]
    if not expected:
        assert (len(made), header.is_control, len(found)) == (112, True, 0)
        return
    assert not header.is_control
    assert batches.decoded(made) == [Record(value, key, pairs, time) for value, key, pairs, time, _, _ in expected]
    assert found.routing.dedup_ids is not None
    assert found.routing.dedup_ids.tolist() == [record[4] for record in expected]
    assert found.routing.retries is not None
    assert found.routing.retries["max_attempts"].tolist() == (np.flatnonzero(kept) + 1).tolist()
    assert found.routing.retries["max_ms"].tolist() == (np.flatnonzero(kept) + 5).tolist()


def test_compression_is_kept():
    """What was worth compressing is compressed again."""
    sent = batch.encode_batch([b"a" * 4_000, b"b" * 4_000], timestamp_us=1, codec=Codec.ZSTD)
    made = batch.reencode(sent, np.array([False, True]), max_payload_bytes=MAX_BATCH_PAYLOAD_BYTES)
    assert (BatchHeader.read(made).codec, len(made) < 1_000) == (Codec.ZSTD, True)
    assert batch.decode_batch(made).values.to_list() == [b"b" * 4_000]


def test_a_producer_cannot_say_that_something_was_left_out():
    """The flag is the broker's: under it a checksum is not compared."""
    data = batch.encode_batch([b""], timestamp_us=0, flags=Attributes.REENCODED)
    with pytest.raises(InvalidBatchError, match="found what only a broker writes: reencoded"):
        batch.check_from_producer(data)
