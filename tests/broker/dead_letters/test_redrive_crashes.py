"""Crashes between every two steps of a redrive and of a purge: the repeated command does what is left, nothing twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from tests.helpers.broker_core import SECOND, Core, model
from tests.helpers.power_loss import Crashed, PowerLossFiles
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.protocol.messages import Settling

Steps = Callable[[Redriving], None]


def ready(count: int = 8) -> Redriving:
    """A core whose group g gave up on so many messages, with nothing left to sync."""
    return Redriving.begin(Core(PowerLossFiles()), count)


def operations_of(steps: Steps, count: int = 8) -> int:
    """How many operations on files the steps take without a crash."""
    redriving = ready(count)
    files = model(redriving.core)
    before = files.operations
    steps(redriving)
    return files.operations - before


def after_crash(steps: Steps, at: int, how: str, count: int = 8) -> Redriving:
    """The next process after a crash in an operation of the steps."""
    rng = random.Random(at)
    redriving = ready(count)
    files = model(redriving.core)
    files.crash_at(at, rng)
    with pytest.raises(Crashed):
        steps(redriving)
    core = redriving.core.next_process(files.kill() if how == "kill" else files.crash(rng))
    found = Redriving(core)
    core.advance(3 * SECOND)
    return found


def in_place(redriving: Redriving) -> None:
    """Two requests."""
    redriving.redrive([(0, 5)])
    redriving.redrive([(5, 8)])
    redriving.core.advance(2 * SECOND)


def as_new(redriving: Redriving) -> None:
    """The same, as new."""
    redriving.redrive([(0, 5)], as_new=True)
    redriving.redrive([(5, 8)], as_new=True)
    redriving.core.advance(2 * SECOND)


def purge(redriving: Redriving) -> None:
    """The same, given up for good."""
    redriving.purge([(0, 5)])
    redriving.purge([(5, 8)])
    redriving.core.advance(2 * SECOND)


@pytest.mark.parametrize("how", ["kill", "power"])
def test_in_place_nothing_is_lost_and_nothing_comes_twice(how: str) -> None:
    """In whichever operation it went down: repeated, each message is available once, and nothing is pending."""
    count = operations_of(in_place)
    assert count > 5
    for at in range(1, count + 1):
        redriving = after_crash(in_place, at, how)
        in_place(redriving)
        assert redriving.pending() == [], f"crash in operation {at}"
        assert redriving.available() == [*range(8)], f"crash in operation {at}"
        state = redriving.giving.part("g").state
        assert state is not None
        assert not state.dead_lettered
        in_place(redriving)
        assert redriving.available() == [*range(8)]


@pytest.mark.parametrize("how", ["kill", "power"])
def test_what_came_back_before_the_crash_is_not_brought_back_again(how: str) -> None:
    """Messages that were acknowledged before the repeated command stay so."""
    count = operations_of(in_place)
    for at in range(1, count + 1):
        redriving = after_crash(in_place, at, how)
        giving = redriving.giving
        before = giving.take("g")
        if before:
            accepted = giving.items(before, Settling.ACCEPT, sorted(before))
            redriving.core.wait(giving.ask("g", accepted))
        in_place(redriving)
        assert redriving.pending() == []
        assert redriving.available() == sorted({*range(8)} - before.keys()), f"crash in operation {at}"


@pytest.mark.parametrize("how", ["kill", "power"])
def test_as_new_each_is_published_once(how: str) -> None:
    """In whichever operation it went down: in the end there is one new message for each dead letter, none pending."""
    count = operations_of(as_new)
    assert count > 10
    for at in range(1, count + 1):
        redriving = after_crash(as_new, at, how)
        as_new(redriving)
        assert redriving.pending() == [], f"crash in operation {at}"
        new = Counter(copy.value for copy in redriving.giving.letters("orders")[8:])
        assert new == {b"%d" % at: 1 for at in range(8)}, f"crash in operation {at}"
        assert redriving.available() == [*range(8, 16)]


@pytest.mark.parametrize("how", ["kill", "power"])
def test_what_was_announced_goes_on_by_itself(how: str) -> None:
    """After a crash in the middle of a redrive as new nobody repeats it: each dead letter is either pending, or has its
    one new message; and as many messages are dead-lettered as dead letters are pending."""
    count = operations_of(as_new)
    for at in range(1, count + 1):
        redriving = after_crash(as_new, at, how)
        published = Counter(copy.origin[1] for copy in redriving.giving.letters("orders")[8:])
        assert published + Counter(redriving.pending()) == dict.fromkeys(range(8), 1), f"crash in operation {at}"
        assert redriving.dead_lettered() == redriving.pending(), f"crash in operation {at}"


@pytest.mark.parametrize("how", ["kill", "power"])
def test_a_purge_is_finished_by_its_repeat(how: str) -> None:
    """In whichever operation it went down: nothing is pending afterwards, and nothing came back. As many messages count
    as dead-lettered as dead letters are pending, also before that."""
    count = operations_of(purge)
    for at in range(1, count + 1):
        redriving = after_crash(purge, at, how)
        assert redriving.dead_lettered() == redriving.pending(), f"crash in operation {at}"
        purge(redriving)
        assert redriving.pending() == []
        assert redriving.available() == []


@pytest.mark.parametrize("how", ["kill", "power"])
def test_ten_thousand_are_brought_back_once_over_a_crash(how: str) -> None:
    """Crashes at three steps of ten requests; the same command, repeated, finishes the rest."""

    def all_of_them(redriving: Redriving) -> None:
        for first in range(0, 10_000, 1_000):
            redriving.redrive([(first, first + 1_000)])

    count = operations_of(all_of_them, 10_000)
    for at in sorted(random.Random(11).sample(range(2, count), 3)):
        redriving = after_crash(all_of_them, at, how, 10_000)
        before, left = redriving.available(), redriving.pending()
        assert {*before} | {*left} == {*range(10_000)}, f"crash in operation {at}"
        all_of_them(redriving)
        assert (redriving.pending(), redriving.available()) == ([], [*range(10_000)]), f"crash in operation {at}"


def test_a_dead_letter_is_pending_again_where_its_topic_is_gone() -> None:
    """Announced as new, then the topic was deleted: it can go nowhere, is listed, and can be purged."""
    redriving = ready()
    core = redriving.core
    answer = redriving.ask([(0, 3)], as_new=True)
    core.wait(core.topics.delete("default/orders"))
    core.settle()
    assert not answer.is_pending
    assert answer.error is not None or offsets_in(answer.result().as_new) in ([], [0, 1, 2])
    if answer.error is None and not offsets_in(answer.result().as_new):
        assert redriving.pending() == [*range(8)]
    assert offsets_in(redriving.purge().purged) != []
    assert redriving.pending() == []
