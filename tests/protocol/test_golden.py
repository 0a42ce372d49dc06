"""The bytes on disks and wires, exactly."""

import pytest
from tests.golden import cases
from tests.helpers import batches
from tests.helpers.batches import Record

from tidelog.protocol import batch
from tidelog.protocol.batch import Codec
from tidelog.protocol.connection import ServerConnection
from tidelog.protocol.frames import decode_frame
from tidelog.protocol.messages import (
    AcquireReply,
    BatchResult,
    Fetch,
    FetchPosition,
    Portion,
    ProduceReply,
    SettleError,
    SettleReply,
    decode_error,
    decode_reply,
    decode_request,
)
from tidelog.protocol.offset_ranges import iter_ranges

TIME_US = 1_736_866_800_000_000


@pytest.mark.parametrize("name", list(cases.CASES))
def test_encoders_make_the_golden_bytes(name: str):
    """Same input, same bytes, for ever."""
    assert cases.CASES[name]().hex(" ", 8) == cases.read(name).hex(" ", 8)


def test_every_golden_file_has_a_case():
    """No file is left that no test reads."""
    assert {path.stem for path in cases.FOLDER.glob("*.hex")} == {*cases.CASES} | cases.DECODED_ONLY


def test_golden_batches_decode_to_what_they_were_made_of():
    """What some disk holds is read as it was meant."""
    assert batches.decoded(cases.read("plain_batch")) == [
        Record(b"hello", timestamp_us=TIME_US),
        Record(b"tidelog", timestamp_us=TIME_US),
    ]
    assert batches.decoded(cases.read("full_batch")) == [
        Record(b"v1", None, [("source", b"web"), ("source", None)], TIME_US),
        Record(None, b"k2", [], -1),
        Record(b"", b"", [("ключ🔑", b"\xff")], TIME_US + 1),
    ]
    stored = cases.read("stored_batch")
    batch.verify(stored, 0, segment_seed=0xDEADBEEF, segment_position=4096)
    assert batch.decode_batch(stored).offsets.tolist() == [1000, 1001]
    routed = batch.decode_batch(cases.read("routed_batch"))
    assert routed.offsets.tolist() == [0, 4]
    assert list(routed.routing.schedule_names or ()) == [b"reminder:o-1", b""]
    assert len(batch.decode_batch(cases.read("control_batch"))) == 0


def test_the_golden_compressed_batch_decodes():
    """A batch that an earlier zstd wrote is read by this one."""
    data = cases.read("zstd_batch")
    assert batch.check_from_producer(data).codec == Codec.ZSTD
    expected = [b"line %d of a log that repeats itself" % at for at in range(20)]
    assert batch.decode_batch(data).values.to_list() == expected


@pytest.mark.parametrize(
    "name",
    ["hello_request", "metadata_request", "produce_request", "fetch_request", "acquire_request", "settle_request"],
)
def test_golden_requests_decode_and_encode_again(name: str):
    """A request of another client is read whole, its bulk included."""
    frame = decode_frame(memoryview(cases.read(name)))
    request = decode_request(frame.api, frame.control)
    assert type(request).__name__.lower() == name.removesuffix("_request")
    assert bytes(frame.bulk) == (cases.read("plain_batch") if name == "produce_request" else b"")


@pytest.mark.parametrize("name", ["hello_reply", "produce_reply", "fetch_reply", "acquire_reply", "settle_reply"])
def test_golden_replies_decode(name: str):
    """A reply of another broker is read whole, its bulk included."""
    frame = decode_frame(memoryview(cases.read(name)))
    assert frame.is_reply
    assert type(decode_reply(frame.api, frame.control)).__name__.lower() == name.replace("_", "")
    assert bytes(frame.bulk) == (cases.read("stored_batch") if name in ("fetch_reply", "acquire_reply") else b"")


def test_a_golden_fetch_tells_of_the_archive():
    """A fetch that reads the archive too, and one from before there was any, which does not."""
    with_archive, plain = (decode_frame(memoryview(cases.read(name))) for name in ("archived_request", "fetch_request"))
    position = FetchPosition(5, 3, 1000, epoch=3)
    assert decode_request(with_archive.api, with_archive.control) == Fetch(
        [position], max_wait_us=500_000, archived=True
    )
    assert decode_request(plain.api, plain.control) == Fetch([position], max_wait_us=500_000, archived=False)


def test_a_golden_receipt_tells_what_was_left_out():
    """A receipt of a batch with a known dedup id, and one from before there were any."""
    left_out, plain = (decode_frame(memoryview(cases.read(name))) for name in ("deduped_reply", "produce_reply"))
    assert decode_reply(left_out.api, left_out.control) == ProduceReply(
        4, 3, [BatchResult(1000, TIME_US + 5, 2, False, [(1, 998)], None, [TIME_US - 7])]
    )
    assert decode_reply(plain.api, plain.control) == ProduceReply(4, 3, [BatchResult(1000, TIME_US + 5, 2)])


def test_a_golden_lease_and_its_settle_tell_all_of_it():
    """What was leased and tried before, and one result an item."""
    leased, settled = (decode_frame(memoryview(cases.read(name))) for name in ("acquire_reply", "settle_reply"))
    reply = decode_reply(leased.api, leased.control)
    assert isinstance(reply, AcquireReply)
    assert (reply.grants[0].lease, [*iter_ranges(reply.grants[0].ranges)]) == (7 << 40 | 2, [(1000, 1002)])
    assert reply.grants[0].attempts[0].error == SettleError("ValueError", "boom", "line 3")
    assert reply.order == []
    mixed = decode_frame(memoryview(cases.read("mixed_reply")))
    ordered = decode_reply(mixed.api, mixed.control)
    assert isinstance(ordered, AcquireReply)
    assert (ordered.grants, ordered.order) == (reply.grants, [Portion(0, 1), Portion(0, 1)])
    results = decode_reply(settled.api, settled.control)
    assert isinstance(results, SettleReply)
    assert [result and result.error().code for result in results.results] == [None, None, "LEASE_LOST"]


def test_the_golden_error_is_typed():
    """An error frame becomes its own class, with details."""
    frame = decode_frame(memoryview(cases.read("error_reply")))
    error = decode_error(frame.control)
    assert frame.is_error
    assert (error.code, error.details) == ("OFFSET_OUT_OF_RANGE", {"start": 900, "end": 1002})


def test_a_broker_understands_the_golden_hello():
    """The first frame of another client opens a connection."""
    server = ServerConnection()
    hello = cases.read("hello_request")
    room = server.buffer.writable()
    room[: len(hello)] = hello
    room.release()
    server.buffer.received(len(hello))
    request = server.next_request()
    assert request is not None
    assert (request.api, request.correlation_id, request.problem) == (1, 1, None)
