"""A reply of several lanes that a refused write, and not want of room, makes short."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import SECOND
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.lane_core import backlog, begin, given, publish

from tidelog.broker.storage.files import MemoryFiles


@pytest.mark.parametrize(("policy", "max_wait"), [("weighted", None), ("strict", 60 * SECOND)])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_a_write_that_is_refused_makes_one_reply_short(policy: str, max_wait: int | None, code: int) -> None:
    """The other partition's messages come with what was refused; the next reply is as large as it is asked for."""
    files = FaultyFiles(MemoryFiles())
    core, (member,) = begin(files=files, partitions=2, lanes_policy=policy, lanes_max_wait=max_wait)
    for partition in range(2):
        publish(core, [9, 4], partition)
    assert len(given(core, member, 4)) == 4
    core.advance(2 * SECOND)
    backlog(core, 9, 3)
    for _ in range(5):
        backlog(core, 0, 2_000)
    backlog(core, 9, 5, 1)
    fault = files.fail("write_at", code, path="*-1/delivery/0*")
    assert [len(given(core, member, 1_000)) for _ in range(12)] == [3, *[1_000] * 10, 5]
    assert fault.fired == 1
