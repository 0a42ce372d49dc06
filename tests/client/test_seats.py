"""Who reads from a connection next, when callers get up in the middle of each other's steps."""

from __future__ import annotations

from collections.abc import Callable

from tidelog.client.blocking import runtime
from tidelog.client.blocking.seats import Seats
from tidelog.client.core.waiter import Waiter


class Bell:
    """Notes that it rang, and lets something happen in that instant."""

    def __init__(self, then: Callable[[], object] = bool) -> None:
        self.rings = 0
        self._then = then

    def set(self) -> None:
        """Ring."""
        self.rings += 1
        self._then()


def seated(count: int) -> tuple[Seats, Waiter, list[Waiter], list[Bell]]:
    """Return seats with a reader and `count` callers that sit, each with a bell to look at."""
    seats, reader = Seats(runtime.MACHINE), Waiter()
    assert seats.take(reader) is None
    sitting, bells = [Waiter() for _ in range(count)], [Bell() for _ in range(count)]
    for waiter, bell in zip(sitting, bells, strict=True):
        assert seats.take(waiter) is not None
        waiter.bell = bell
    return seats, reader, sitting, bells


def test_the_role_goes_to_one_without_an_answer() -> None:
    """Whoever leaves the role gives it to the one that sits longest and has no answer yet, and wakes no other."""
    seats, reader, sitting, bells = seated(3)
    sitting[0].done = True
    assert not seats.stand_up(reader)
    assert not seats.leave(reader)
    assert seats.reader is sitting[1]
    assert [bell.rings for bell in bells] == [0, 1, 0]
    assert seats.take(Waiter()) is not None, "a newcomer does not take it from whom it was given to"
    assert seats.take(sitting[1]) is None


def test_a_role_given_to_one_that_gets_up_goes_on() -> None:
    """One that gets up without the lock, in the instant it is given the role, does not take the role with it."""
    seats, reader, sitting, bells = seated(2)
    sitting[0].bell = Bell(lambda: seats.stand_up(sitting[0]))
    assert not seats.leave(reader)
    assert seats.reader is sitting[1]
    assert bells[1].rings == 1


def test_one_that_was_given_the_role_gives_it_on() -> None:
    """One that gets up after it was given the role, without having read, has to see to it."""
    seats, reader, sitting, bells = seated(2)
    seats.leave(reader)
    assert not seats.stand_up(sitting[0])
    assert not seats.leave(sitting[0])
    assert seats.reader is sitting[1]
    assert bells[1].rings == 1


def test_the_last_one_leaves_the_role_free() -> None:
    """With nobody there the role is free, and the next to come has it."""
    seats, reader, _, _ = seated(0)
    assert seats.leave(reader)
    assert not seats
    assert seats.take(Waiter()) is None


def test_those_with_an_answer_are_woken_together() -> None:
    """Nobody is woken before the reader says so, and then each once."""
    seats, _, sitting, bells = seated(3)
    seats.ring_later(sitting[:2])
    assert [bell.rings for bell in bells] == [0, 0, 0]
    seats.ring_due()
    seats.ring_due()
    assert [bell.rings for bell in bells] == [1, 1, 0]
