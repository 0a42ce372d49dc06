"""A list of topics, and of where a group begins, that is longer than a reply: it is told in pieces."""

from __future__ import annotations

import pytest
from tests.helpers.queue_core import QueueCore

from tidelog.broker import page_room
from tidelog.protocol.messages import (
    AlterTopic,
    CreateTopic,
    GroupBegin,
    GroupStart,
    Message,
    Metadata,
    MetadataReply,
    ResetGroup,
    ResetGroupReply,
    TopicPlace,
    TopicReply,
)


def with_topics(**partitions: int) -> QueueCore:
    """A core with these topics."""
    core = QueueCore()
    for name, count in partitions.items():
        core.create(name, count)
    return core


def answer(core: QueueCore, request: Message) -> Message:
    """Return what a request is answered with, read back from its bytes."""
    call = core.door().ask(request)
    core.settle()
    return call.message()


def ask(core: QueueCore, place: TopicPlace | None, names: list[str] | None = None) -> MetadataReply:
    """Return one reply."""
    reply = answer(core, Metadata(names, details=True, place=place))
    assert isinstance(reply, MetadataReply)
    return reply


def told(reply: MetadataReply) -> list[tuple[str, list[int]]]:
    """The topics of one reply, with their partitions."""
    return [(info.name.removeprefix("default/"), [one.index for one in info.partitions]) for info in reply.topics]


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply has room for one partition."""
    monkeypatch.setattr(page_room, "PAGE_BYTES", 1)


@pytest.mark.usefixtures("tiny_pages")
def test_topics_are_told_in_pieces() -> None:
    """By name, partition by partition; who names no place gets all at once."""
    core = with_topics(b=1, a=2)
    first = ask(core, TopicPlace())
    assert (told(first), first.place) == ([("a", [0])], TopicPlace("default/a", 2, 1))
    second = ask(core, first.place)
    assert (told(second), second.place) == ([("a", [1])], TopicPlace("default/b"))
    last = ask(core, second.place)
    assert (told(last), last.place) == ([("b", [0])], None)
    assert told(ask(core, None)) == [("a", [0, 1]), ("b", [0])]


@pytest.mark.usefixtures("tiny_pages")
def test_topics_that_change_meanwhile() -> None:
    """One that is deleted is passed over, one that is made is told if its name is behind the place, and one that was
    made again is told from its beginning."""
    core = with_topics(a=1, c=1, e=2)
    place = ask(core, TopicPlace()).place
    assert place == TopicPlace("default/c")
    core.wait(core.topics.delete("default/c"))
    for name in ("aa", "d"):
        core.create(name, 1)
    found = ask(core, place)
    assert (told(found), found.place) == ([("d", [0])], TopicPlace("default/e"))
    place = ask(core, found.place).place
    assert place == TopicPlace("default/e", 3, 1)
    core.wait(core.topics.delete("default/e"))
    core.create("e", 1)
    assert told(ask(core, place)) == [("e", [0])]


@pytest.mark.usefixtures("tiny_pages")
def test_named_topics_are_told_in_the_order_of_their_names() -> None:
    """Errors have their place among them; the rest is asked for by the names that are left."""
    core = with_topics(a=1, b=2)
    first = ask(core, TopicPlace(), ["default/x", "default/b", "default/a"])
    assert ([error.name for error in first.errors], told(first)) == (["default/x"], [])
    assert first.place == TopicPlace("default/b")
    second = ask(core, first.place, ["default/b", "default/a"])
    assert (told(second), second.place) == ([("b", [0])], TopicPlace("default/b", 2, 1))
    third = ask(core, second.place, ["default/b", "default/a"])
    assert (told(third), third.place) == ([("b", [1])], TopicPlace("default/a"))
    assert told(ask(core, third.place, ["default/a"])) == [("a", [0])]


@pytest.mark.usefixtures("tiny_pages")
@pytest.mark.parametrize("request_", [CreateTopic("default/t", 3), AlterTopic("default/u", 3)])
def test_a_change_of_a_topic_is_answered_with_what_fits(request_: Message) -> None:
    """And with where the rest is told."""
    core = with_topics(u=1)
    reply = answer(core, request_)
    assert isinstance(reply, TopicReply)
    assert [one.index for one in reply.topic.partitions] == [0]
    assert reply.place == TopicPlace(reply.topic.name, reply.topic.id, 1)


@pytest.mark.usefixtures("tiny_pages")
def test_where_a_group_begins_is_told_in_pieces() -> None:
    """The move is made once; the rest is asked for with a place, which moves nothing, and is as it is then."""
    core = with_topics(a=2, b=2)
    core.wait(core.groups.create("default/g", ["default/a", "default/b"], start=GroupStart("earliest")))
    move = ResetGroup("default/g", GroupStart("latest"))
    reply = answer(core, move)
    assert reply == ResetGroupReply([GroupBegin(1, "default/a", 0, 0)], (1, 1))
    assert core.groups.named("default/g").generation == 2
    move.place = (1, 1)
    assert answer(core, move) == ResetGroupReply([GroupBegin(1, "default/a", 1, 0)], (2, 0))
    core.wait(core.topics.delete("default/a"))
    assert answer(core, move) == ResetGroupReply([GroupBegin(2, "default/b", 0, 0)], (2, 1))
    move.place, move.topic, move.partition = (2, 0), "default/b", 1
    assert answer(core, move) == ResetGroupReply([GroupBegin(2, "default/b", 1, 0)], None)
    assert core.groups.named("default/g").generation == 2
