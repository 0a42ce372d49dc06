"""A partition that could not be opened at the start, and what groups make of it once it is there again."""

from __future__ import annotations

import errno

from tests.helpers.broker_core import SECOND
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.queue_core import QueueCore, codes, filled, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.deferred import Deferred
from tidelog.protocol.messages import Settling


def begin(*, acquire: bool = True) -> tuple[QueueCore, FaultyFiles, QueueMember]:
    """A second start, at which the one partition is offline. Of its ten messages a member acknowledged the first of
    four that it had leased, and released the second for a minute."""
    core, files = filled()
    book, _events = notebook(core)
    member = member_of(core, book, 1, given=settings())
    if acquire:
        take(core, member, 4)
        settle_some(core, member, Settling.ACCEPT, [0])
        settle_some(core, member, Settling.RELEASE, [1], delay_us=60 * SECOND)
    core.topics.close()
    fault = files.fail("open", errno.EIO, path="*1-0/messages/0*")
    core = core.next_process(files)
    assert fault.fired == 1
    assert [*core.topic("orders").offline] == [0]
    member.book.now_us = core.clock.wall_us
    return core, files, member


def states(core: QueueCore) -> list[str]:
    """What the first five messages are."""
    return [core.states(1, offset)["g"].state for offset in range(5)]


def reopen(core: QueueCore) -> None:
    """Bring the partition back."""
    assert core.wait(core.topics.reopen("default/orders")) == [0]


def accept(core: QueueCore, member: QueueMember, offset: int) -> list[str | None]:
    """Acknowledge one message of the lease; the codes of the errors."""
    (held,) = member.held.values()
    return codes(core, member, held, Settling.ACCEPT, [offset])


def test_what_was_recorded_of_it_is_known_when_it_is_back() -> None:
    """Before anybody acquires: what was acknowledged is acknowledged, what is leased leased, what waits waits."""
    core, _files, _member = begin()
    reopen(core)
    assert states(core) == ["acknowledged", "waiting", "leased", "leased", "available"]


def test_a_lease_that_survived_is_settled() -> None:
    """By the member that holds it, as after any start; not LEASE_LOST."""
    core, _files, member = begin()
    reopen(core)
    member.connect(core.door())
    core.settle()
    assert accept(core, member, 2) == [None]
    assert states(core)[2] == "acknowledged"


def test_leases_end_and_waits_are_over_though_nobody_asks() -> None:
    """Their time runs from when the partition is back."""
    core, _files, _member = begin()
    reopen(core)
    core.advance(61 * SECOND)
    assert states(core) == ["acknowledged", "available", "suspect", "suspect", "available"]


def test_a_delivery_log_that_cannot_be_opened_then_is_a_problem() -> None:
    """It is told, the messages can be read, nothing is leased; a second `topics reopen` mends it."""
    core, files, _member = begin()
    fault = files.fail("open", errno.EIO, path="*/delivery/0*")
    core.wait(core.topics.reopen("default/orders"))
    assert fault.fired == 1
    assert len(core.read(core.topic("orders").partition(0))) == 10
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    problem = found.topics[0].partitions[0].problem
    assert problem is not None
    assert problem.error().code == "STORAGE_ERROR"
    reopen(core)
    assert states(core)[0] == "acknowledged"


def test_no_delivery_log_is_made_where_there_was_none() -> None:
    """A partition of which nothing was leased comes back without one."""
    core, files, _member = begin(acquire=False)
    reopen(core)
    assert core.topic("orders").partition(0).delivery.log is None
    assert not files.exists("partitions/1-0/delivery")
