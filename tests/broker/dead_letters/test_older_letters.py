"""Dead letters of an earlier time that their messages were given up: the group was reset, and gave them up again."""

from __future__ import annotations

import errno

from tests.helpers.broker_core import Core
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.giving_up import MINUTE
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
