"""Dead letters as a user sees them, and what became of those that were redriven or purged."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from ..protocol.dead_letter_headers import OWN_PREFIX, DeadLetterHeaders
from ..protocol.errors import TidelogError
from ..protocol.messages import AttemptInfo
from ..protocol.topic_name import short_name
from .core.times import from_us
from .headers import Headers
from .message import Message
from .message_state import Failure
from .retry import Retry


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that a group gave up on: a copy of it in a dead-letter topic.

    `reason` is rejected, max-attempts or expired, `error` what its last consumer said, `attempts` how often it was
    delivered since it was redriven last, `redrives` how often that was. `group`, `original_id` and `reason` are None
    for a message that somebody produced to the dead-letter topic.
    """

    message: Message
    """The copy, with the broker's own headers."""
    reason: str | None = None
    error: str | None = None
    group: str | None = None
    topic: str | None = None
    """Where the original is, or was, with `partition` and `offset`."""
    partition: int | None = None
    offset: int | None = None
    original_id: str | None = None
    attempts: int = 0
    first_delivered: datetime | None = None
    dead_lettered: datetime | None = None
    redrives: int = 0
    retry: Retry | None = None
    """The policy that its producer gave the message; None where its group's was in force."""

    @classmethod
    def of(cls, message: Message, retry: Retry | None = None) -> DeadLetter:
        """Read what the headers of a copy say."""
        said = DeadLetterHeaders.read(message.headers.items())
        if said is None:
            return cls(message, retry=retry)
        return cls(
            message,
            said.reason,
            said.error,
            short_name(said.group),
            short_name(said.topic),
            said.partition,
            said.offset,
            str(said.original),
            said.attempts,
            from_us(said.first_delivered_us) if said.first_delivered_us else None,
            from_us(said.at_us) if said.at_us else None,
            said.redrives,
            retry,
        )

    @property
    def id(self) -> str:
        """The dead letter's own id, `orders.dlq/2@7`: what `get`, `redrive` and `purge` take."""
        return self.message.id

    @property
    def key(self) -> bytes | None:
        """The message's key."""
        return self.message.key

    @property
    def value(self) -> bytes | None:
        """The message's value, as bytes."""
        return self.message.value

    @property
    def headers(self) -> Headers:
        """The headers that its producer sent."""
        pairs = self.message.headers.items()
        return Headers([(name, value) for name, value in pairs if not name.startswith(OWN_PREFIX)])

    @property
    def priority(self) -> int:
        """The message's priority."""
        return self.message.priority


class DeadLetterAttempt(msgspec.Struct, frozen=True):
    """One time that a message was leased, or something that happened to it between two of them (`began` None).

    `outcome` is acknowledged, failed, rejected, expired, returned, suspected or leased; of the message itself it is
    dead-lettered, redriven or resolved (its dead letter was purged, or published anew). `number` counts the attempts
    that count, from 1 after each redrive. `delay` is for how many seconds it was to wait then.
    """

    outcome: str
    number: int = 0
    began: datetime | None = None
    ended: datetime | None = None
    delay: float = 0.0
    failure: Failure | None = None

    @classmethod
    def of(cls, info: AttemptInfo) -> DeadLetterAttempt:
        """Take what the broker answered."""
        error = info.error
        return cls(
            info.outcome,
            info.number,
            from_us(info.began_us) if info.began_us else None,
            from_us(info.ended_us) if info.ended_us else None,
            info.delay_us / 1_000_000,
            None if error is None else Failure(error.kind, error.text, error.traceback),
        )


class AttemptHistory(msgspec.Struct, frozen=True):
    """Every attempt at a message in one group, in order of time, and what happened in between: a sequence of
    DeadLetterAttempt. `is_complete` unless some is not retained any more (`trace.retention`), cannot be read,
    lies among too much of other messages, or comes before the last thousands."""

    attempts: list[DeadLetterAttempt]
    is_complete: bool = True

    def __len__(self) -> int:
        return len(self.attempts)

    def __iter__(self) -> Iterator[DeadLetterAttempt]:
        return iter(self.attempts)

    def __getitem__(self, index: int) -> DeadLetterAttempt:
        return self.attempts[index]


class RefusedRedrive(msgspec.Struct, frozen=True):
    """A dead letter that was not brought back, and why; it is pending as before."""

    id: str
    error: TidelogError


class Redriven(msgspec.Struct, frozen=True):
    """What became of the dead letters that matched.

    `in_place` are available to their group again, `as_new` were published to their topic for all groups, `passed` were
    brought back or purged by somebody else meanwhile. After a dry run only `matched` is counted.
    """

    matched: int = 0
    in_place: int = 0
    as_new: int = 0
    passed: int = 0
    refused: list[RefusedRedrive] = []
    """The first 1,000 of `refused_count`."""
    refused_count: int = 0


class Purged(msgspec.Struct, frozen=True):
    """What became of the dead letters that matched: `purged` are gone for good, `passed` were brought back or purged
    by somebody else meanwhile. After a dry run only `matched` is counted."""

    matched: int = 0
    purged: int = 0
    passed: int = 0
