# Generated from client/aio/archived.py by client/generate.py: change that, then run it.
"""Ask the broker which segments of a topic are archived, page by page."""

from __future__ import annotations

from ...protocol.messages import ListArchive, ListArchiveReply
from ...protocol.topic_name import short_name
from ..archived import ArchivedSegment, archived_from
from ..core.deadline import Deadline
from .session import Session


def list_archived(session: Session, topic: str, deadline: Deadline) -> list[ArchivedSegment]:
    """Return the archived segments of a topic, by partition and offset."""
    request = ListArchive(session.directory.full_name(topic))
    found: list[ArchivedSegment] = []
    while True:
        reply = (session.link.call(request, deadline)).message
        assert isinstance(reply, ListArchiveReply)
        found += [archived_from(short_name(request.topic), reply.url, info) for info in reply.segments]
        if reply.next is None:
            return found
        request = ListArchive(request.topic, *reply.next)
