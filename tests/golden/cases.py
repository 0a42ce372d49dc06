"""How each golden file was made.

`python -m tests.golden.cases` writes the files that are missing and touches no other: a file is what some broker's
disk or some other client holds, so a difference is a broken format, not an outdated file. Only a struct that gains a
trailing field makes other bytes by right: then the case takes a new name, and the old file stays, to be decoded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard

from tidelog.protocol import batch, messages
from tidelog.protocol.api import Api
from tidelog.protocol.batch import Attributes, RoutingColumns
from tidelog.protocol.columns import RETRY
from tidelog.protocol.errors import LeaseLostError, OffsetOutOfRangeError, RedriveLimitError
from tidelog.protocol.frames import Flags, encode_head
from tidelog.protocol.messages import Message
from tidelog.protocol.offset_ranges import pack_ranges
from tidelog.protocol.segment_header import LogKind, SegmentHeader, encode_segment_header

FOLDER = Path(__file__).parent
TIME_US = 1_736_866_800_000_000  # 2025-01-14T15:00:00Z


def plain_batch() -> bytes:
    """Two values, one time, as a producer sends them."""
    return bytes(batch.encode_batch([b"hello", b"tidelog"], timestamp_us=TIME_US))


def full_batch() -> bytes:
    """Every payload column with its nulls, from an idempotent producer."""
    return bytes(
        batch.encode_batch(
            [b"v1", None, b""],
            keys=[None, b"k2", b""],
            headers=[[("source", b"web"), ("source", None)], [], [("ключ🔑", b"\xff")]],
            timestamps_us=[TIME_US, -1, TIME_US + 1],
            priority=7,
            producer_id=0x0102030405060708,
            producer_epoch=9,
            base_sequence=10,
        )
    )


def stored_batch() -> bytes:
    """The plain batch as a broker stores it: offset 1000, epoch 3, at position 4096 of a segment with seed 0xDEADBEEF."""
    data = bytearray(plain_batch())
    batch.stamp_leader(data, 0, base_offset=1000, append_time_us=TIME_US + 5, leader_epoch=3)
    batch.stamp_local(data, 0, synced_upto=990, segment_seed=0xDEADBEEF, segment_position=4096)
    return bytes(data)


def routed_batch() -> bytes:
    """Every routing column and every flag that no column implies but CONTROL."""
    routing = RoutingColumns(
        deliver_at_us=np.array([TIME_US, 0]),
        dedup_ids=np.frombuffer(bytes(range(16)) + bytes(16), dtype="V16"),
        schedule_names=[b"reminder:o-1", b""],
        retries=np.array([(4, 1, 20, 2000, 1000, 600_000), (0,) * 6], dtype=RETRY),
        origin_logs=np.array([5 << 32 | 3 << 2 | 1, 0]),
        origin_offsets=np.array([77, 0]),
        offset_deltas=np.array([0, 4], dtype=np.int32),
    )
    flags = Attributes.STAGED | Attributes.TRANSACTIONAL | Attributes.REENCODED
    return bytes(batch.encode_batch([b"a", b"b"], timestamp_us=TIME_US, routing=routing, flags=flags))


def control_batch() -> bytes:
    """A batch without records, which keeps a sequence alive."""
    return bytes(
        batch.encode_batch([], control=True, timestamp_us=TIME_US, producer_id=5, producer_epoch=1, base_sequence=8)
    )


def segment_header_copy() -> bytes:
    """One of the two copies of a segment's header page."""
    header = SegmentHeader(
        log_id=5 << 32 | 3 << 2 | 1,
        base_offset=1000,
        seed=0xDEADBEEF,
        kind=LogKind.MESSAGES,
        max_unsynced_bytes=1 << 28,
    )
    return encode_segment_header(header)[:48]


def _request(message: Message, correlation_id: int, bulk: bytes = b"") -> bytes:
    api = messages.api_of(message)
    return encode_head(api, Flags.NONE, correlation_id, messages.encode(message), len(bulk)) + bulk


def _reply(api: Api, message: Message, correlation_id: int, bulk: bytes = b"") -> bytes:
    return encode_head(api, Flags.REPLY, correlation_id, messages.encode(message), len(bulk)) + bulk


def hello_request() -> bytes:
    """The first frame of a connection."""
    return _request(messages.Hello("golden", "1.0"), 1)


def hello_reply() -> bytes:
    """Its answer."""
    limits = messages.BrokerLimits(1 << 26, 1 << 24, 1 << 25, 3 << 24, 256, 60_000_000, 600_000_000)
    return _reply(Api.HELLO, messages.HelloReply("0.1.0", "node-1", TIME_US, limits), 1)


def metadata_request() -> bytes:
    """A producer's question for a topic that may not exist yet."""
    return _request(messages.Metadata(["default/orders"], auto_create=True), 2)


def produce_request() -> bytes:
    """The plain batch on its way to partition 3 of topic 5, to be answered when synced."""
    return _request(messages.Produce(5, 3, durability=3), 3, plain_batch())


def deduped_reply() -> bytes:
    """The receipt of three records, of which the second was left out: its dedup id was known."""
    result = messages.BatchResult(1000, TIME_US + 5, 2, duplicates=[(1, 998)], first_append_times_us=[TIME_US - 7])
    return _reply(Api.PRODUCE, messages.ProduceReply(4, 3, [result]), 3)


def archived_request() -> bytes:
    """A long poll for one partition, the archive included."""
    fetch = messages.Fetch([messages.FetchPosition(5, 3, 1000, epoch=3)], max_wait_us=500_000, archived=True)
    return _request(fetch, 4)


def fetch_reply() -> bytes:
    """The stored batch, as sendfile ships it."""
    result = messages.FetchResult(5, 3, 1002, 900, 1002, len(stored_batch()))
    return _reply(Api.FETCH, messages.FetchReply(4, [result]), 4, stored_batch())


def acquire_request() -> bytes:
    """A member asks for work, says what it handed over, and what it still holds after a reconnect."""
    handed = messages.LeaseRanges(5, 3, 7 << 40 | 1, pack_ranges([(990, 992)]))
    acquire = messages.Acquire(
        9, 2, 0x0102030405060708, [5], 100, max_wait_us=500_000, hand_overs=[handed], held=[7 << 40 | 1]
    )
    return _request(acquire, 6)


def mixed_reply() -> bytes:
    """One lease on the stored batch; its second record was tried before, and is handed out by itself."""
    error = messages.SettleError("ValueError", "boom", "line 3")
    attempts = messages.Attempts(pack_ranges([(1001, 1002)]), 1, TIME_US, error)
    grant = messages.Grant(5, 3, 7 << 40 | 2, pack_ranges([(1000, 1002)]), 30_000_000, len(stored_batch()), [attempts])
    order = [messages.Portion(0, 1), messages.Portion(0, 1)]
    return _reply(Api.ACQUIRE, messages.AcquireReply(4, [grant], order=order), 6, stored_batch())


def settle_request() -> bytes:
    """One record acknowledged, the other given back in ten seconds, why, and a lease renewed."""
    error = messages.SettleError("ValueError", "boom")
    items = [
        messages.SettleItem(5, 3, 7 << 40 | 2, messages.Settling.ACCEPT, pack_ranges([(1000, 1001)])),
        messages.SettleItem(
            5, 3, 7 << 40 | 2, messages.Settling.RELEASE, pack_ranges([(1001, 1002)]), 10_000_000, error=error
        ),
        messages.SettleItem(5, 3, 7 << 40 | 1, messages.Settling.RENEW, duration_us=60_000_000),
    ]
    return _request(messages.Settle(9, 2, 0x0102030405060708, 12, items), 7)


def settle_reply() -> bytes:
    """Done, done, and a lease that was lost."""
    lost = messages.ErrorInfo.of(LeaseLostError("expected a lease, found none", lease=7 << 40 | 1))
    return _reply(Api.SETTLE, messages.SettleReply([None, None, lost]), 7)


def error_reply() -> bytes:
    """A refused request."""
    error = OffsetOutOfRangeError("expected an offset from 900 to 1002, found 5", start=900, end=1002)
    return encode_head(Api.LIST_OFFSETS, Flags.REPLY | Flags.ERROR, 5, messages.encode_error(error), 0)


def dead_letters_reply() -> bytes:
    """Three pending dead letters, of more."""
    return _reply(Api.DEAD_LETTERS, messages.DeadLettersReply(4, pack_ranges([(3, 5), (9, 10)]), 12, 10), 7)


def redrive_request() -> bytes:
    """Two of them, to be published anew however often they were."""
    return _request(messages.Redrive(6, 3, pack_ranges([(3, 5)]), as_new=True, max_redrives=9), 8)


def redrive_reply() -> bytes:
    """One each that was made available, was brought back before, and was refused."""
    error = RedriveLimitError("expected at most 3 redrives, found 3", limit=3)
    refusal = messages.RedriveRefusal(pack_ranges([(9, 10)]), messages.ErrorInfo.of(error))
    reply = messages.RedriveReply(pack_ranges([(3, 4)]), passed=pack_ranges([(4, 5)]), refused=[refusal])
    return _reply(Api.REDRIVE, reply, 8)


def attempts_reply() -> bytes:
    """An attempt that failed, and what came of it."""
    failed = messages.AttemptInfo(
        "failed",
        1,
        TIME_US,
        TIME_US + 9,
        0x1122334455667788,
        1_000_000,
        messages.SettleError("ValueError", "no account"),
    )
    reply = messages.MessageAttemptsReply([failed, messages.AttemptInfo("dead-lettered", ended_us=TIME_US + 20)])
    return _reply(Api.ATTEMPTS, reply, 9)


DECODED_ONLY = {"zstd_batch", "produce_reply", "fetch_request", "acquire_reply"}
"""Files whose bytes another zstd, or a struct that gained fields since, would make differently."""

CASES: dict[str, Callable[[], bytes]] = {
    make.__name__: make
    for make in (
        plain_batch,
        full_batch,
        stored_batch,
        routed_batch,
        control_batch,
        segment_header_copy,
        hello_request,
        hello_reply,
        metadata_request,
        produce_request,
        deduped_reply,
        archived_request,
        fetch_reply,
        acquire_request,
        mixed_reply,
        settle_request,
        settle_reply,
        dead_letters_reply,
        redrive_request,
        redrive_reply,
        attempts_reply,
        error_reply,
    )
}


def zstd_batch() -> bytes:
    """Values under zstd. Only its decoding is fixed: another zstd version may choose other bytes for the same."""
    values = [b"line %d of a log that repeats itself" % at for at in range(20)]
    data = bytes(batch.encode_batch(values, timestamp_us=TIME_US, codec=batch.Codec.ZSTD))
    assert data[112:116] == zstandard.FRAME_HEADER
    return data


def read(name: str) -> bytes:
    """Return the bytes of a golden file: hexadecimal, an offset before each line."""
    lines = (FOLDER / f"{name}.hex").read_text(encoding="ascii").splitlines()
    return bytes.fromhex("".join(line.partition(":")[2] for line in lines))


def write(name: str, data: bytes) -> None:
    """Write a golden file, unless there is one."""
    path = FOLDER / f"{name}.hex"
    if not path.exists():
        rows = (f"{at:5}: {data[at : at + 16].hex(' ', -4)}\n" for at in range(0, len(data), 16))
        path.write_text("".join(rows), encoding="ascii")


if __name__ == "__main__":
    for case, make_case in {**CASES, "zstd_batch": zstd_batch}.items():
        write(case, make_case())
