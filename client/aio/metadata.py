"""What there is of topics, asked for until it is whole."""

from __future__ import annotations

from ...protocol.messages import Metadata, MetadataReply, TopicInfo, TopicReply
from ..core.deadline import Deadline
from ..core.topic_pages import TopicPages
from .link import Link


async def look_up(link: Link, request: Metadata, deadline: Deadline) -> MetadataReply:
    """Return the answer to a request by names or for all, however many replies it takes."""
    return await _whole(link, TopicPages(request), deadline)


async def whole_topic(link: Link, reply: TopicReply, deadline: Deadline) -> TopicInfo:
    """Return a topic that was changed, with what the answer to the change had no room for."""
    found = await _whole(link, TopicPages.after(reply), deadline)
    return found.topics[0] if found.topics else reply.topic  # deleted meanwhile


async def _whole(link: Link, pages: TopicPages, deadline: Deadline) -> MetadataReply:
    while (request := pages.request) is not None:
        reply = (await link.call(request, deadline)).message
        assert isinstance(reply, MetadataReply)
        pages.take(reply)
    return pages.reply()
