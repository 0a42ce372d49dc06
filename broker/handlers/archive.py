"""The archive: what is in it, and what an operator does with it."""

from __future__ import annotations

from bisect import bisect_left

from ...protocol.errors import ArchiveOffError, InvalidRequestError
from ...protocol.messages import (
    ArchiveProblem,
    ErrorInfo,
    ExpireArchive,
    ExpireArchiveReply,
    ExpiredSegmentInfo,
    ListArchive,
    ListArchiveReply,
    RunArchive,
    RunArchiveReply,
    VerifyArchive,
    VerifyArchiveReply,
)
from ...protocol.messages.archive import PAGE_SEGMENTS
from ...protocol.topic_name import full_name, short_name
from ..archive import Archive, Entry, RunSummary
from ..archive.expiry import Expiry
from ..deferred import Reply
from ..topics import Topic
from .context import Answer, Context


def archive_of(context: Context) -> Archive:
    """Return the archive. Raises ArchiveOffError when there is none."""
    if context.archive is None:
        raise ArchiveOffError("expected a broker with an archive (archive.url), found none configured")
    return context.archive


def list_archive(context: Context, request: ListArchive) -> Answer:
    """Name the archived segments of a topic, a page at a time."""
    archive, topic = archive_of(context), context.topics.named(full_name(request.topic))

    def reply(entries: list[Entry]) -> Reply:
        wanted = (request.partition, request.offset)
        first = bisect_left(entries, wanted, key=lambda entry: (entry.partition, entry.base_offset))
        page, rest = entries[first : first + PAGE_SEGMENTS], entries[first + PAGE_SEGMENTS :]
        following = (rest[0].partition, rest[0].base_offset) if rest else None
        return Reply(ListArchiveReply(topic.id, archive.url, [entry.info() for entry in page], following))

    return archive.entries(topic).then(reply)


def run_archive(context: Context, request: RunArchive) -> Answer:
    """Archive what can be archived now."""
    archive = archive_of(context)
    topics = context.topics.all() if request.topic is None else [_archived(context, request.topic)]

    def reply(done: RunSummary) -> Reply:
        problems = [ArchiveProblem(topic, partition, ErrorInfo.of(error)) for topic, partition, error in done.problems]
        return Reply(RunArchiveReply(done.segments, done.bytes, problems))

    return archive.run(topics).then(reply)


def _archived(context: Context, name: str) -> Topic:
    topic = context.topics.named(full_name(name))
    if not topic.settings.archive:
        raise ArchiveOffError(
            f"expected a topic that is archived, found {short_name(topic.name)} with archive=off: set archive=on"
        )
    return topic


def verify_archive(context: Context, request: VerifyArchive) -> Answer:
    """Read one archived segment again."""
    archive, topic = archive_of(context), context.topics.named(full_name(request.topic))
    checked = archive.verify(topic, topic.partition(request.partition), request.offset)
    return checked.then(lambda found: Reply(VerifyArchiveReply(*found)))


def expire_archive(context: Context, request: ExpireArchive) -> Answer:
    """Remove archived segments by age, or those of deleted topics."""
    archive = archive_of(context)
    if request.deleted:
        if request.topic is not None or request.before_us is not None:
            raise InvalidRequestError("expected a topic and a time, or deleted topics, found both")
        return archive.expire_deleted(dry_run=request.dry_run, upto=request.upto).then(_expired)
    if request.topic is None or request.before_us is None:
        raise InvalidRequestError("expected a topic and a time, or deleted topics, found neither")
    topic = context.topics.named(full_name(request.topic))
    return archive.expire(topic, request.before_us, dry_run=request.dry_run, upto=request.upto).then(_expired)


def _expired(expiry: Expiry) -> Reply:
    listed = [
        ExpiredSegmentInfo(
            short_name(entry.topic), entry.topic_id, entry.partition, entry.base_offset, entry.end_offset, entry.bytes
        )
        for entry in expiry.entries
    ]
    upto = [(place.topic_id, place.partition, end) for place, end in expiry.upto.items()]
    return Reply(ExpireArchiveReply(listed, expiry.segments, expiry.bytes, upto))
