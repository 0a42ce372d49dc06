"""What is answered of dead letters is on record for good: whoever is told may forget them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.helpers.broker_core import Core
from tests.helpers.redriving import Redriving

from tidelog.broker.deferred import Deferred
from tidelog.broker.storage.log import Log
from tidelog.protocol.messages import PurgeReply, RedriveReply

Ask = Callable[[Redriving], Deferred[RedriveReply] | Deferred[PurgeReply]]


def in_place(redriving: Redriving) -> Deferred[RedriveReply]:
    """Bring three back."""
    return redriving.ask([(0, 3)])


def as_new(redriving: Redriving) -> Deferred[RedriveReply]:
    """Publish three anew."""
    return redriving.ask([(0, 3)], as_new=True)


def purge(redriving: Redriving) -> Deferred[PurgeReply]:
    """Give three up for good."""
    return redriving.ask_purge([(0, 3)])


def delivery_of(redriving: Redriving, topic: str) -> Log:
    """Where it is recorded what becomes of a topic's messages."""
    log = redriving.core.topic(topic).partition(0).delivery.log
    assert log is not None
    return log.log


@pytest.mark.parametrize(
    ("ask", "is_gone"), [(in_place, False), (as_new, False), (as_new, True), (purge, False), (purge, True)]
)
def test_nothing_is_answered_before_it_is_synced(ask: Ask, *, is_gone: bool) -> None:
    """Whether their group is there or was deleted: in the round that brings the answer, nothing waits for another."""
    redriving = Redriving.begin(Core())
    core = redriving.core
    redriving.purge([(7, 8)])  # so the log is there
    if is_gone:
        core.wait(core.groups.delete("default/g"))
        core.settle()
    log = delivery_of(redriving, "orders.dlq")
    before = log.end_offset
    answer = ask(redriving)
    while answer.is_pending:
        assert core.begin_round()
        core.finish_round()
    assert answer.error is None
    assert log.end_offset > before
    assert log.synced_offset == log.end_offset
    assert delivery_of(redriving, "orders").synced_offset == delivery_of(redriving, "orders").end_offset
    assert redriving.pending() == [3, 4, 5, 6]
