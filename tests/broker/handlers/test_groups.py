"""Requests about groups, as a client sees them."""

from __future__ import annotations

import pytest
from tests.helpers.config_effects import metric
from tests.helpers.raw_peer import RawPeer, ask, refusal
from tests.helpers.running_broker import running_broker

from tidelog.broker.handlers.group_list import SUGGESTIONS
from tidelog.broker.handlers.groups import MAX_NAMES
from tidelog.protocol.errors import (
    GroupExistsError,
    InvalidGroupError,
    InvalidRequestError,
    UnknownGroupError,
)
from tidelog.protocol.messages import (
    AlterGroup,
    BackoffInfo,
    CreateGroup,
    DeleteGroup,
    DeleteGroupReply,
    DescribeGroups,
    DescribeGroupsReply,
    GroupBegin,
    GroupReply,
    GroupSettings,
    GroupStart,
    ResetGroup,
    ResetGroupReply,
)

pytestmark = pytest.mark.trio


async def described(peer: RawPeer, names: list[str] | None = None) -> DescribeGroupsReply:
    """Return what the broker says of groups, in full."""
    reply = await ask(peer, DescribeGroups(names, details=True))
    assert isinstance(reply, DescribeGroupsReply)
    return reply


async def test_groups_are_made_described_changed_moved_and_deleted() -> None:
    """Administration answers with the group as it is then."""
    async with running_broker() as running:
        peer = await running.greeted()
        topic_id = await running.topic(peer, "default/orders", partitions=2)
        settings = GroupSettings(visibility_timeout_us=5_000_000, backoff=BackoffInfo("linear", 1_000, 2_000))
        made = await ask(peer, CreateGroup("default/billing", ["default/orders"], settings=settings))
        assert isinstance(made, GroupReply)
        assert (made.created, made.group.name, made.group.id, made.group.kind) == (True, "default/billing", 1, "queue")
        assert (made.group.generation, made.group.start, made.group.given) == (1, GroupStart("earliest"), settings)
        assert [topic.topic for topic in made.group.topics] == ["default/orders"]
        assert made.group.settings == GroupSettings(
            5_000_000, 4, BackoffInfo("linear", 1_000, 2_000, 2_000, 20), None, True
        )
        assert isinstance(await refusal(peer, CreateGroup("default/billing", ["default/orders"])), GroupExistsError)
        altered = await ask(peer, AlterGroup("default/billing", GroupSettings(max_attempts=7), ["visibility_timeout"]))
        assert isinstance(altered, GroupReply)
        assert (altered.group.settings.visibility_timeout_us, altered.group.settings.max_attempts) == (30_000_000, 7)
        moved = await ask(peer, ResetGroup("default/billing", GroupStart("latest"), "default/orders", 1))
        assert moved == ResetGroupReply([GroupBegin(topic_id, "default/orders", 1, 0)])
        assert await metric(peer, "tidelog_groups") == 1
        (group,) = (await described(peer)).groups
        assert (group.generation, [one.partition for one in group.topics[0].partitions]) == (2, [0, 1])
        assert await ask(peer, DeleteGroup("default/billing")) == DeleteGroupReply(1)
        assert (await described(peer)).groups == []


async def test_unknown_names_are_told_beside_the_others() -> None:
    """What is there is described; of unknown names the first few get a suggestion, as comparing takes long."""
    async with running_broker() as running:
        peer = await running.greeted()
        await running.topic(peer)
        await ask(peer, CreateGroup("default/billing", ["default/t"]))
        names = [f"default/bill-{number}" for number in range(SUGGESTIONS + 1)]
        reply = await described(peer, ["default/billing", *names, "a b"])
        assert [group.name for group in reply.groups] == ["default/billing"]
        errors = [one.error.error() for one in reply.errors]
        assert all(isinstance(error, UnknownGroupError) for error in errors[:-1])
        assert [("did you mean" in error.message) for error in errors] == [True] * SUGGESTIONS + [False, False]
        assert isinstance(errors[-1], InvalidGroupError)
        assert reply.now_us > 1_700_000_000_000_000


@pytest.mark.parametrize("name", ["", "a\nb", "a/b/c", "..", "x" * 117, "a\x1b[2Jb", "größe"])
async def test_a_name_that_is_none_is_refused(name: str) -> None:
    """A name outside the rule never becomes a group; a newline in it is shown escaped."""
    async with running_broker() as running:
        peer = await running.greeted()
        await running.topic(peer)
        error = await refusal(peer, CreateGroup(name, ["default/t"]))
        assert isinstance(error, InvalidGroupError)
        assert "\n" not in error.message
        assert "\x1b" not in error.message
        assert (await described(peer)).groups == []


async def test_too_many_names_are_refused() -> None:
    """A request names as many groups as are looked up without anybody noticing."""
    async with running_broker() as running:
        peer = await running.greeted()
        error = await refusal(peer, DescribeGroups(["default/x"] * (MAX_NAMES + 1)))
        assert isinstance(error, InvalidRequestError)
