"""What is asked of dead letters right after a start, before the search for copies has told whose are there: the copies
are listed, and on record their messages are still to be copied."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.helpers.broker_core import SECOND, Core, batch, model
from tests.helpers.giving_up import GivingUp, letter_settings
from tests.helpers.power_loss import Crashed, PowerLossFiles
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.protocol.messages import MessageAttempts


def begin() -> GivingUp:
    """Eight messages, of which group g gave up on two; those are copied."""
    core = Core(PowerLossFiles())
    core.produce(core.create("orders", 1).partition(0), batch(*(b"%d" % at for at in range(8))))
    giving = GivingUp(core)
    giving.group("g", letter_settings())
    giving.reject("g", range(2))
    core.advance(3 * SECOND)
    return giving


def give_up_the_rest(giving: GivingUp) -> None:
    """The other six are given up and copied."""
    giving.reject("g", range(2, 8))
    giving.core.advance(3 * SECOND)


class Early:
    """A process that was just started: all copies are there, and the search for the last six has only begun."""

    def __init__(self, core: Core) -> None:
        core.workers.held = True
        self.core = core
        self.redriving = Redriving(core)
        core.advance(1)
        core.settle()
        self.search = [*core.workers.waiting]
        core.workers.waiting.clear()

    def without_the_search(self) -> None:
        """Let all other work in threads be done."""
        for _ in range(20):
            self.core.workers.run()
            self.core.settle()

    def search_on(self) -> None:
        """Let the search be done, and all that follows."""
        self.core.workers.waiting += self.search
        self.core.workers.held = False
        self.core.workers.run()
        self.core.advance(70 * SECOND)

    def states(self) -> dict[str, list[int]]:
        """Return what is recorded of the messages."""
        state = self.redriving.giving.part().state
        assert state is not None
        return {"dead-lettered": sorted(state.dead_lettered), "moving": sorted(state.moves.offsets)}


def early() -> Iterator[Early]:
    """Every process after kill -9 in an operation that finds all copies, and six of them not on record."""
    giving = begin()
    files = model(giving.core)
    before = files.operations
    give_up_the_rest(giving)
    found = 0
    for at in range(1, files.operations - before + 1):
        giving = begin()
        files = model(giving.core)
        files.crash_at(at, random.Random(at))
        with pytest.raises(Crashed):
            give_up_the_rest(giving)
        one = Early(giving.core.next_process(files.kill()))
        if one.search and one.redriving.pending() == [*range(8)]:
            assert one.states() == {"dead-lettered": [0, 1], "moving": [2, 3, 4, 5, 6, 7]}
            found += 1
            yield one
    assert found >= 1, "no crash left copies that are not on record"


def test_what_is_brought_back_before_the_search_is_available() -> None:
    """Answered in place, its message is the group's to lease then, after the search, and after another start."""
    for one in early():
        answer = one.redriving.ask([(3, 8)])
        one.without_the_search()
        assert offsets_in(answer.result().in_place) == [3, 4, 5, 6, 7]
        assert one.redriving.pending() == [0, 1, 2]
        assert one.states() == {"dead-lettered": [0, 1], "moving": [2]}
        one.search_on()
        assert one.redriving.pending() == [0, 1, 2]
        assert one.states() == {"dead-lettered": [0, 1, 2], "moving": []}
        assert one.redriving.available() == [3, 4, 5, 6, 7]
        request = MessageAttempts("default/g", one.core.topic("orders").id, 0, 3)
        history = one.core.wait(one.redriving.desk.attempts(request)).attempts
        assert [entry.outcome for entry in history] == ["returned", "rejected", "redriven", "returned"]
        again = Redriving(one.core.after_stop())
        again.core.advance(70 * SECOND)
        assert (again.pending(), again.available()) == ([0, 1, 2], [3, 4, 5, 6, 7])


def test_what_was_begun_before_the_search_is_lost_in_no_second_crash() -> None:
    """Announced, and the power goes before it is synced that the messages are back: the next start, which has not
    searched either, resolves the dead letters of those that are back, and of no other."""
    undone = 0
    for number, one in enumerate(early()):
        core = one.core
        delivery = core.topic("orders").partition(0).delivery
        one.redriving.ask([(3, 8)])
        for _ in range(20):
            core.workers.run()
        while delivery.log is not None and delivery.log.log.end_offset == delivery.log.log.synced_offset:
            assert core.begin_round()
            core.finish_round()
        again = Redriving(core.next_process(model(core).crash(random.Random(number))))
        again.core.advance(70 * SECOND)
        pending, available = again.pending(), again.available()
        assert sorted(pending + available) == [*range(8)]
        assert again.dead_lettered() == pending
        undone += pending == [*range(8)]
    assert undone >= 1, "in no life was it lost that the messages are back"


def test_of_what_is_brought_back_before_the_search_nothing_is_recorded() -> None:
    """All of it came back, or all but one: the search leads to no record, or to one about that one."""
    for first, moved in ((2, 0), (3, 1)):
        for one in early():
            answer = one.redriving.ask([(first, 8)])
            one.without_the_search()
            assert len(offsets_in(answer.result().in_place)) == 8 - first
            log = one.core.topic("orders").partition(0).delivery.log
            assert log is not None
            before = log.log.end_offset
            one.search_on()
            assert log.log.end_offset - before == moved


def test_what_is_given_up_again_before_the_search_has_another_copy() -> None:
    """The search finds the first copy, which says nothing of the second time: that one is made, and pending."""
    for one in early():
        answer = one.redriving.ask([(3, 8)])
        one.without_the_search()
        assert offsets_in(answer.result().in_place) == [3, 4, 5, 6, 7]
        one.redriving.giving.reject_held("g", one.redriving.giving.take("g"))
        one.search_on()
        assert one.redriving.pending() == [0, 1, 2, 8, 9, 10, 11, 12]
        assert one.redriving.giving.origins() == [0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]
        assert one.states() == {"dead-lettered": [0, 1, 2, 3, 4, 5, 6, 7], "moving": []}


def test_what_is_published_anew_before_the_search_counts_as_dead_lettered_no_more() -> None:
    """One new message each; the search leaves nothing dead-lettered that has no pending dead letter."""
    for one in early():
        answer = one.redriving.ask([(3, 8)], as_new=True)
        one.without_the_search()
        assert offsets_in(answer.result().as_new) == [3, 4, 5, 6, 7]
        one.search_on()
        assert one.redriving.pending() == [0, 1, 2]
        assert one.states() == {"dead-lettered": [0, 1, 2], "moving": []}
        assert one.redriving.available() == [8, 9, 10, 11, 12]


def test_what_is_purged_before_the_search_counts_as_dead_lettered_no_more() -> None:
    """No message of theirs comes back, none is copied again, and none is dead-lettered without a pending dead letter."""
    for one in early():
        answer = one.redriving.ask_purge([(3, 8)])
        one.without_the_search()
        assert offsets_in(answer.result().purged) == [3, 4, 5, 6, 7]
        one.search_on()
        assert one.redriving.pending() == [0, 1, 2]
        assert one.states() == {"dead-lettered": [0, 1, 2], "moving": []}
        assert one.redriving.giving.origins() == [0, 1, 2, 3, 4, 5, 6, 7]
        assert one.redriving.available() == []
