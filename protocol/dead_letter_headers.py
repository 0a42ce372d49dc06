"""The headers of a dead letter: why it is one, and of what. A copy has them beside those of its message.

    tidelog.dlq.reason               rejected | max-attempts | expired
    tidelog.dlq.error                why the last attempt failed: `ValueError: no such account`, then its traceback
    tidelog.dlq.group                who gave up: a group's full name
    tidelog.dlq.topic                where the message is: full name (`~2` behind one that was made again), partition,
    tidelog.dlq.partition            offset
    tidelog.dlq.offset
    tidelog.dlq.attempts             hand-overs that counted, since it was redriven last
    tidelog.dlq.first_delivered_at   ISO 8601 in UTC
    tidelog.dlq.at                   the same: when it was given up
    tidelog.redrives                 how often it was redriven; not there for never
    tidelog.origin_id                the first id that its producer was given, where the message was itself a copy

All values are text. Producers cannot send names that begin with `tidelog.`, so what stands there is the broker's word;
which record a copy was made of is also in its batch's origin columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import lru_cache

import msgspec

from .topic_name import MessageId

Pair = tuple[str, bytes | None]

OWN_PREFIX = "tidelog."
REASON = "tidelog.dlq.reason"
ERROR = "tidelog.dlq.error"
GROUP = "tidelog.dlq.group"
TOPIC = "tidelog.dlq.topic"
PARTITION = "tidelog.dlq.partition"
OFFSET = "tidelog.dlq.offset"
ATTEMPTS = "tidelog.dlq.attempts"
FIRST_DELIVERED_AT = "tidelog.dlq.first_delivered_at"
AT = "tidelog.dlq.at"
REDRIVES = "tidelog.redrives"
ORIGIN_ID = "tidelog.origin_id"

DEAD_LETTER_SUFFIX = ".dlq"
"""What the name of a dead-letter topic ends in, unless a group names another."""

MAX_REDRIVES = 3
"""How often a message is redriven unless more is asked for: one that comes back each time would go round for ever."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)


class Reason(Enum):
    """Why a message became a dead letter."""

    REJECTED = "rejected"
    """Its consumer refused it."""
    MAX_ATTEMPTS = "max-attempts"
    """Its last attempt failed."""
    EXPIRED = "expired"
    """Its last attempt ended with the lease: the consumer died, or took too long."""


class DeadLetterHeaders(msgspec.Struct, frozen=True):
    """What these headers say; times in microseconds, 0 where unknown."""

    reason: str
    group: str
    topic: str
    partition: int
    offset: int
    attempts: int = 0
    error: str | None = None
    first_delivered_us: int = 0
    at_us: int = 0
    redrives: int = 0
    topic_count: int = 1
    """How often a topic of this name was made, this one included."""

    @property
    def original(self) -> MessageId:
        """The id of the message."""
        return MessageId(self.topic, self.topic_count, self.partition, self.offset)

    def pairs(self) -> list[Pair]:
        """Return them as headers, in this order."""
        found: list[Pair] = [(REASON, self.reason.encode())]
        if self.error is not None:
            found.append((ERROR, self.error.encode("utf-8", "replace")))
        found += [
            (GROUP, self.group.encode()),
            (TOPIC, f"{self.topic}~{self.topic_count}".encode() if self.topic_count > 1 else self.topic.encode()),
            (PARTITION, b"%d" % self.partition),
            (OFFSET, b"%d" % self.offset),
            (ATTEMPTS, b"%d" % self.attempts),
        ]
        if self.first_delivered_us:
            found.append((FIRST_DELIVERED_AT, _time(self.first_delivered_us)))
        found.append((AT, _time(self.at_us)))
        if self.redrives:
            found.append((REDRIVES, b"%d" % self.redrives))
        return found

    @classmethod
    def read(cls, pairs: Iterable[Pair]) -> DeadLetterHeaders | None:
        """Return what the headers of a message say, None where they are not those of a dead letter."""
        said = {name: value for name, value in pairs if value is not None and name.startswith(OWN_PREFIX)}
        try:
            original = _original(said)
            return cls(
                reason=said[REASON].decode(),
                group=said[GROUP].decode(),
                topic=original.topic,
                partition=original.partition,
                offset=original.offset,
                attempts=_whole(said.get(ATTEMPTS, b"0")),
                error=said[ERROR].decode("utf-8", "replace") if ERROR in said else None,
                first_delivered_us=_time_us(said.get(FIRST_DELIVERED_AT)),
                at_us=_time_us(said.get(AT)),
                redrives=_whole(said.get(REDRIVES, b"0")),
                topic_count=original.count,
            )
        except (KeyError, ValueError):
            return None


def original_of(pairs: Iterable[Pair]) -> MessageId | None:
    """Return the id of the message that a dead letter is a copy of, by its headers; None where they name none."""
    try:
        return _original({name: value for name, value in pairs if value is not None})
    except (KeyError, ValueError):
        return None


def _original(said: Mapping[str, bytes]) -> MessageId:
    topic, _, count = said[TOPIC].decode().partition("~")
    return MessageId(topic, _whole(count.encode() or b"1"), _whole(said[PARTITION]), _whole(said[OFFSET]))


def redrives_of(pairs: Iterable[Pair]) -> int:
    """Return how often a message was redriven, by its headers."""
    return redrives_in(next((value for name, value in pairs if name == REDRIVES), None))


def redrives_in(value: bytes | None) -> int:
    """Return how often it says that a message was redriven: the value of the header, None where there is none."""
    return int(value) if value is not None and _WHOLE.fullmatch(value.decode("latin-1")) else 0


def _whole(text: bytes) -> int:
    if not _WHOLE.fullmatch(text.decode("latin-1")):
        raise ValueError(f"expected a whole number, found {text!r}")
    return int(text)


@lru_cache(maxsize=256)
def _time(time_us: int) -> bytes:
    """Return a moment as text; many messages are given up in one."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return (moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z").encode()


def _time_us(text: bytes | None) -> int:
    if text is None:
        return 0
    return (datetime.fromisoformat(text.decode()) - _EPOCH) // timedelta(microseconds=1)
