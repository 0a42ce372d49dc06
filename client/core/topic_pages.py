"""A list of topics that comes in several replies, put together. A topic may be told in parts."""

from __future__ import annotations

from ...protocol.messages import Metadata, MetadataReply, TopicInfo, TopicPlace, TopicReply


class TopicPages:
    """Asks what a request asks for, by names or for all, until the whole list is there."""

    __slots__ = ("_names", "_place", "_request", "_whole")

    def __init__(self, request: Metadata) -> None:
        self._request = request
        self._names = request.names
        self._place: TopicPlace | None = TopicPlace()
        self._whole: MetadataReply | None = None

    @classmethod
    def after(cls, reply: TopicReply) -> TopicPages:
        """Go on with what a change was answered with."""
        pages = cls(Metadata([reply.topic.name], details=True))
        pages._whole = MetadataReply(0, [reply.topic])
        pages._place = reply.place
        return pages

    @property
    def request(self) -> Metadata | None:
        """What is to be asked next; None once all is there."""
        if self._place is None:
            return None
        asked = self._request
        return Metadata(self._names, asked.ids, asked.auto_create, asked.details, self._place)

    def take(self, reply: MetadataReply) -> None:
        """Take in what the request was answered with."""
        asked, self._place = self._place, reply.place
        told = {info.id for info in reply.topics}
        whole = self._whole or MetadataReply(reply.version, [])
        if asked is not None and asked.id not in told:  # deleted before the rest of it was told
            whole.topics = [info for info in whole.topics if info.id != asked.id]
        topics = whole.topics
        for info in reply.topics:
            if topics and topics[-1].id == info.id:
                topics[-1] = _joined(topics[-1], info)
            else:
                topics.append(info)
        # The version of the first: what changed since is noticed as a change.
        self._whole = MetadataReply(whole.version, topics, whole.errors + reply.errors)
        if self._names is not None:
            is_cut = self._place is not None and self._place.id in told
            self._names = self._names[len(reply.topics) + len(reply.errors) - is_cut :]

    def reply(self) -> MetadataReply:
        """Return all as if it had come in one reply."""
        assert self._whole is not None, "a list that was asked for"
        return self._whole


def _joined(first: TopicInfo, rest: TopicInfo) -> TopicInfo:
    rest.partitions = first.partitions + rest.partitions
    return rest
