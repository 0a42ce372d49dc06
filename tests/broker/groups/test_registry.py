"""Groups by their flows: made, joined, changed, reset and deleted, each by one synced fact."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import SECOND, Core, batch

from tidelog.broker.flow import MAX_WAITING_FLOWS
from tidelog.broker.groups import Group, GroupDefaults
from tidelog.broker.meta import Begin
from tidelog.protocol.errors import (
    GroupExistsError,
    GroupLimitError,
    GroupSettingsError,
    InvalidGroupError,
    OffsetOutOfRangeError,
    TidelogError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnsupportedError,
)
from tidelog.protocol.messages import GroupSettings, GroupStart

E = 2
"""The epoch of a broker's first process."""

EARLIEST, LATEST = GroupStart("earliest"), GroupStart("latest")


def filled(core: Core, name: str = "orders", partitions: int = 1, records: int = 5) -> int:
    """Make a topic with some records in partition 0; its id."""
    topic = core.create(name, partitions)
    if records:
        core.produce(topic.partition(0), batch(*[b"x"] * records))
    return topic.id


def made(
    core: Core, *topics: str, name: str = "g", start: GroupStart | None = None, given: GroupSettings | None = None
) -> Group:
    """Make a group, and return it once it is synced."""
    names = [f"default/{topic}" for topic in topics or ("orders",)]
    return core.wait(core.groups.create(f"default/{name}", names, start=start, settings=given)).group


def refused(core: Core, *topics: str, name: str = "g", kind: str = "queue", exist_ok: bool = False) -> TidelogError:
    """Return why a group cannot be made."""
    names = [f"default/{topic}" for topic in topics]
    with pytest.raises(TidelogError) as caught:
        core.wait(core.groups.create(f"default/{name}", names, kind=kind, exist_ok=exist_ok))
    return caught.value


def test_a_join_makes_the_group_and_is_answered_when_it_is_synced() -> None:
    """The first join waits for the fact; a second one that changes nothing is answered at once."""
    core = Core()
    topic_id = filled(core)
    first = core.groups.join("default/g", [topic_id])
    assert first.is_pending
    joined = core.wait(first)
    assert (joined.created, joined.group.id, joined.group.generation) == (True, 1, 1)
    assert joined.group.begin(topic_id, 0) == Begin(0, E)
    second = core.groups.join("default/g", [topic_id], start=LATEST)
    assert not second.is_pending
    assert (second.result().created, second.result().group) == (False, joined.group)


def test_many_members_that_come_at_once_all_get_in() -> None:
    """Three times as many as may wait for a flow, and one of them gives up: all others are of the one group that is
    made, and who asks for other settings is refused alone."""
    core = Core()
    topic_id = filled(core)
    joins = [core.groups.join("default/g", [topic_id]) for _ in range(3 * MAX_WAITING_FLOWS)]
    other = core.groups.join("default/g", [topic_id], settings=GroupSettings(max_attempts=9))
    joins.pop(0).withdraw()
    core.settle()
    assert {join.result().group.id for join in joins} == {1}
    assert isinstance(other.error, GroupSettingsError)


def test_a_join_that_is_refused_is_not_the_others_fault() -> None:
    """Who waited behind it makes the group."""
    core = Core()
    topic_id = filled(core)
    wrong = core.groups.join("default/g", [topic_id], start=GroupStart("offset", 99))
    right = core.groups.join("default/g", [topic_id])
    core.settle()
    assert isinstance(wrong.error, OffsetOutOfRangeError)
    assert right.result().created


def test_starts_are_offsets_of_the_moment() -> None:
    """Earliest is what is retained, latest what follows, a time the first record at or after it."""
    core = Core()
    topic_id = filled(core, records=2)
    core.advance(10 * SECOND)
    core.produce(core.topic("orders").partition(0), batch(b"y"))
    begun_us = core.time.wall_us()
    assert made(core, name="a").begin(topic_id, 0) == Begin(0, E)
    assert made(core, name="b", start=LATEST).begin(topic_id, 0) == Begin(3, E)
    assert made(core, name="c", start=GroupStart("offset", 1)).begin(topic_id, 0) == Begin(1, E)
    assert made(core, name="d", start=GroupStart("time", begun_us - SECOND)).begin(topic_id, 0) == Begin(2, E)


def test_a_time_to_come_stays_a_time() -> None:
    """A group that begins in an hour begins at the end of now and at that hour, over a restart too."""
    core = Core()
    topic_id = filled(core)
    hour_us = core.time.wall_us() + 3_600 * SECOND
    made(core, start=GroupStart("time", hour_us))
    core = core.after_stop()
    assert core.groups.named("default/g").begin(topic_id, 0) == Begin(5, E, hour_us)


def test_what_is_younger_than_the_group_begins_at_0() -> None:
    """Partitions and topics made after it begin at 0; an older topic that joins later begins by the group's rule."""
    core = Core()
    filled(core, "old", records=4)
    old_id = filled(core)
    group = made(core, start=LATEST)
    core.wait(core.topics.alter("default/orders", partitions=2))
    core.wait(core.topics.alter("default/old", partitions=2))
    new_id = filled(core, "new", records=3)
    core.produce(core.topic("old").partition(1), batch(b"a", b"b"))
    joined = core.wait(core.groups.join("default/g", [core.topic("old").id, old_id, new_id], start=EARLIEST)).group
    assert joined.begin(old_id, 0).offset == 5
    assert group.begin(old_id, 1) == Begin(0, 0)
    assert joined.begin(core.topic("old").id, 0) == Begin(4, E)
    assert joined.begin(core.topic("old").id, 1) == Begin(0, 0)
    assert joined.begin(new_id, 0) == Begin(0, 0)
    assert (joined.id, joined.generation) == (group.id, 1)


def test_settings_are_the_groups_or_the_brokers() -> None:
    """What a group was given holds for it; the rest follows the broker's defaults; a reset follows them again."""
    core = Core(group_defaults=GroupDefaults(visibility_timeout_us=7 * SECOND))
    filled(core)
    group = made(core, given=GroupSettings(max_attempts=9))
    assert (group.settings.visibility_timeout_us, group.settings.retry.max_attempts) == (7 * SECOND, 9)
    altered = core.wait(
        core.groups.alter("default/g", GroupSettings(visibility_timeout_us=2 * SECOND), ["max_attempts"])
    )
    assert (altered.settings.visibility_timeout_us, altered.settings.retry.max_attempts) == (2 * SECOND, 4)
    assert altered.generation == 1
    core = core.after_stop()
    assert core.groups.named("default/g").given == GroupSettings(visibility_timeout_us=2 * SECOND)


def test_a_join_with_other_settings_says_which() -> None:
    """A member that expects another setting is told the setting, what is in force and what it asked for."""
    core = Core()
    topic_id = filled(core)
    made(core, given=GroupSettings(visibility_timeout_us=10 * SECOND))
    asked = GroupSettings(visibility_timeout_us=30 * SECOND)
    with pytest.raises(GroupSettingsError) as caught:
        core.groups.join("default/g", [topic_id], settings=asked)
    assert caught.value.details == {"setting": "visibility_timeout", "in_force": "10s", "asked": "30s"}
    same = core.groups.join("default/g", [topic_id], settings=GroupSettings(visibility_timeout_us=10 * SECOND))
    assert not same.is_pending


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (GroupSettings(visibility_timeout_us=999_999), "visibility_timeout: expected 1s to 12h, found 999999us"),
        (GroupSettings(visibility_timeout_us=43_201 * SECOND), "visibility_timeout: expected 1s to 12h, found 43201s"),
        *(
            (
                GroupSettings(dead_letter_topic=name),
                "dead_letter_topic: expected the full name of a topic that is not the broker's own, found "
                + repr(name),
            )
            for name in ("failures", "default/__own", "a/b/c", "default/a b", "")
        ),
        (
            GroupSettings(dead_letter_topic="default/orders"),
            "dead_letter_topic: expected a topic that the group does not read, found orders",
        ),
    ],
)
def test_settings_have_bounds(settings: GroupSettings, text: str) -> None:
    """A value out of range is refused with the range, and no group is made."""
    core = Core()
    topic_id = filled(core)
    with pytest.raises(InvalidGroupError) as caught:
        core.wait(core.groups.join("default/g", [topic_id], settings=settings))
    assert caught.value.message == text
    assert len(core.groups) == 0


def test_a_group_cannot_come_to_read_its_own_dead_letters() -> None:
    """Neither by a setting, nor by a topic that it joins: it would be given the same message for ever."""
    core = Core()
    filled(core)
    failures = filled(core, "failures")
    made(core, given=GroupSettings(dead_letter_topic="default/failures"))
    with pytest.raises(InvalidGroupError, match="a topic that the group does not read, found failures"):
        core.wait(core.groups.join("default/g", [failures]))
    with pytest.raises(InvalidGroupError, match="a topic that the group does not read, found orders"):
        core.wait(core.groups.alter("default/g", GroupSettings(dead_letter_topic="default/orders"), []))
    assert [*core.groups.named("default/g").topic_ids] == [failures - 1]


def test_topics_that_groups_name_for_dead_letters_are_known_while_they_do() -> None:
    """Two groups may name one; it is one until neither does."""
    core = Core()
    filled(core)
    named = GroupSettings(dead_letter_topic="default/failures")
    made(core, given=named)
    made(core, name="h", given=named)
    made(core, name="i", given=GroupSettings(dead_letter_topic="default/others"))
    assert core.groups.dead_letter_topics == {"default/failures", "default/others"}
    core.wait(core.groups.delete("default/g"))
    core.wait(core.groups.alter("default/i", GroupSettings(), ["dead_letter_topic"]))
    core = core.after_stop()
    assert core.groups.dead_letter_topics == {"default/failures"}
    core.wait(core.groups.delete("default/h"))
    assert core.groups.dead_letter_topics == set()


def test_what_cannot_be_made_is_refused() -> None:
    """Each reason has its error, and none leaves a group behind."""
    core = Core(group_defaults=GroupDefaults(max_groups=1))
    topic_id = filled(core, partitions=2)
    assert isinstance(refused(core, "ordrs"), UnknownTopicError)
    assert isinstance(refused(core), InvalidGroupError)
    assert isinstance(refused(core, "orders", kind="stream"), UnsupportedError)
    assert isinstance(refused(core, "orders", kind="stack"), InvalidGroupError)
    assert isinstance(refused(core, "orders", name="__own"), InvalidGroupError)
    with pytest.raises(UnknownTopicIdError):
        core.wait(core.groups.join("default/g", [topic_id + 1]))
    with pytest.raises(InvalidGroupError, match="found 2 partitions"):
        core.wait(core.groups.join("default/g", [topic_id], start=GroupStart("offset", 1)))
    assert len(core.groups) == 0
    made(core)
    assert isinstance(refused(core, "orders"), GroupExistsError)
    assert isinstance(refused(core, "orders", name="h"), GroupLimitError)
    again = core.wait(core.groups.create("default/g", ["default/orders"], exist_ok=True))
    assert (again.created, again.group.id) == (False, 1)


def test_a_reset_moves_what_it_names() -> None:
    """One fact, a new generation for the partitions that it moves, and the members of the one before are fenced."""
    core = Core()
    topic_id = filled(core, partitions=2)
    group = made(core)
    begins = core.wait(core.groups.reset("default/g", GroupStart("offset", 3), topic="default/orders", partition=0))
    assert begins == {topic_id: {0: Begin(3, E, 0, 2)}}
    moved = core.groups.by_id(group.id)
    begun = (moved.begin(topic_id, 0), moved.begin(topic_id, 1))
    assert (moved.generation, begun) == (2, (Begin(3, E, 0, 2), Begin(0, E)))
    with pytest.raises(UnknownGroupError, match="was reset"):
        core.groups.by_id(group.id, generation=1)
    core.wait(core.groups.reset("default/g", LATEST))
    assert core.groups.by_id(group.id, generation=3).begin(topic_id, 0) == Begin(5, E, 0, 3)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        core.wait(core.groups.reset("default/g", GroupStart("offset", 6), partition=0))
    assert caught.value.details == {"start": 0, "end": 5}
    with pytest.raises(UnknownPartitionError):
        core.wait(core.groups.reset("default/g", EARLIEST, partition=2))


def test_a_group_that_is_gone_is_unknown_and_its_id_is_not_used_again() -> None:
    """Deleted, a name is free, an old id is unknown; the nearest name is suggested."""
    core = Core()
    topic_id = filled(core)
    first = made(core, name="billing")
    made(core, name="audit")
    assert core.wait(core.groups.delete("default/billing")) == 1
    with pytest.raises(UnknownGroupError):
        core.groups.by_id(first.id)
    with pytest.raises(UnknownGroupError) as caught:
        core.groups.named("default/audi")
    assert caught.value.message == 'no group "audi"; did you mean "audit"?'
    core = core.after_stop()
    assert core.wait(core.groups.join("default/billing", [topic_id])).group.id == 3


def test_a_deleted_topic_leaves_its_groups() -> None:
    """The group stays with what is left, and reads a topic made again under the name only when it joins."""
    core = Core()
    filled(core)
    other_id = filled(core, "other")
    made(core, "orders", "other")
    core.wait(core.topics.delete("default/orders"))
    assert list(core.groups.named("default/g").topic_ids) == [other_id]
    again = filled(core)
    assert core.groups.reading(again) == []


class Told:
    """What an observer was told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def group_changed(self, group: Group, before: Group) -> None:
        self.said.append(f"{group.id}: {before.generation} -> {group.generation}")

    def group_gone(self, group: Group) -> None:
        self.said.append(f"{group.id} gone")


def test_who_serves_groups_is_told_once_it_is_synced() -> None:
    """A reset and a deletion reach those who serve, in order, and not before they are on record."""
    core = Core()
    filled(core)
    made(core)
    told = Told()
    core.groups.observers.append(told)
    core.groups.reset("default/g", LATEST)
    assert told.said == []
    core.settle()
    core.wait(core.groups.delete("default/g"))
    assert told.said == ["1: 1 -> 2", "1 gone"]
