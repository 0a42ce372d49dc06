"""A list of groups that is longer than a reply: it is told in pieces, and what changes meanwhile breaks nothing."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take

from tidelog.broker import page_room
from tidelog.protocol.errors import InvalidRequestError
from tidelog.protocol.limits import MAX_CONTROL_BYTES
from tidelog.protocol.messages import (
    CreateGroup,
    DescribeGroups,
    DescribeGroupsReply,
    GroupPlace,
    GroupReply,
    GroupStart,
    encode,
)


def with_groups(*names: str, partitions: int = 1) -> QueueCore:
    """A core with these groups, that read one topic."""
    core = QueueCore()
    core.create("orders", partitions)
    for name in names:
        make(core, name)
    return core


def make(core: QueueCore, name: str) -> None:
    """Make a group that reads the topic."""
    core.wait(core.groups.create(f"default/{name}", ["default/orders"], start=GroupStart("earliest")))


def ask(
    core: QueueCore, place: GroupPlace | None, names: list[str] | None = None, *, details: bool = True
) -> DescribeGroupsReply:
    """Return one reply, read back from its bytes."""
    reply = core.door().ask(DescribeGroups(names, details, place)).message()
    assert isinstance(reply, DescribeGroupsReply)
    return reply


def names_of(reply: DescribeGroupsReply) -> list[str]:
    """The groups of one reply, by their short names."""
    assert reply.errors == []
    return [group.name.removeprefix("default/") for group in reply.groups]


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply has room for three groups of one partition."""
    monkeypatch.setattr(page_room, "PAGE_BYTES", 3_000)


@pytest.fixture
def tiny_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply has room for one partition, or one member."""
    monkeypatch.setattr(page_room, "PAGE_BYTES", 1)


@pytest.mark.usefixtures("small_pages")
def test_a_long_list_is_told_in_pieces() -> None:
    """By name, each group once; the last reply names no place. Who names no place gets all at once."""
    core = with_groups("e", "a", "d", "b", "c")
    first = ask(core, GroupPlace())
    assert (names_of(first), first.place) == (["a", "b", "c"], GroupPlace("default/d"))
    last = ask(core, first.place)
    assert (names_of(last), last.place) == (["d", "e"], None)
    whole = ask(core, None)
    assert (names_of(whole), whole.place) == (["a", "b", "c", "d", "e"], None)


@pytest.mark.usefixtures("small_pages")
def test_a_place_names_a_group_that_is_deleted_meanwhile() -> None:
    """The list goes on with the next by name."""
    core = with_groups("a", "b", "c", "d", "e")
    place = ask(core, GroupPlace()).place
    assert place == GroupPlace("default/d")
    core.wait(core.groups.delete("default/d"))
    assert names_of(ask(core, place)) == ["e"]


@pytest.mark.usefixtures("small_pages")
def test_groups_that_are_made_meanwhile() -> None:
    """One behind the place is told, one before it is not; nothing is told twice."""
    core = with_groups("a", "b", "c", "d", "e")
    place = ask(core, GroupPlace()).place
    for name in ("aa", "dd"):
        make(core, name)
    assert names_of(ask(core, place)) == ["d", "dd", "e"]


@pytest.mark.usefixtures("small_pages")
def test_a_place_behind_all_groups_is_the_end() -> None:
    """Nothing is left, and that is no error."""
    core = with_groups("a", "b", "c", "d")
    place = ask(core, GroupPlace()).place
    core.wait(core.groups.delete("default/d"))
    assert ask(core, place) == DescribeGroupsReply([], [], core.time.wall_us(), None)


@pytest.mark.usefixtures("small_pages")
def test_names_are_told_in_their_order_with_errors_in_their_place() -> None:
    """Each name is a group or an error; the rest is asked for by the names that are left."""
    core = with_groups("a", "b", "c", "d", "e")
    first = ask(core, GroupPlace(), ["d", "x", "c", "b", "a", "e"])
    assert [group.name for group in first.groups] == ["default/d", "default/c", "default/b"]
    assert [error.name for error in first.errors] == ["x"]
    assert first.place == GroupPlace("a")
    assert names_of(ask(core, first.place, ["a", "e"])) == ["a", "e"]


@pytest.mark.usefixtures("tiny_pages")
def test_one_group_is_told_in_pieces() -> None:
    """Partition by partition, topic by topic, and its members by number behind them."""
    core = with_groups(partitions=2)
    core.create("more", 1)
    core.wait(core.groups.create("default/g", ["default/orders", "default/more"], start=GroupStart("earliest")))
    core.produce(core.topic("orders").partition(0), batch(b"a", b"b"))
    book, _events = notebook(core)
    for number in (9, 4):
        take(core, member_of(core, book, number), 1)
    place: GroupPlace | None = GroupPlace()
    told: list[tuple[list[tuple[str, list[int]]], list[int], GroupPlace | None]] = []
    while place is not None:
        reply = ask(core, place)
        (group,) = reply.groups
        topics = [(topic.topic, [one.partition for one in topic.partitions]) for topic in group.topics]
        place = reply.place
        told.append((topics, [member.member for member in group.members], place))
    assert told == [
        ([("default/orders", [0])], [], GroupPlace("default/g", 1, 1, 1)),
        ([("default/orders", [1])], [], GroupPlace("default/g", 1, 2)),
        ([("default/more", [0])], [], GroupPlace("default/g", 1, 0, 0, 4)),
        ([], [4], GroupPlace("default/g", 1, 0, 0, 9)),
        ([], [9], None),
    ]


@pytest.mark.usefixtures("tiny_pages")
def test_a_group_that_is_made_again_meanwhile_is_told_from_its_beginning() -> None:
    """It has another id: what was told is of the one that is gone."""
    core = with_groups("g", partitions=3)
    place = ask(core, GroupPlace()).place
    assert place == GroupPlace("default/g", 1, 1, 1)
    core.wait(core.groups.delete("default/g"))
    make(core, "g")
    (group,) = ask(core, place).groups
    assert (group.id, [one.partition for one in group.topics[0].partitions]) == (2, [0])


@pytest.mark.usefixtures("tiny_pages")
def test_a_group_without_details_is_told_in_pieces_too() -> None:
    """Topic by topic: one may read ten thousand."""
    core = with_groups()
    for name in ("t2", "t3"):
        core.create(name, 1)
    core.wait(core.groups.create("default/g", [f"default/{name}" for name in ("t3", "orders", "t2")]))
    place: GroupPlace | None = GroupPlace()
    told: list[list[str]] = []
    while place is not None:
        reply = ask(core, place, details=False)
        told.append([topic.topic for topic in reply.groups[0].topics])
        place = reply.place
    assert told == [["default/orders"], ["default/t2"], ["default/t3"]]


@pytest.mark.usefixtures("tiny_pages")
def test_a_change_is_answered_with_what_fits() -> None:
    """And with where the rest is told."""
    core = with_groups(partitions=3)
    call = core.door().ask(CreateGroup("default/g", ["default/orders"]))
    core.settle()
    reply = call.message()
    assert isinstance(reply, GroupReply)
    assert [one.partition for one in reply.group.topics[0].partitions] == [0]
    assert reply.place == GroupPlace("default/g", 1, 1, 1)
    assert [one.partition for one in ask(core, reply.place).groups[0].topics[0].partitions] == [1]


def test_a_list_beyond_the_largest_reply() -> None:
    """4,000 groups of 16 partitions are some 6 MiB: all at once they are refused, and the connection is as it was; in
    pieces of some 1 MiB every partition of every group is told once."""
    core = with_groups(partitions=16)
    for number in range(4_000):
        core.groups.create(f"default/{'group' * 20}-{number:04}", ["default/orders"])
        if number % 500 == 499:
            core.settle()
    door = core.door()
    with pytest.raises(InvalidRequestError, match="expected to be asked for a reply of at most 4194304 bytes, found"):
        door.ask(DescribeGroups(None, details=True)).message()
    place: GroupPlace | None = GroupPlace()
    partitions, sizes = 0, list[int]()
    found: list[str] = []
    while place is not None:
        reply = door.ask(DescribeGroups(None, details=True, place=place)).message()
        assert isinstance(reply, DescribeGroupsReply)
        sizes.append(len(encode(reply)))
        found += names_of(reply)
        partitions += sum(len(group.topics[0].partitions) for group in reply.groups)
        place = reply.place
    assert (len(set(found)), found == sorted(found), partitions) == (4_000, True, 64_000)
    assert max(sizes) <= (1 << 20) + 4_096 < MAX_CONTROL_BYTES < sum(sizes)


def test_the_longest_members_list_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are as many as ask: a hundred with long names are told in pieces of 1,000 bytes."""
    monkeypatch.setattr(page_room, "PAGE_BYTES", 1_000)
    core = with_groups()
    book, _events = notebook(core)
    for number in range(1, 101):
        take(core, member_of(core, book, number, given=settings()), 1)
    place: GroupPlace | None = GroupPlace()
    members: list[int] = []
    while place is not None:
        reply = ask(core, place)
        members += [member.member for member in reply.groups[0].members]
        place = reply.place
    assert members == list(range(1, 101))
