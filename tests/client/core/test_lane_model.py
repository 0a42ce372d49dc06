"""Any order of sends, answers, refusals, lost connections and leaving callers, against a broker of twenty lines."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.client.core.lane_driver import Driver

from tidelog.protocol.errors import DiskFullError, InvalidBatchError, OverloadedError, TidelogError


class Sending(RuleBasedStateMachine):
    """Any order of sends, answers, refusals, cuts and leaving callers."""

    @initialize()
    def begin(self) -> None:
        """Start with nothing."""
        self.driver = Driver()
        self.abandoned: set[bytes] = set()
        self.refused: set[bytes] = set()

    @rule(count=st.integers(1, 5), alone=st.booleans())
    def send(self, count: int, alone: bool) -> None:
        """Some callers send a message each."""
        for _ in range(count):
            self.driver.submit(alone=alone)

    @precondition(lambda self: self.driver.wire)
    @rule()
    def act(self) -> None:
        """The broker acts on the next request."""
        self.driver.act()

    @precondition(lambda self: self.driver.wire and self.driver.wire[0].parcel is not None)
    @rule(error=st.sampled_from([OverloadedError("busy"), InvalidBatchError("bad"), DiskFullError("full")]))
    def refuse(self, error: TidelogError) -> None:
        """The broker refuses the next batch, and with it all that follow. It takes a repeat's bytes as it took the
        first copy's, so that one can only be refused for the moment."""
        parcel = self.driver.wire[0].parcel
        assert parcel is not None
        self.driver.act(OverloadedError("busy") if parcel.sends > 1 else error)

    @precondition(lambda self: self.driver.answers)
    @rule()
    def answer(self) -> None:
        """The oldest answer arrives."""
        self.driver.answer()

    @rule()
    def cut(self) -> None:
        """The connection breaks."""
        self.driver.cut()

    @rule(seconds=st.floats(0.01, 3))
    def wait(self, seconds: float) -> None:
        """Time passes, and with it pauses."""
        self.driver.now += seconds
        self.driver.pump()

    @precondition(lambda self: self.driver.waiting)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """A caller stops waiting."""
        open_ones = sorted(value for value, delivery in self.driver.waiting.items() if not delivery.done)
        if open_ones:
            value = data.draw(st.sampled_from(open_ones))
            if self.driver.outbox.withdraw(self.driver.waiting.pop(value)):
                self.refused.add(value)
            self.abandoned.add(value)

    @invariant()
    def nothing_twice(self) -> None:
        """No message is stored twice, none that its caller was told is not stored, and what was promised is there."""
        stored = self.driver.broker.stored
        assert len(set(stored)) == len(stored)
        assert not self.refused & set(stored)
        assert self.driver.outbox.in_flight <= 32
        for value, delivery in self.driver.waiting.items():
            if delivery.result is not None:
                assert stored[delivery.result.base_offset + delivery.index] == value
            if delivery.error is not None and delivery.error.details.get("stored") is False:
                assert value not in stored

    def teardown(self) -> None:
        """In the end every caller that stayed knows, and what was stored is in the order it was sent."""
        self.driver.drain()
        self.nothing_twice()
        for value, delivery in self.driver.waiting.items():
            assert delivery.done, value
            assert (delivery.result is None) == (delivery.error is not None)
            assert isinstance(delivery.error, InvalidBatchError | None)
        numbers = [int(value) for value in self.driver.broker.stored]
        assert numbers == sorted(numbers)


Sending.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSending = Sending.TestCase
TestSending.__doc__ = (
    "Whatever happens on the way, each message is stored at most once, in order, and its caller is told."
)
