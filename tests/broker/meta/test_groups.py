"""What the facts make of groups: begins, generations, ids, and the same state from a snapshot anywhere."""

from __future__ import annotations

import pytest

from tidelog.broker.meta.facts import (
    Begin,
    Fact,
    GroupAltered,
    GroupCreated,
    GroupDeleted,
    GroupReset,
    GroupStarted,
    GroupTopicsJoined,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
)
from tidelog.broker.meta.meta_log import MetaFold
from tidelog.broker.meta.state import MetaState, apply
from tidelog.protocol.messages import GroupSettings, GroupStart

LATEST = GroupStart("latest")


def topic(topic_id: int, partitions: int = 2) -> TopicCreated:
    return TopicCreated(topic_id, f"default/t{topic_id}", 1, partitions, {}, 5)


def group(group_id: int, *topics: int, name: str = "") -> GroupCreated:
    begins = {topic_id: {0: Begin(7, 3), 1: Begin(9, 3)} for topic_id in topics}
    name = name or f"default/g{group_id}"
    return GroupCreated(group_id, name, "queue", LATEST, GroupSettings(max_attempts=3), begins, 100)


def folded(*facts: Fact) -> MetaState:
    """The state after these facts."""
    state = MetaState()
    for fact in facts:
        apply(state, fact)
    return state


def test_a_group_begins_where_it_was_made() -> None:
    """Each partition has its begin; one that is younger than the group has offset 0."""
    state = folded(topic(1), group(1, 1), TopicAltered(1, 3, {}))
    made = state.groups.by_id[1]
    assert (made.begin(1, 0), made.begin(1, 1), made.begin(1, 2)) == (Begin(7, 3), Begin(9, 3), Begin(0, 0))
    assert (made.generation, made.start, state.groups.names) == (1, LATEST, {"default/g1": 1})


def test_a_reset_is_a_new_generation_of_what_it_moves() -> None:
    """A reset of one partition leaves the others' begins and generations as they are."""
    state = folded(topic(1), group(1, 1), GroupReset(1, 2, {1: {1: Begin(0, 4, generation=2)}}))
    made = state.groups.by_id[1]
    assert made.generation == 2
    assert (made.begin(1, 0), made.begin(1, 1)) == (Begin(7, 3, 0, 1), Begin(0, 4, 0, 2))


def test_a_start_at_a_time_becomes_an_offset() -> None:
    """What was begun at a time is begun at the offset that the time turned out to be."""
    state = folded(topic(1), group(1, 1), GroupReset(1, 2, {1: {0: Begin(50, 4, 1_000, 2)}}))
    apply(state, GroupStarted(1, 1, 0, Begin(61, 5, generation=2)))
    assert state.groups.by_id[1].begin(1, 0) == Begin(61, 5, 0, 2)


def test_topics_join_and_leave() -> None:
    """A topic that joins has its begins; one that is deleted leaves every group, and takes nothing else with it."""
    state = folded(topic(1), topic(2), group(1, 1), group(2, 1, 2), GroupTopicsJoined(1, {2: {0: Begin(4, 3)}}))
    apply(state, TopicDeleted(1))
    assert {one.id: sorted(one.begins) for one in state.groups.by_id.values()} == {1: [2], 2: [2]}
    assert state.groups.by_id[1].begin(2, 0) == Begin(4, 3)


def test_ids_are_never_used_again() -> None:
    """After a deletion the name is free and the id is not, also after a restart from a snapshot."""
    state = folded(topic(1), group(1, 1), group(2, 1), GroupDeleted(2))
    assert (state.groups.next_id, state.groups.names) == (3, {"default/g1": 1})
    restored = MetaState()
    restored.groups.restore(state.groups.snapshot())
    assert restored.groups == state.groups
    apply(restored, group(3, 1, name="default/g2"))
    assert restored.groups.names == {"default/g1": 1, "default/g2": 3}


def test_a_published_record_stays_as_it_was() -> None:
    """A later fact replaces a group's record; who holds the one before sees nothing of it."""
    state = folded(topic(1), topic(2), group(1, 1))
    before = state.groups.by_id[1]
    for fact in (
        GroupAltered(1, GroupSettings()),
        GroupTopicsJoined(1, {2: {}}),
        GroupReset(1, 2, {1: {0: Begin(0, 0)}}),
    ):
        apply(state, fact)
    assert (before.settings.max_attempts, sorted(before.begins), before.generation) == (3, [1], 1)
    assert before.begin(1, 0) == Begin(7, 3)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_partitions_are_known_by_when_they_were_made(version: int) -> None:
    """What a group younger than a partition finds old, one that is older finds new."""
    state = folded(topic(1), topic(2, 4), TopicAltered(1, 5, {}), TopicAltered(1, 5, {"retention": None}))
    assert state.topics[1].partitions_at(version) == [0, 2, 2, 5, 5][version]
    assert state.topics[2].partitions_at(version) == [0, 0, 4, 4, 4][version]


FACTS: list[Fact] = [
    topic(1),
    topic(2),
    group(1, 1),
    group(2, 1, 2),
    GroupAltered(1, GroupSettings(visibility_timeout_us=5_000_000)),
    GroupTopicsJoined(1, {2: {0: Begin(1, 3)}}),
    GroupReset(2, 2, {2: {1: Begin(30, 3, 99, 2)}}),
    GroupStarted(2, 2, 1, Begin(31, 3, generation=2)),
    TopicDeleted(1),
    GroupDeleted(1),
]


@pytest.mark.parametrize("place", range(len(FACTS) + 1))
def test_a_snapshot_anywhere_leads_to_the_same_state(place: int) -> None:
    """The sections of a snapshot and the facts after it give the state of all facts."""
    fold, restored = MetaFold(), MetaFold()
    fold.state = folded(*FACTS[:place])
    sections = fold.freeze()()
    assert {section.id for section in sections} <= fold.section_ids()
    restored.restore(sections)
    for fact in FACTS[place:]:
        apply(restored.state, fact)
    assert restored.state == folded(*FACTS)


def test_without_groups_a_snapshot_is_as_it_was() -> None:
    """A broker that never had a group writes what earlier versions read; with one they refuse, and lose none."""
    fold = MetaFold()
    fold.state = folded(topic(1))
    assert [section.id for section in fold.freeze()()] == [16]
    apply(fold.state, group(1, 1))
    assert [(section.id, section.optional) for section in fold.freeze()()] == [(16, False), (17, False)]
