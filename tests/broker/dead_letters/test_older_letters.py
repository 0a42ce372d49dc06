"""Dead letters of an earlier time that their messages were given up: the group was reset, and gave them up again."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import Core, model
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.giving_up import MINUTE
from tests.helpers.power_loss import PowerLossFiles
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.messages import GroupStart

LETTERS = "*/2-0/messages/0*"


def test_an_older_letter_brings_nothing_back_whose_new_copy_is_being_made() -> None:
    """The older one is resolved, as its message came back before; the new one is made once there is room, and pending."""
    files = FaultyFiles(MemoryFiles())
    redriving = Redriving.begin(Core(files))
    core, giving = redriving.core, redriving.giving
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    fault = files.fail("write_at", errno.ENOSPC, path=LETTERS, times=None)
    giving.reject("g", range(4))
    core.settle()
    assert fault.fired
    state = giving.part().state
    assert state is not None
    assert [(one.search_from, [*one.offsets]) for one in state.moves.intents.values()] == [(8, [0, 1, 2, 3])]
    assert offsets_in(redriving.redrive([(0, 4)]).in_place) == [0, 1, 2, 3]
    assert redriving.available() == [4, 5, 6, 7]
    files.faults.remove(fault)
    core.advance(2 * MINUTE)
    assert giving.origins() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 7]
    assert redriving.pending() == [4, 5, 6, 7, 8, 9, 10, 11]
    assert redriving.dead_lettered() == [0, 1, 2, 3]
    assert redriving.available() == [4, 5, 6, 7]


def given_up_twice() -> Redriving:
    """Four messages given up, and again after a reset: of each there are two letters."""
    redriving = Redriving.begin(Core(PowerLossFiles()), 4)
    core, giving = redriving.core, redriving.giving
    core.wait(core.groups.reset("default/g", GroupStart("earliest")))
    giving.reject("g", range(4))
    core.advance(MINUTE)
    assert giving.origins() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert redriving.pending() == [*range(8)]
    return redriving


@pytest.mark.parametrize("restarts", [False, True])
def test_purging_older_letters_leaves_the_newer_ones_what_they_are(restarts: bool) -> None:
    """Their messages are given up still, and come back to their group alone by a redrive of the newer ones. They were
    given up for good, and the redrive published them to every group."""
    redriving = given_up_twice()
    if restarts:
        core = redriving.core
        redriving = Redriving(core.next_process(model(core).kill()))
    assert offsets_in(redriving.purge([(0, 4)]).purged) == [0, 1, 2, 3]
    assert redriving.dead_lettered() == [0, 1, 2, 3]
    reply = redriving.redrive()
    assert (offsets_in(reply.in_place), offsets_in(reply.as_new)) == ([4, 5, 6, 7], [])
    assert redriving.available() == [0, 1, 2, 3]


def test_publishing_older_letters_anew_leaves_the_newer_ones_what_they_are() -> None:
    """As new they go to all groups, as asked; the group that gave them up has its newer letters still."""
    redriving = given_up_twice()
    assert offsets_in(redriving.redrive([(0, 4)], as_new=True).as_new) == [0, 1, 2, 3]
    assert redriving.dead_lettered() == [0, 1, 2, 3]
    assert offsets_in(redriving.redrive().in_place) == [4, 5, 6, 7]
    assert redriving.available() == [*range(8)]


def test_purging_newer_letters_gives_their_messages_up_for_good() -> None:
    """The newer letter is the one that counts: without it the message is given up for good."""
    redriving = given_up_twice()
    assert offsets_in(redriving.purge([(4, 8)]).purged) == [4, 5, 6, 7]
    assert redriving.dead_lettered() == []
