"""A topic of single-message batches whose priorities take turns: what makes an index of lanes as large as it gets.

A client puts messages together, so the batches are made here, and many go out in one request.
"""

from __future__ import annotations

import time
from collections import deque

from tidelog import Client
from tidelog.client.blocking.connection import Call, Connection
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.batch_header import stamp_body
from tidelog.protocol.durability import Durability
from tidelog.protocol.messages import Produce, ProduceReply

from ..errors import VerificationError

PRIORITIES = (9, 4, 0)
"""Of one message after the other, again and again."""

VALUE_BYTES = 1_024
AT_ONCE = 1_500
"""Batches of one request, a multiple of the priorities."""

IN_FLIGHT = 4
_ANSWER_SECONDS = 60.0
_NAME_BYTES = 12


def place_name(offset: int) -> bytes:
    """Return what a value begins with."""
    return b"%0*d" % (_NAME_BYTES, offset)


class SingleBatches:
    """Makes the batches of one topic, in the order of their offsets."""

    def __init__(self) -> None:
        filler = bytes(VALUE_BYTES)
        now_us = time.time_ns() // 1_000
        singles = [
            encode_batch([place_name(0) + filler[_NAME_BYTES:]], timestamp_us=now_us, priority=priority)
            for priority in PRIORITIES
        ]
        (self.batch_bytes,) = {len(single) for single in singles}
        self._value_at = singles[0].index(place_name(0))
        self._pattern = b"".join(singles) * (AT_ONCE // len(PRIORITIES))

    def from_offset(self, offset: int) -> bytearray:
        """Return the next request's batches back to back."""
        data = bytearray(self._pattern)
        for position in range(0, len(data), self.batch_bytes):
            at = position + self._value_at
            data[at : at + _NAME_BYTES] = place_name(offset)
            stamp_body(data, position, self.batch_bytes)
            offset += 1
        return data


def fill(client: Client, topic_id: int, batches: SingleBatches, start: int, size: int) -> int:
    """Append batches from an offset on until they make so many bytes; return the end offset. Raises VerificationError
    when one is stored elsewhere."""
    connection = client.open_session().link.connection(client.deadline(_ANSWER_SECONDS))
    calls: deque[tuple[int, Call]] = deque()
    end, left = start, size
    while left > 0:
        # The last one waits for the disk, and with it all before.
        durability = Durability.WRITTEN if left > AT_ONCE * batches.batch_bytes else Durability.SYNCED
        call = connection.send(Produce(topic_id, 0, durability=durability), batches.from_offset(end))
        calls.append((end, call))
        end += AT_ONCE
        left -= AT_ONCE * batches.batch_bytes
        if len(calls) == IN_FLIGHT:
            _check_stored(connection, *calls.popleft())
    while calls:
        _check_stored(connection, *calls.popleft())
    return end


def _check_stored(connection: Connection, offset: int, call: Call) -> None:
    connection.wait(call, time.monotonic() + _ANSWER_SECONDS)
    reply = call.reply
    if reply is None or not isinstance(reply.message, ProduceReply):
        raise VerificationError(f"expected an answer to a request to produce, found {reply}")
    found = [result.base_offset for result in reply.message.results if result.error is None]
    if found != [*range(offset, offset + AT_ONCE)]:
        raise VerificationError(f"expected {AT_ONCE} batches from {offset} on, found {found[:3]} and so on")
