"""Flows: steps written in order, run when what they need is done, one flow at a time."""

from __future__ import annotations

import errno

from tests.helpers.broker_core import Workers

from tidelog.broker.deferred import Deferred, resolved
from tidelog.broker.flow import MAX_WAITING_FLOWS, Flow, FlowQueue, offloaded
from tidelog.protocol.errors import DiskFullError, NotFoundError, OverloadedError, TidelogError


def test_a_flow_goes_on_when_its_need_is_done() -> None:
    """A flow stops at each yield until that is resolved, and ends with its value."""
    first, second = Deferred[None](), Deferred[None]()
    seen: list[str] = []

    def flow() -> Flow[int]:
        seen.append("began")
        yield first
        seen.append("first")
        yield second
        return 3

    answer = FlowQueue().run(flow())
    assert seen == ["began"]
    first.resolve(None)
    assert (seen, answer.is_pending) == (["began", "first"], True)
    second.resolve(None)
    assert answer.result() == 3


def test_a_failure_is_raised_at_the_yield() -> None:
    """A flow may handle the failure of what it needed, or end with it."""
    need = Deferred[None]()

    def handles() -> Flow[str]:
        try:
            yield need
        except NotFoundError:
            return "handled"
        return "fine"

    def does_not() -> Flow[str]:
        yield need
        return "fine"

    queue = FlowQueue()
    handled, failed = queue.run(handles()), queue.run(does_not())
    need.fail(NotFoundError("no"))
    assert handled.result() == "handled"
    assert isinstance(failed.error, NotFoundError)


def test_flows_run_one_at_a_time_even_when_one_fails_or_is_forgotten() -> None:
    """The next flow begins when the one before ended, however it ended and whoever still cares."""
    seen: list[int] = []
    needs = [Deferred[None]() for _ in range(3)]

    def flow(n: int) -> Flow[int]:
        seen.append(n)
        yield needs[n]
        if n == 1:
            raise NotFoundError("no")
        return n

    queue = FlowQueue()
    answers = [queue.run(flow(n)) for n in range(3)]
    assert seen == [0]
    answers[0].withdraw()
    needs[0].resolve(None)
    assert seen == [0, 1]
    needs[1].resolve(None)
    needs[2].resolve(None)
    assert isinstance(answers[1].error, NotFoundError)
    assert (answers[2].result(), len(queue)) == (2, 0)


def test_many_needs_that_are_done_already_cost_no_stack() -> None:
    """Ten thousand steps that need no wait run in a loop."""

    def flow() -> Flow[int]:
        for _ in range(10_000):
            yield resolved(None)
        return 1

    assert FlowQueue().run(flow()).result() == 1


def test_the_queue_is_bounded() -> None:
    """Beyond its limit an operation is refused at once, and may be tried again."""

    def forever() -> Flow[None]:
        yield Deferred[None]()

    queue = FlowQueue()
    answers = [queue.run(forever()) for _ in range(MAX_WAITING_FLOWS + 2)]
    assert [isinstance(answer.error, OverloadedError) for answer in answers[-2:]] == [False, True]


def test_work_in_a_worker_fails_by_its_cause() -> None:
    """An OSError of a worker becomes the typed error of its errno, a typed error stays what it is."""

    def full() -> None:
        raise OSError(errno.ENOSPC, "no space")

    def refused() -> None:
        raise NotFoundError("no")

    workers = Workers(held=True)
    answers: list[Deferred[None]] = [offloaded(workers, work) for work in (full, refused, lambda: None)]
    assert all(answer.is_pending for answer in answers)
    workers.run()
    kinds: list[type[TidelogError] | None] = [type(a.error) if a.error else None for a in answers]
    assert kinds == [DiskFullError, NotFoundError, None]
