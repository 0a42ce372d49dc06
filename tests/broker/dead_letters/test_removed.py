"""Messages that retention removes while a group holds them."""

from __future__ import annotations

from tests.helpers.broker_core import SECOND, Core, batch
from tests.helpers.giving_up import BOOM, MINUTE, GivingUp, letter_settings

from tidelog.broker.topics import TopicDefaults
from tidelog.protocol.limits import KIB
from tidelog.protocol.messages import Settling


def test_what_retention_removes_while_it_is_held_is_counted_as_removed() -> None:
    """Nothing is left to copy when it is rejected: there is no dead letter; the counter of removed messages and a line of
    the log say it."""
    core = Core(defaults=TopicDefaults(segment_bytes=64 * KIB, partitions=1))
    orders = core.create("orders", 1, {"retention_bytes": 1}).partition(0)
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    for number in range(3):
        core.produce(orders, batch(b"%d" % number * 50 * KIB))
    core.advance(3 * SECOND)  # a snapshot is taken, without which nothing goes
    held = giving.take("g")
    core.topics.expire()
    assert (sorted(held), orders.start_offset) == ([0, 1, 2], 2)
    giving.ask("g", giving.items(held, Settling.REJECT, [0, 1, 2], BOOM))
    core.advance(MINUTE)
    assert giving.origins() == [2]
    assert core.gauges()['tidelog_queue_removed_by_retention_messages_total{group="g"}'] == 2
    assert core.events.count("unsettled messages removed by retention") == 1
    assert giving.counted() == {"dead_lettered_messages": 1, "dropped_messages": 0, "dead_letters_lost": 0}
