"""While a delivery log is reopened, nothing is known and nothing can be recorded: each request is told so, time passes
without harm, and afterwards all goes on from what is on the disk."""

from __future__ import annotations

import errno

import pytest
from tests.helpers.broker_core import SECOND, Core
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.queue_core import QueueCore, codes, filled, member_of, notebook, settings, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import Held, QueueMember
from tests.helpers.redriving import Redriving, offsets_in

from tidelog.broker.deferred import Deferred
from tidelog.protocol.errors import LogFencedError
from tidelog.protocol.messages import AcquireReply, GroupPartitionInfo, Settling

MINUTE = 60 * SECOND


def begin(max_attempts: int = 4) -> tuple[QueueCore, QueueMember, QueueMember, Held, Deferred[list[int]]]:
    """A core whose member holds three of ten messages, with a worker about to reopen the delivery log."""
    core, files = filled()
    book, _events = notebook(core)
    first, second = (member_of(core, book, number, given=settings(max_attempts=max_attempts)) for number in (1, 2))
    take(core, first, 4)
    core.advance(2 * SECOND)
    fault = files.fail("sync", errno.EIO, path="*/delivery/0*")
    (held,) = first.held.values()
    assert codes(core, first, held, Settling.ACCEPT, [0]) == ["LOG_FENCED"]
    assert fault.fired == 1
    core.workers.held = True
    reopening = core.topics.reopen("default/orders")
    core.settle()
    assert core.workers.waiting
    assert reopening.is_pending
    return core, first, second, held, reopening


def end(core: QueueCore) -> None:
    """Let the worker do it."""
    core.workers.held = False
    core.workers.run()
    core.settle()


def standing(core: QueueCore) -> GroupPartitionInfo:
    """Where the group stands."""
    found = core.queues.details(core.groups.named("default/g"))
    assert not isinstance(found, Deferred)
    return found.topics[0].partitions[0]


@pytest.mark.parametrize("what", [Settling.ACCEPT, Settling.RELEASE, Settling.REJECT, Settling.RETURN, Settling.RENEW])
def test_a_settle_is_refused_while_the_log_is_reopened(what: Settling) -> None:
    """LOG_FENCED, which its member repeats: afterwards it is done, and once."""
    core, first, _second, held, reopening = begin()
    assert codes(core, first, held, what, [1]) == ["LOG_FENCED"]
    end(core)
    assert reopening.result() == [0]
    first.connect(core.door())
    core.settle()
    first.harvest()
    assert not first.requests
    assert first.book.refused == 0


def test_an_acquire_is_told_why_there_is_nothing_while_the_log_is_reopened() -> None:
    """At once, with the partition's problem, also when it would wait; afterwards messages that nobody holds come."""
    core, _first, second, _held, _reopening = begin()
    call = second.acquire(5, max_wait_us=MINUTE)
    core.settle()
    reply = call.message()
    assert isinstance(reply, AcquireReply)
    assert (reply.grants, [one.error.error().code for one in reply.errors]) == ([], ["LOG_FENCED"])
    second.harvest()
    end(core)
    assert [*take(core, second, 2)] == [4, 5]


def test_hand_overs_are_not_recorded_while_the_log_is_reopened() -> None:
    """They undercount; the acquire that reports them is answered all the same."""
    core, first, _second, held, _reopening = begin()
    first.hand_over(held, [1])
    call = first.acquire(1)
    core.settle()
    assert isinstance(call.message(), AcquireReply)
    assert core.events[-1] == "hand-overs not recorded"


def test_leases_that_end_while_the_log_is_reopened_end_afterwards() -> None:
    """Time passes without anything that could be recorded; after it they run for their group's timeout and end."""
    core, _first, second, _held, _reopening = begin()
    core.advance(40 * SECOND)
    assert (standing(core).leased, standing(core).problem is not None) == (0, True)
    end(core)
    assert standing(core).leased == 3
    assert [*take(core, second, 2)] == [4, 5]
    core.advance(29 * SECOND)
    assert standing(core).leased == 5
    core.advance(2 * SECOND)
    assert (standing(core).leased, standing(core).suspect) == (0, 5)


def test_a_log_that_cannot_be_reopened_is_a_problem_until_it_can() -> None:
    """The reason is told, and a second try succeeds."""
    core, first, _second, held, reopening = begin()
    files = core.files
    assert isinstance(files, FaultyFiles)
    fault = files.fail("open", errno.EIO, path="*/delivery/0*")
    end(core)
    assert fault.fired == 1
    with pytest.raises(Exception, match=r"EIO|Input/output"):
        reopening.result()
    assert codes(core, first, held, Settling.ACCEPT, [1]) != [None]
    assert core.wait(core.topics.reopen("default/orders")) == [0]
    first.connect(core.door())
    core.settle()
    first.harvest()
    assert not first.requests
    assert core.states(1, 1)["g"].state == "acknowledged"


def test_dead_letters_are_copied_once_the_log_is_there_again() -> None:
    """What was given up before the fault is copied after it; nothing that moves meets a log that is gone."""
    core, first, second, held, _reopening = begin(max_attempts=1)
    core.queues.details(core.groups.named("default/g"))
    core.advance(MINUTE)
    end(core)
    assert codes(core, first, held, Settling.RELEASE, [1]) == [None]
    core.advance(SECOND)
    assert core.states(1, 1)["g"].state == "dead-lettered"
    assert [*take(core, second, 1)] == [4]
    settle_some(core, second, Settling.REJECT, [4])
    core.advance(SECOND)
    assert core.read(core.topic("orders.dlq").partition(0)) == [b"1", b"4"]


def test_what_is_recorded_beside_requests_is_refused_while_the_log_is_reopened() -> None:
    """A ledger raises the partition's problem, and never trips over the missing log."""
    core, _first, _second, _held, _reopening = begin()
    part = core.queues.part(core.groups.named("default/g"), 1, 0)
    with pytest.raises(LogFencedError):
        part.ledger.append([])
    with pytest.raises(LogFencedError):
        part.record([])
    assert part.state is None


def test_a_redrive_is_refused_while_a_log_that_it_needs_is_reopened() -> None:
    """Nothing is resolved that did not come back: that of the origin is refused letter by letter, that of the dead-letter
    topic as a whole; afterwards all of it comes back."""
    redriving = Redriving.begin(Core(), 3)
    core = redriving.core
    why = LogFencedError("expected a log, found one that is being reopened")
    origin = core.topic("orders").partition(0).delivery
    origin.release(why, origin.let_go)
    reply = redriving.redrive()
    assert (reply.in_place, [refusal.error.error().code for refusal in reply.refused]) == (b"", ["LOG_FENCED"])
    assert redriving.pending() == [0, 1, 2]
    core.wait(core.topics.reopen("default/orders"))
    letters = core.topic("orders.dlq").partition(0).delivery
    letters.release(why, letters.let_go)
    with pytest.raises(LogFencedError):
        redriving.redrive()
    core.wait(core.topics.reopen("default/orders.dlq"))
    assert redriving.pending() == [0, 1, 2]
    assert offsets_in(redriving.redrive().in_place) == [0, 1, 2]
    assert redriving.available() == [0, 1, 2]
