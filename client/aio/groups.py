"""Administration of groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Literal, Protocol

from ...protocol.delivery_states import DeliveryState
from ...protocol.errors import InvalidGroupError, UnknownGroupError
from ...protocol.group_name import full_group_name
from ...protocol.messages import (
    AlterGroup,
    CreateGroup,
    DeleteGroup,
    DescribeGroupsReply,
    GroupMessages,
    GroupMessagesReply,
    GroupReply,
    Message,
    ResetGroup,
    ResetGroupReply,
)
from ...protocol.topic_name import MessageId, full_name
from ..core.arguments import check_count, check_flag, check_word, listed
from ..core.bounds import Bound
from ..core.deadline import Deadline
from ..core.group_pages import GroupPages
from ..core.group_settings import to_group_settings, to_group_start, to_setting_names
from ..core.record import MAX_WIRE_COUNT
from ..core.times import DEFAULT, Duration, Timeout
from ..group import Group, GroupBegin, begin_from
from ..message_state import MessageState
from ..retry import Backoff
from .change import change
from .session import Session

Words = list[str]
GroupList = list[Group]
BeginList = list[GroupBegin]

KINDS = ("queue", "stream")

UNSETTLED = tuple(
    state.value
    for state in (
        DeliveryState.AVAILABLE,
        DeliveryState.LEASED,
        DeliveryState.WAITING,
        DeliveryState.SUSPECT,
        DeliveryState.DEAD_LETTERING,
    )
)
"""What `messages` shows where no states are named."""


class Owner(Protocol):
    """What the administration needs of its client."""

    def open_session(self) -> Session:
        """Return what the client is in this process and event loop."""
        ...

    def deadline(self, timeout: Timeout) -> Deadline:
        """Return until when a call may take."""
        ...


class AsyncGroups:
    """`client.groups`. Settings are keywords: visibility_timeout in seconds or a timedelta, max_attempts,
    backoff=tidelog.Backoff(...), max_in_flight ("none": no limit, also where the broker has one), dead_letter (False:
    what is given up is dropped), dead_letter_topic (else the topic's name with `.dlq` behind it); one that is not given
    follows the broker's default.

    Starts are "earliest", "latest", an offset (of one partition), a datetime (also one to come), or a timedelta back
    from now."""

    def __init__(self, client: Owner) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        topics: str | Iterable[str],
        *,
        kind: str = "queue",
        start: Bound | None = None,
        visibility_timeout: Duration | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        max_in_flight: int | Literal["none"] | None = None,
        dead_letter: bool | None = None,
        dead_letter_topic: str | None = None,
        exist_ok: bool = False,
        timeout: Timeout = DEFAULT,
    ) -> Group:
        """Create a group that reads these topics; without `start` a queue group begins at what is retained now.

        With `exist_ok` a group that exists with these settings is as good, wherever it began; it reads these topics
        from then on, too. Raises GroupExistsError, GroupSettingsError, GroupKindError, InvalidGroupError,
        UnknownTopicError, OffsetOutOfRangeError.
        """
        check_word("kind", kind, KINDS, '"queue" or "stream"')
        is_fine = check_flag("exist_ok", exist_ok)
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        letters = _full_topic(session, dead_letter_topic)
        settings = to_group_settings(visibility_timeout, max_attempts, backoff, max_in_flight, dead_letter, letters)
        begin = None if start is None else to_group_start(start, "start", session.time.wall_us())
        full_names = [session.directory.full_name(topic) for topic in _names("topics", topics, "topics")]
        if not full_names:
            raise InvalidGroupError("topics: expected at least one topic for a group to read, found none")
        request = CreateGroup(_full(session, name), full_names, kind, begin, settings, is_fine)

        def doubt() -> None:  # perhaps it was made: then the repeat finds it
            request.exist_ok = True

        return await _group_of(session, await change(session.link, request, deadline, doubt), deadline)

    async def describe(self, name: str, *, timeout: Timeout = DEFAULT) -> Group:
        """Return one group. Raises UnknownGroupError that suggests the nearest name."""
        (group,) = await self.list([name], timeout=timeout)
        return group

    async def list(self, names: str | Iterable[str] | None = None, *, timeout: Timeout = DEFAULT) -> GroupList:
        """Return all groups, or those that are named, by name. Raises UnknownGroupError for one that is not there.

        A list that is longer than a reply is asked for as it goes: a group that is made or deleted meanwhile is in it
        or not. `timeout` is for all of it."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        wanted = None
        if names is not None:
            wanted = [*dict.fromkeys(_full(session, name) for name in _names("names", names, "groups"))]
        return await _listed(session, GroupPages(wanted), deadline)

    async def set(
        self,
        name: str,
        *,
        visibility_timeout: Duration | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        max_in_flight: int | Literal["none"] | None = None,
        dead_letter: bool | None = None,
        dead_letter_topic: str | None = None,
        reset: str | Iterable[str] = (),
        timeout: Timeout = DEFAULT,
    ) -> Group:
        """Change settings for all consumers of a group; those in `reset` follow the broker's default again."""
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        letters = _full_topic(session, dead_letter_topic)
        settings = to_group_settings(visibility_timeout, max_attempts, backoff, max_in_flight, dead_letter, letters)
        request = AlterGroup(_full(session, name), settings, to_setting_names("reset", reset))
        return await _group_of(session, await change(session.link, request, deadline, _nothing), deadline)

    async def reset(
        self,
        name: str,
        to: Bound,
        *,
        topic: str | None = None,
        partition: int | None = None,
        timeout: Timeout = DEFAULT,
    ) -> BeginList:
        """Move a group, in all that it reads, in one topic or in one partition; return where it begins there now.

        Every lease there ends, and every message from there on is delivered again, whatever became of it before; what
        the group knew of messages is gone. Its consumers go on by themselves. Raises UnknownGroupError,
        OffsetOutOfRangeError, InvalidGroupError.
        """
        session, deadline = self._client.open_session(), self._client.deadline(timeout)
        start = to_group_start(to, "to", session.time.wall_us())
        place = None if partition is None else check_count("partition", partition, 0, MAX_WIRE_COUNT)
        full_topic = None if topic is None else session.directory.full_name(topic)
        request = ResetGroup(_full(session, name), start, full_topic, place)
        reply = await change(session.link, request, deadline, _nothing)
        assert isinstance(reply, ResetGroupReply)
        begins = reply.begins
        while reply.place is not None:
            request.place = reply.place
            reply = (await session.link.call(request, deadline)).message
            assert isinstance(reply, ResetGroupReply)
            begins = begins + reply.begins
        return [begin_from(begin) for begin in begins]

    async def delete(self, name: str, *, missing_ok: bool = False, timeout: Timeout = DEFAULT) -> None:
        """Delete a group and what it knows of messages, finally; the messages stay. Raises UnknownGroupError unless
        `missing_ok`."""
        may_be_gone = check_flag("missing_ok", missing_ok)
        session, deadline = self._client.open_session(), self._client.deadline(timeout)

        def doubt() -> None:  # perhaps it is gone: then the repeat does not find it
            nonlocal may_be_gone
            may_be_gone = True

        try:
            await change(session.link, DeleteGroup(_full(session, name)), deadline, doubt)
        except UnknownGroupError:
            if not may_be_gone:
                raise

    def messages(
        self,
        name: str,
        *,
        states: str | Iterable[str] | None = None,
        topic: str | None = None,
        limit: int | None = None,
        timeout: Timeout = DEFAULT,
    ) -> AsyncIterator[MessageState]:
        """Iterate over the messages of a group that are in some of the states (see MessageState; without any named,
        all that are not settled), by topic, partition and offset, at most `limit`. They are asked for as it goes, so
        what changes meanwhile may be missed. `timeout` is for each request. Raises UnknownGroupError."""
        words = [*UNSETTLED] if states is None else _names("states", states, "states")
        for word in words:
            check_word("states", word, [state.value for state in DeliveryState], "the names of states")
        most = None if limit is None else check_count("limit", limit, 1)
        full_group_name(name)  # these raise here and not at the first message; an async client has no session yet
        if topic is not None:
            full_name(topic)
        self._client.deadline(timeout)
        return self._messages(name, words, topic, most, timeout)

    async def _messages(
        self, name: str, states: Words, topic: str | None, limit: int | None, timeout: Timeout
    ) -> AsyncIterator[MessageState]:
        session = self._client.open_session()
        full_topic = None if topic is None else session.directory.full_name(topic)
        request = GroupMessages(_full(session, name), states, full_topic)
        left = limit
        while left is None or left > 0:
            request.limit = PAGE if left is None else min(left, PAGE)
            reply = (await session.link.call(request, self._client.deadline(timeout))).message
            assert isinstance(reply, GroupMessagesReply)
            for state in reply.messages:
                entry = await session.topic(state.topic, self._client.deadline(timeout))
                yield MessageState.of(state, MessageId(entry.name, entry.count, state.partition, state.offset))
            if reply.place is None:
                return
            request = GroupMessages(request.group, states, full_topic, reply.place)
            left = None if left is None else left - len(reply.messages)


PAGE = 1_000
"""Messages that one request asks for: as many as it may."""


def _full(session: Session, name: str) -> str:
    return full_group_name(name, session.directory.namespace)


def _full_topic(session: Session, name: str | None) -> str | None:
    return None if name is None else session.directory.full_name(name)


def _names(argument: str, given: str | Iterable[str], what: str) -> Words:
    return [given] if isinstance(given, str) else listed(argument, given, what)


def _nothing() -> None:
    """What is asked for is done a second time without harm."""


async def _listed(session: Session, pages: GroupPages, deadline: Deadline) -> GroupList:
    while (request := pages.request) is not None:
        reply = (await session.link.call(request, deadline)).message
        assert isinstance(reply, DescribeGroupsReply)
        pages.take(reply)
    return pages.groups()


async def _group_of(session: Session, reply: Message | None, deadline: Deadline) -> Group:
    assert isinstance(reply, GroupReply)
    (group,) = await _listed(session, GroupPages.after(reply), deadline)
    return group
