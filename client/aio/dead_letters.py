"""Dead letters: messages that groups gave up on, listed, explained, brought back or given up for good."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from ...protocol.dead_letter_headers import MAX_REDRIVES
from ...protocol.errors import NotFoundError, TidelogError, UnknownTopicIdError
from ...protocol.messages import Purge, PurgeReply, Redrive, RedriveReply
from ...protocol.offset_ranges import iter_ranges, pack_ranges
from ...protocol.topic_name import MessageId
from ..archived import Age
from ..core.arguments import check_count, check_flag, check_text
from ..core.data import Data
from ..core.deadline import Deadline
from ..core.letter_filter import LetterFilter, letter_filter
from ..core.times import DEFAULT, Timeout, to_seconds, to_us
from ..dead_letter import AttemptHistory, DeadLetter, DeadLetterAttempt, Purged, Redriven, RefusedRedrive
from ..headers import HeadersInput
from .letter_choice import chosen_letters, chosen_spans
from .letter_reading import count_pending, find_letter_topics, read_attempts
from .one_message import read_one
from .session import Session

REDRIVE_AT_ONCE = 1_000
PURGE_AT_ONCE = 10_000
"""Dead letters that one request names: as many as it may."""

STEPS_A_SECOND = 10
"""Requests into which a redrive at a rate is cut."""

WHICH = "orders, or the id orders.dlq/2@7"
"""What dead letters can be named by."""

MAX_REFUSED = 1_000
"""Refused ones that are told one by one."""


class Owner(Protocol):
    """What dead letters need of their client."""

    def open_session(self) -> Session:
        """Return what the client is in this process and event loop."""
        ...

    def deadline(self, timeout: Timeout) -> Deadline:
        """Return until when a call may take."""
        ...


class AsyncDeadLetters:
    """`client.dead_letters`. A topic means the dead letters of its messages, a dead-letter topic all that are in it, an
    id (`orders.dlq/2@7`) one of them; the id of the original message means those that groups made of it.

    `list`, `redrive` and `purge` take the same filters, all of which a dead letter must pass: `key`; `headers`, each
    with this value among those of its name; `reason` (rejected, max-attempts, expired); `error`, text that it contains;
    `group`; `start` and `end` (exclusive), when it was stored, a datetime or a timedelta back from now. `timeout` is
    for each request."""

    def __init__(self, client: Owner) -> None:
        self._client = client

    def list(
        self,
        topic: str,
        *,
        key: Data = None,
        headers: HeadersInput | None = None,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
        start: Age | None = None,
        end: Age | None = None,
        limit: int | None = None,
        timeout: Timeout = DEFAULT,
    ) -> AsyncIterator[DeadLetter]:
        """Iterate over pending dead letters: those neither redriven nor purged, by topic, partition and offset, at most
        `limit`. They are read as it goes. Raises UnknownTopicError."""
        session = self._client.open_session()
        check_text("topic", topic, WHICH)
        wanted = self._filter(session, key, headers, reason, error, group, start, end)
        most = None if limit is None else check_count("limit", limit, 1)
        return chosen_letters(session, topic, wanted, most, self._deadlines(timeout))

    async def count(self, topic: str, *, timeout: Timeout = DEFAULT) -> int:
        """Return how many dead letters are pending in the dead-letter topics of a topic; those of other topics that go
        to the same one are counted too. Raises UnknownTopicError."""
        session, deadlines = self._client.open_session(), self._deadlines(timeout)
        total = 0
        for one in await find_letter_topics(session, topic, deadlines()):
            total += await count_pending(session, one.entry, deadlines)
        return total

    async def get(self, letter_id: str, *, timeout: Timeout = DEFAULT) -> DeadLetter:
        """Return one dead letter by its id, pending or not, or the first pending one of an original message.

        Raises NotFoundError, UnknownTopicError.
        """
        session = self._client.open_session()
        check_text("letter_id", letter_id, "orders.dlq/2@7")
        wanted = MessageId.parse(letter_id, session.directory.namespace)
        copy = await read_one(session, wanted, self._client.deadline(timeout))
        letter = DeadLetter.of(copy[0], copy.retries[0])
        if letter.original_id is not None:
            return letter
        async for found in chosen_letters(session, letter_id, LetterFilter(), 1, self._deadlines(timeout)):
            return found
        raise NotFoundError(f"expected a dead letter, or a message that one was made of, found neither in {wanted}")

    async def attempts(
        self, letter: DeadLetter | str, *, group: str | None = None, timeout: Timeout = DEFAULT
    ) -> AttemptHistory:
        """Return every attempt at the message of a dead letter in the group that gave up on it, in order of time, and
        what happened in between, as far as it is retained (`trace.retention`) and does not lie among too much of other
        messages, and of thousands of them the last: then it is not `is_complete`. `group` names another one.

        Raises NotFoundError, UnknownTopicError, UnknownGroupError.
        """
        session = self._client.open_session()
        found = letter if isinstance(letter, DeadLetter) else await self.get(letter, timeout=timeout)
        if found.original_id is None or found.group is None:
            raise NotFoundError(f"expected a dead letter, found the message {found.id}, which nobody gave up on")
        original, by = MessageId.parse(found.original_id), found.group if group is None else group
        began = found.first_delivered if by == found.group else None
        since_us = 0 if began is None else to_us(began)
        reply = await read_attempts(session, original, by, since_us, self._client.deadline(timeout))
        return AttemptHistory([DeadLetterAttempt.of(info) for info in reply.attempts], reply.is_complete)

    async def redrive(
        self,
        topic: str,
        *,
        key: Data = None,
        headers: HeadersInput | None = None,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
        start: Age | None = None,
        end: Age | None = None,
        as_new: bool = False,
        max_redrives: int = MAX_REDRIVES,
        limit: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Redriven:
        """Bring dead letters back: the message is available again to the group that gave up on it, with all of its
        attempts before it, and no other group sees anything. Where it is not retained any more, or `as_new`, the copy
        is published to its topic, for all groups.

        At most `limit`, `rate` a second. A message that was redriven `max_redrives` times already is refused, as it
        would go round for ever. `dry_run` only counts; `on_progress` is told how many more are done. What was done when
        the call was cut off is done: called again, it goes on with the rest. Raises UnknownTopicError.
        """
        session = self._client.open_session()
        check_text("topic", topic, WHICH)
        wanted = self._filter(session, key, headers, reason, error, group, start, end)
        most = None if limit is None else check_count("limit", limit, 1)
        most_redrives = check_count("max_redrives", max_redrives, 0, 1_000_000)
        is_new, is_trial = check_flag("as_new", as_new), check_flag("dry_run", dry_run)
        a_second = _rate(rate)
        _check_progress(on_progress)
        at_once = REDRIVE_AT_ONCE if a_second is None else min(REDRIVE_AT_ONCE, max(1, int(a_second / STEPS_A_SECOND)))
        deadlines = self._deadlines(timeout)
        done, began = _Done(), session.time.now()
        async for place, spans in chosen_spans(session, topic, wanted, most, at_once, deadlines):
            count = sum(last - first for first, last in spans)
            if not is_trial:
                if a_second is not None and done.matched:
                    await session.time.Bell().wait(began + done.matched / a_second)
                request = Redrive(place.entry.id, place.partition, pack_ranges(spans), is_new, most_redrives)
                where = MessageId(place.entry.name, place.entry.count, place.partition, 0)
                try:
                    reply = (await session.link.call(request, deadlines())).message
                except UnknownTopicIdError as gone:  # deleted meanwhile: what was done is to be told
                    done.refuse(request.ranges, gone, where)
                else:
                    assert isinstance(reply, RedriveReply)
                    done.take(reply, where)
            done.matched += count
            if on_progress is not None:
                on_progress(count)
        return done.redriven()

    async def purge(
        self,
        topic: str,
        *,
        key: Data = None,
        headers: HeadersInput | None = None,
        reason: str | None = None,
        error: str | None = None,
        group: str | None = None,
        start: Age | None = None,
        end: Age | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        on_progress: Callable[[int], object] | None = None,
        timeout: Timeout = DEFAULT,
    ) -> Purged:
        """Give dead letters up for good, at most `limit`: they are pending no more, and nothing brings them back. The
        records stay in the dead-letter topic until retention removes them. `dry_run` only counts. Raises
        UnknownTopicError."""
        session = self._client.open_session()
        check_text("topic", topic, WHICH)
        wanted = self._filter(session, key, headers, reason, error, group, start, end)
        most = None if limit is None else check_count("limit", limit, 1)
        is_trial = check_flag("dry_run", dry_run)
        _check_progress(on_progress)
        deadlines = self._deadlines(timeout)
        matched = purged = passed = 0
        async for place, spans in chosen_spans(session, topic, wanted, most, PURGE_AT_ONCE, deadlines):
            count = sum(last - first for first, last in spans)
            if not is_trial:
                request = Purge(place.entry.id, place.partition, pack_ranges(spans))
                reply = (await session.link.call(request, deadlines())).message
                assert isinstance(reply, PurgeReply)
                purged += _count(reply.purged)
                passed += _count(reply.passed)
            matched += count
            if on_progress is not None:
                on_progress(count)
        return Purged(matched, purged, passed)

    # -- inside ----------------------------------------------------------------------------------------------------

    def _deadlines(self, timeout: Timeout) -> Callable[[], Deadline]:
        client = self._client
        client.deadline(timeout)  # what is none is refused now
        return lambda: client.deadline(timeout)

    def _filter(
        self,
        session: Session,
        key: Data,
        headers: HeadersInput | None,
        reason: str | None,
        error: str | None,
        group: str | None,
        start: Age | None,
        end: Age | None,
    ) -> LetterFilter:
        return letter_filter(
            key=key,
            headers=headers,
            reason=reason,
            error=error,
            group=group,
            start=start,
            end=end,
            namespace=session.directory.namespace,
            now_us=session.time.wall_us(),
        )


class _Done:
    """What was brought back so far."""

    def __init__(self) -> None:
        self.matched = 0
        self._in_place = self._as_new = self._passed = self._refused_count = 0
        self._refused: list[RefusedRedrive] = []

    def take(self, reply: RedriveReply, place: MessageId) -> None:
        self._in_place += _count(reply.in_place)
        self._as_new += _count(reply.as_new)
        self._passed += _count(reply.passed)
        for refusal in reply.refused:
            self.refuse(refusal.ranges, refusal.error.error(), place)

    def refuse(self, ranges: bytes, error: TidelogError, place: MessageId) -> None:
        self._refused_count += _count(ranges)
        for start, end in iter_ranges(ranges):
            for offset in range(start, min(end, start + MAX_REFUSED - len(self._refused))):
                letter = MessageId(place.topic, place.count, place.partition, offset)
                self._refused.append(RefusedRedrive(str(letter), error))

    def redriven(self) -> Redriven:
        return Redriven(self.matched, self._in_place, self._as_new, self._passed, self._refused, self._refused_count)


def _count(ranges: bytes) -> int:
    return sum(end - start for start, end in iter_ranges(ranges))


def _rate(rate: float | None) -> float | None:
    if rate is None:
        return None
    found = to_seconds(rate)
    if found is None:
        raise TypeError(f"rate: expected how many a second, found {rate!r}")
    if not 0 < found < math.inf:
        raise ValueError(f"rate: expected a finite number above 0, or None for no limit, found {rate!r}")
    return found


def _check_progress(on_progress: object) -> None:
    if on_progress is not None and not callable(on_progress):
        raise TypeError(f"on_progress: expected a function that takes how many, found {on_progress!r}")
