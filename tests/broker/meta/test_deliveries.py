"""What is recorded of delivery logs: which were made, and whose part of one is lost."""

from __future__ import annotations

from tidelog.broker.meta import DeliveryDegraded, DeliveryMade, GroupDeleted, TopicCreated, TopicDeleted
from tidelog.broker.meta.facts import Fact, GroupCreated
from tidelog.broker.meta.state import MetaState, apply
from tidelog.protocol.messages import GroupSettings, GroupStart


def state_of(*facts: Fact) -> MetaState:
    """The state after a topic of id 1, a group of id 1 that reads it, and these facts."""
    state = MetaState()
    made = GroupCreated(1, "default/g", "queue", GroupStart("earliest"), GroupSettings(), {1: {}}, 5)
    for fact in (TopicCreated(1, "default/t", 1, 2, {}, 5), made, *facts):
        apply(state, fact)
    return state


def test_what_was_made_and_lost_survives_a_snapshot() -> None:
    """A snapshot leads to the same."""
    state = state_of(DeliveryMade(1, 0), DeliveryMade(1, 1), DeliveryDegraded(1, 0, {1: 3}))
    restored = MetaState()
    restored.deliveries.restore(state.deliveries.snapshot())
    assert restored.deliveries.made == {(1, 0), (1, 1)}
    assert restored.deliveries.degraded == {(1, 0): {1: 3}}


def test_a_later_loss_adds_to_the_first() -> None:
    """A group that was not there at the first is degraded too, one that was reset since in its new life."""
    state = state_of(DeliveryDegraded(1, 0, {1: 3}), DeliveryDegraded(1, 0, {1: 4, 2: 1}))
    assert state.deliveries.degraded == {(1, 0): {1: 4, 2: 1}}


def test_a_deleted_topic_leaves_nothing() -> None:
    """Nor do facts that come after its tombstone."""
    state = state_of(DeliveryMade(1, 0), DeliveryDegraded(1, 0, {1: 3}), TopicDeleted(1), DeliveryMade(1, 1))
    assert not state.deliveries.made
    assert not state.deliveries.degraded


def test_a_deleted_group_is_degraded_no_more() -> None:
    """Its part of the record is nobody's."""
    state = state_of(DeliveryMade(1, 0), DeliveryDegraded(1, 0, {1: 3}), GroupDeleted(1))
    assert not state.deliveries.degraded
