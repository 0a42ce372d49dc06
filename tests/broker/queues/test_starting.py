"""What a start with many delivery logs costs."""

from __future__ import annotations

import pytest
from tests.helpers.broker_core import batch
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take

from tidelog.broker.queues.deliveries import Deliveries


def test_a_start_asks_once_what_groups_and_delivery_logs_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once a partition: 3,000 of them took seconds of copying the same set."""
    core = QueueCore()
    core.create("orders", 8)
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    for one in core.topic("orders").partitions:
        core.produce(one, batch(b"x"))
        core.wait(core.queues.opened(one.delivery))
    take(core, member, 8)
    core.topics.close()
    asked: list[str] = []
    timeouts = Deliveries._timeouts  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(Deliveries, "_timeouts", lambda self: (asked.append("groups"), timeouts(self))[1])  # pyright: ignore
    made = Deliveries._made.fget  # pyright: ignore
    assert made is not None
    monkeypatch.setattr(Deliveries, "_made", property(lambda self: (asked.append("made"), made(self))[1]))  # pyright: ignore
    core = core.next_process(core.files)
    assert asked == ["made", "groups"]
    assert all(one.delivery.log is not None for one in core.topic("orders").partitions)
