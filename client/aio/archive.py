"""The broker's archive, for whoever runs it or reads it directly."""

from __future__ import annotations

from datetime import timedelta

from ...protocol.messages import (
    ExpireArchive,
    ExpireArchiveReply,
    RunArchive,
    RunArchiveReply,
    VerifyArchive,
    VerifyArchiveReply,
)
from ..archived import Age, ArchiveDamage, ArchivedSegment, ArchiveExpiry, ArchiveRun, ExpiredSegment
from ..core.arguments import check_flag
from ..core.times import DEFAULT, Timeout, duration_us, to_us
from .archived import list_archived
from .change import change
from .topics import Owner

SegmentList = list[ArchivedSegment]


class AsyncArchive:
    """`client.archive`: what of topics is in the broker's archive, and what an operator does with it.

    Every call raises ArchiveOffError on a broker without one, ArchiveUnavailableError while its store does not answer,
    ArchiveDeniedError when that refuses the broker, and UnknownTopicError.
    """

    def __init__(self, client: Owner) -> None:
        self._client = client

    async def list(self, topic: str, *, timeout: Timeout = DEFAULT) -> SegmentList:
        """Return the archived segments of a topic, by partition and offset."""
        return await list_archived(self._client.open_session(), topic, self._client.deadline(timeout))

    async def run(self, topic: str | None = None, *, timeout: Timeout = DEFAULT) -> ArchiveRun:
        """Archive what can be archived now, of one topic or of all, and return when that is done."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        request = RunArchive(None if topic is None else session.directory.full_name(topic))
        reply = (await session.link.call(request, deadline)).message
        assert isinstance(reply, RunArchiveReply)
        problems = [
            f"{one.topic}/{one.partition}: {one.error.error().code}: {one.error.message}" for one in reply.problems
        ]
        return ArchiveRun(reply.segments, reply.bytes, problems)

    async def verify(self, segment: ArchivedSegment, *, timeout: Timeout = DEFAULT) -> ArchiveDamage | None:
        """Have the broker read one archived segment again; return what is wrong with it, None when nothing is."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        full_name = session.directory.full_name(segment.topic)
        request = VerifyArchive(full_name, segment.partition, segment.base_offset)
        reply = (await session.link.call(request, deadline)).message
        assert isinstance(reply, VerifyArchiveReply)
        if not reply.damaged:
            return None
        return ArchiveDamage(
            segment.topic, segment.partition, [(low, high) for low, high in reply.damaged], reply.reason
        )

    async def expire(
        self,
        topic: str,
        *,
        before: Age,
        dry_run: bool = False,
        confirmed: ArchiveExpiry | None = None,
        timeout: Timeout = DEFAULT,
    ) -> ArchiveExpiry:
        """Remove from the archive, finally, what was appended to a topic before a time and is no longer in its log.

        With `confirmed`, which a dry run returned, nothing goes that was not in it.
        """
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        before_us = (
            session.time.wall_us() - abs(duration_us(before))
            if isinstance(before, timedelta)
            else to_us(before, "before")
        )
        full_name, is_trial = session.directory.full_name(topic), check_flag("dry_run", dry_run)
        request = ExpireArchive(full_name, before_us, dry_run=is_trial, upto=_upto(confirmed))
        return _expiry(await change(session.link, request, deadline, _nothing))

    async def expire_deleted(
        self, *, dry_run: bool = False, confirmed: ArchiveExpiry | None = None, timeout: Timeout = DEFAULT
    ) -> ArchiveExpiry:
        """Remove from the archive, finally, all that this broker archived of topics that were deleted.

        With `confirmed`, which a dry run returned, nothing goes that was not in it.
        """
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        request = ExpireArchive(deleted=True, dry_run=check_flag("dry_run", dry_run), upto=_upto(confirmed))
        return _expiry(await change(session.link, request, deadline, _nothing))


def _nothing() -> None:
    """What is asked for is done a second time without harm."""


def _upto(confirmed: ArchiveExpiry | None) -> list[tuple[int, int, int]] | None:
    return None if confirmed is None else confirmed.upto


def _expiry(reply: object) -> ArchiveExpiry:
    assert isinstance(reply, ExpireArchiveReply)
    listed = [
        ExpiredSegment(one.topic, one.topic_id, one.partition, one.base_offset, one.end_offset, one.bytes)
        for one in reply.listed
    ]
    return ArchiveExpiry(reply.segments, reply.bytes, listed, reply.upto)
