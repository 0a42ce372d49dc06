"""The fold over facts: the same state live, replayed, and from a snapshot anywhere between."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.broker.meta.facts import (
    DamageRemoved,
    EpochRaised,
    Fact,
    PartitionsMade,
    ProducerIdsReserved,
    ProducerNamed,
    RangeQuarantined,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
)
from tidelog.broker.meta.state import MetaState, NamedProducer, Quarantine, apply
from tidelog.broker.producer_id import NAMED_PRODUCER


def folded(*facts: Fact) -> MetaState:
    """The state after these facts."""
    state = MetaState()
    for fact in facts:
        apply(state, fact)
    return state


def created(topic_id: int, name: str, count: int = 1, partitions: int = 2) -> TopicCreated:
    return TopicCreated(topic_id, name, count, partitions, {}, 5)


def test_a_topic_lives_changes_and_dies() -> None:
    """Creation, change and tombstone move the metadata version; ids and counts are never used again."""
    state = folded(created(1, "default/a"), created(2, "default/b"))
    assert (state.version, state.next_topic_id, state.partitions) == (2, 3, 4)
    apply(state, TopicAltered(1, 3, {"retention": None}))
    topic = state.topics[1]
    assert (topic.partitions, topic.settings, topic.changed_version) == (3, {"retention": None}, 3)
    apply(state, TopicDeleted(1))
    assert (state.names, state.tombstones, state.version) == ({"default/b": 2}, {1}, 4)
    assert (state.next_topic_id, state.counts["default/a"]) == (3, 1)
    apply(state, TopicRemoved(1))
    assert state.tombstones == set()


def test_a_name_used_again_counts_on() -> None:
    """A topic made again under its name has another id and the next count."""
    state = folded(created(1, "default/a"), TopicDeleted(1), created(2, "default/a", count=2))
    assert state.names == {"default/a": 2}
    assert state.counts == {"default/a": 2}


def test_producer_identities() -> None:
    """Blocks only move forward; a name keeps its id and has its latest epoch."""
    first, second = NAMED_PRODUCER | 1, NAMED_PRODUCER | 2
    state = folded(
        ProducerIdsReserved(100),
        ProducerNamed("x", first, 0),
        ProducerNamed("y", second, 0),
        ProducerNamed("x", first, 1),
    )
    assert state.producer_ids_upto == 100
    assert state.named == {"x": NamedProducer(first, 1), "y": NamedProducer(second, 0)}
    assert state.named_epochs == {first: 1, second: 0}
    assert state.next_named_id == 3


def test_quarantines_go_with_their_topic() -> None:
    """A damaged range is kept once, by log, until its topic is deleted."""
    log_id = 1 << 32 | 1
    state = folded(created(1, "default/a"), *[RangeQuarantined(log_id, 5, 9, 4)] * 2)
    assert state.quarantined == {log_id: [Quarantine(5, 9, 4)]}
    apply(state, TopicDeleted(1))
    assert state.quarantined == {}


def test_a_quarantine_is_kept_once_however_often_it_is_said() -> None:
    """A range that a later or equal one covers is dropped; an earlier epoch's word is worth less and covers nothing."""
    log_id = 1 << 32 | 1
    state = folded(*[RangeQuarantined(log_id, 5, 9, epoch) for epoch in (4, 5, 6)], RangeQuarantined(log_id, 6, 8, 5))
    assert state.quarantined == {log_id: [Quarantine(5, 9, 6)]}
    apply(state, RangeQuarantined(log_id, 4, 10, 5))
    assert state.quarantined == {log_id: [Quarantine(5, 9, 6), Quarantine(4, 10, 5)]}
    apply(state, RangeQuarantined(log_id, 0, 20, 7))
    assert state.quarantined == {log_id: [Quarantine(0, 20, 7)]}


def test_damage_goes_with_the_records() -> None:
    """What retention removed is forgotten, a range that reaches beyond it is not."""
    log_id = 1 << 32 | 1
    state = folded(RangeQuarantined(log_id, 5, 9, 4), RangeQuarantined(log_id, 12, 15, 4), DamageRemoved(log_id, 14))
    assert state.quarantined == {log_id: [Quarantine(12, 15, 4)]}
    apply(state, DamageRemoved(log_id, 15))
    apply(state, DamageRemoved(log_id, 15))
    assert state.quarantined == {}


def session_of(name: int, epoch: int) -> ProducerNamed:
    return ProducerNamed("abc"[name], NAMED_PRODUCER | name, epoch)


FACTS = st.lists(
    st.one_of(
        st.builds(EpochRaised, st.integers(1, 9)),
        st.builds(ProducerIdsReserved, st.integers(1, 1 << 40)),
        st.builds(session_of, st.integers(0, 2), st.integers(0, 5)),
        st.builds(RangeQuarantined, st.just(5 << 32 | 1), st.integers(0, 5), st.integers(6, 9), st.integers(1, 3)),
        st.builds(DamageRemoved, st.just(5 << 32 | 1), st.integers(0, 9)),
        st.sampled_from(["create", "alter", "delete", "remove", "made"]),
    ),
    max_size=30,
)


def realise(steps: list[Fact | str]) -> list[Fact]:
    """Turn steps into facts that could follow one another."""
    facts: list[Fact] = []
    live: list[int] = []
    count = 0
    for step in steps:
        if isinstance(step, Fact):
            facts.append(step)
        elif step == "create":
            count += 1
            live.append(count)
            facts.append(created(count, f"default/{count % 3}-{count}"))
        elif live and step == "alter":
            facts.append(TopicAltered(live[0], 4, {"segment_bytes": 65536}))
        elif live and step == "made":
            facts.append(PartitionsMade(live[-1], 2))
        elif live and step == "delete":
            facts.append(TopicDeleted(live.pop()))
        elif count and step == "remove":
            facts.append(TopicRemoved(count))
    return facts


@settings(max_examples=60, deadline=None)
@given(steps=FACTS, cut=st.floats(0, 1))
def test_a_snapshot_anywhere_leads_to_the_same_state(steps: list[Fact | str], cut: float) -> None:
    """Restoring a snapshot and applying the facts after it gives the state of all facts."""
    facts = realise(steps)
    place = round(len(facts) * cut)
    restored = MetaState()
    restored.restore(folded(*facts[:place]).snapshot())
    for fact in facts[place:]:
        apply(restored, fact)
    assert restored == folded(*facts)
