"""The memory of all connections together: who may receive, who waits, who gives back."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from tidelog.broker.session_memory import MemoryBudget

pytestmark = pytest.mark.trio


class Holder:
    """A connection that holds so many bytes, all of them in an idle buffer."""

    def __init__(self, budget: MemoryBudget, name: str) -> None:
        self.name = name
        self.bytes = 0
        self._budget = budget

    def __repr__(self) -> str:
        return self.name

    def hold(self, count: int) -> None:
        """Hold so many bytes from now on."""
        self._budget.change(self, count - self.bytes)
        self.bytes = count

    def give_back(self) -> None:
        """Shrink."""
        self.hold(1)


async def test_below_the_total_nobody_waits() -> None:
    """While there is room `wait` returns at once."""
    budget = MemoryBudget(100)
    one = Holder(budget, "one")
    one.hold(99)
    await budget.wait(one)
    assert (budget.used_bytes, budget.waits, budget.is_spent) == (99, 0, False)


async def test_one_at_a_time_overdraws_in_the_order_of_asking() -> None:
    """Beyond the total the first goes on until it holds less, then the next, until there is room for all."""
    budget = MemoryBudget(100)
    one, two, three = (Holder(budget, name) for name in ("one", "two", "three"))
    for holder in (one, two, three):
        holder.hold(40)
    admitted: list[str] = []

    async def receive(holder: Holder) -> None:
        await budget.wait(holder)
        admitted.append(holder.name)

    async with trio.open_nursery() as nursery:
        for holder in (one, two, three):
            nursery.start_soon(receive, holder)
            await trio.testing.wait_all_tasks_blocked()
        assert admitted == ["one"]
        one.hold(70)
        await trio.testing.wait_all_tasks_blocked()
        assert admitted == ["one"]
        one.hold(45)
        await trio.testing.wait_all_tasks_blocked()
        assert admitted == ["one", "two"]
        two.hold(1)
        await trio.testing.wait_all_tasks_blocked()
        assert admitted == ["one", "two", "three"]
        assert budget.waits == 2


async def test_one_that_overdraws_and_closes_makes_way() -> None:
    """The right to overdraw dies with its connection."""
    budget = MemoryBudget(10)
    one, two = Holder(budget, "one"), Holder(budget, "two")
    one.hold(10)
    two.hold(10)
    await budget.wait(one)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(budget.wait, two)
        await trio.testing.wait_all_tasks_blocked()
        budget.change(one, -10)
        budget.leave(one)
    assert budget.used_bytes == 10


async def test_idle_buffers_are_taken_before_anybody_waits() -> None:
    """Whoever finds the budget spent makes the idle ones shrink first."""
    budget = MemoryBudget(100)
    idle, asking = Holder(budget, "idle"), Holder(budget, "asking")
    idle.hold(90)
    budget.idle(idle)
    asking.hold(20)
    await budget.wait(asking)
    assert (idle.bytes, budget.waits) == (1, 0)


async def test_a_sweep_takes_what_was_idle_for_two() -> None:
    """A buffer that was used between two sweeps is left alone."""
    budget = MemoryBudget(1000)
    idle, used = Holder(budget, "idle"), Holder(budget, "used")
    for holder in (idle, used):
        holder.hold(100)
        budget.idle(holder)
    budget.sweep()
    budget.busy(used)
    budget.idle(used)
    budget.sweep()
    assert (idle.bytes, used.bytes) == (1, 100)
    budget.sweep()
    assert used.bytes == 1
