"""Redrives in place that a start finds begun, of messages or dead letters that retention has removed since."""

from __future__ import annotations

import random

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, model
from tests.helpers.giving_up import BOOM, GivingUp, letter_settings
from tests.helpers.power_loss import PowerLossFiles
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.protocol.limits import KIB
from tidelog.protocol.messages import Settling

COUNT = 6


def begin(topic: str) -> Redriving:
    """Messages of which group g gave up on all, one at a time: one of the topics has two in a segment, and keeps the
    last segment alone when retention has a look."""
    core = Core(PowerLossFiles())
    small = {"segment_bytes": 64 * KIB, "retention_bytes": 1}
    orders = core.create("orders", 1, small if topic == "orders" else {}).partition(0)
    core.create("orders.dlq", 1, small if topic == "orders.dlq" else {})
    for at in range(COUNT):
        core.produce(orders, batch(b"%d" % at * 25 * KIB))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    for at in range(COUNT):
        giving.reject("g", [at])
        core.advance(3 * SECOND)
    assert giving.origins() == [*range(COUNT)]
    return Redriving(core)


def removed_then_killed(redriving: Redriving) -> Redriving:
    """All are brought back: that is recorded, and not yet that their dead letters are resolved, when retention takes
    what is old, and the process is killed; the next one."""
    core = redriving.core
    answer = redriving.ask([(0, COUNT)])
    while redriving.dead_lettered():
        assert core.begin_round()
        core.finish_round()
    core.topics.expire()
    assert answer.is_pending
    return Redriving(core.next_process(model(core).kill()))


def test_of_a_message_that_is_removed_nobody_can_say_whether_it_was_back() -> None:
    """Its dead letter is pending, and brings it back as new; those of the others are resolved."""
    redriving = removed_then_killed(begin("orders"))
    assert redriving.core.topic("orders").partition(0).start_offset == 4
    assert redriving.pending() == [0, 1, 2, 3]
    assert redriving.available() == [4, 5]
    assert offsets_in(redriving.redrive().as_new) == [0, 1, 2, 3]
    assert redriving.available() == [4, 5, 6, 7, 8, 9]


def test_dead_letters_that_are_removed_keep_none_pending_that_are_left() -> None:
    """What is left of those that were announced is resolved: their messages are back."""
    redriving = removed_then_killed(begin("orders.dlq"))
    assert redriving.core.topic("orders.dlq").partition(0).start_offset == 4
    assert redriving.pending() == []
    assert redriving.available() == [*range(COUNT)]


@pytest.mark.parametrize("how", ["kill", "power"])
@pytest.mark.parametrize("redriven_before", [0, 1])
def test_what_was_given_up_again_before_a_kill_has_its_newer_dead_letter_alone(how: str, redriven_before: int) -> None:
    """Messages may be taken as soon as it is recorded that they are back. The older dead letters were pending beside the
    newer ones, and as new each message was published twice."""
    redriving = Redriving.begin(Core(PowerLossFiles()), 8)
    for _ in range(redriven_before):
        redriving.redrive([(0, 3)])
        redriving.giving.reject("g", range(3))
        redriving.core.advance(3 * SECOND)
    letters = redriving.pending()[-3:] if redriven_before else [0, 1, 2]
    core, log = redriving.core, redriving.core.topic("orders").partition(0).delivery.log
    assert log is not None
    redriving.ask([(letters[0], letters[-1] + 1)])
    end = log.log.end_offset
    while log.log.end_offset == end:
        core.workers.run()
        assert core.begin_round()
        core.finish_round()
    held = redriving.giving.take("g")
    items = redriving.giving.items(held, Settling.REJECT, [0, 1, 2], BOOM)
    redriving.giving.ask("g", items)
    core.begin_round()
    files = model(core)
    again = Redriving(core.next_process(files.kill() if how == "kill" else files.crash(random.Random(1))))
    again.core.advance(70 * SECOND)
    origins = {copy.offset: copy.origin[1] for copy in again.giving.letters()}
    assert sorted(origins[letter] for letter in again.pending()) == [*range(8)]
    assert len(offsets_in(again.redrive(as_new=True).as_new)) == 8
