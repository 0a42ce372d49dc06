"""One message as a consumer sees it."""

from __future__ import annotations

from datetime import datetime

import msgspec

from ..protocol.topic_name import MessageId, full_name
from .core.times import from_us
from .headers import NO_HEADERS, Headers

ORIGIN_ID_HEADER = "tidelog.origin_id"
"""Where a copy carries the first id that its producer was given."""


class Message(msgspec.Struct, frozen=True, gc=False):
    """A record of a topic. `key` and `value` are bytes, or None where the producer sent null; b"" is not null.

    A message is always true, an empty one too. Times are kept as whole microseconds (`timestamp_us` is the
    producer's, `append_time_us` the broker's) and read as datetimes. It pickles as plain data.

    Measured: 45 ns to make one by `map`; a slotted class takes 200.
    """

    topic: str
    """As it is shown: without the namespace where that is `default`."""
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_us: int
    append_time_us: int
    priority: int = 4
    headers: Headers = NO_HEADERS
    topic_count: int = 1
    """How often a topic of this name was made, this one included."""

    @property
    def id(self) -> str:
        """Where the record is, `orders/2@45678`: what `client.get` takes."""
        return str(MessageId(full_name(self.topic), self.topic_count, self.partition, self.offset))

    @property
    def origin_id(self) -> str:
        """The first id that the producer was given; equals `receipt.id` and, unless the record was moved, `id`."""
        origin = self.headers.get(ORIGIN_ID_HEADER)
        return self.id if origin is None else origin.decode()

    @property
    def timestamp(self) -> datetime:
        """The producer's time, in UTC; OverflowError outside the years 1 to 9999 (see `timestamp_us`)."""
        return from_us(self.timestamp_us)

    @property
    def append_time(self) -> datetime:
        """When the broker appended it, in UTC: never decreases within a partition."""
        return from_us(self.append_time_us)
