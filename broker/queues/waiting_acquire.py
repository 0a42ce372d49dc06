"""An acquire that is on its way: what it asked, what it was given, and how it ends.

TRYING --something to give, or no wait asked for--> ANSWERED
   '--nothing yet--> WAITING --woken, tried again--> ANSWERED
                        |----deadline--------------> ANSWERED, empty
                        '----withdrawn-------------> over; the session answers it empty
"""

from __future__ import annotations

from collections.abc import Callable

from ...protocol.errors import UnknownTopicIdError
from ...protocol.messages import Acquire
from ..deferred import Deferred, Reply
from ..timers import Timer
from .member import Member
from .topic_source import TopicSource


class WaitingAcquire:
    """One acquire."""

    __slots__ = ("answer", "duration_us", "is_hasty", "is_over", "member", "request", "timer", "topics")

    def __init__(
        self, request: Acquire, member: Member, duration_us: int, withdrawn: Callable[[WaitingAcquire], None]
    ) -> None:
        self.request = request
        self.member = member
        self.duration_us = duration_us
        """How long its leases are to run."""
        self.topics = frozenset(request.topics)
        self.is_over = False
        self.is_hasty = False
        """Whether it waits only for what a worker is at."""
        self.timer: Timer | None = None
        self.answer: Deferred[Reply] = Deferred(lambda: withdrawn(self))

    def __repr__(self) -> str:
        return f"<WaitingAcquire of member {self.member.id:#x}{' over' if self.is_over else ''}>"

    def is_changed(self, topics: TopicSource) -> bool:
        """Whether one of its topics changed since it asked what there is, or any where it asks about all."""
        known = self.request.metadata_version
        if self.request.any_topic:
            return topics.version > known
        return bool(known) and any(_changed_version(topics, topic_id) > known for topic_id in self.topics)


def _changed_version(topics: TopicSource, topic_id: int) -> int:
    try:
        return topics.by_id(topic_id).changed_version
    except UnknownTopicIdError:
        return topics.version
