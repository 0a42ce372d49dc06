"""How much of a delivery log is read for the history of one message: what is about it, and not what came later."""

from __future__ import annotations

from typing import Any

import pytest
from tests.helpers.broker_core import SECOND, Core
from tests.helpers.giving_up import BOOM, letter_settings
from tests.helpers.redriving import Redriving

from tidelog.broker.dead_letters import attempts
from tidelog.broker.dead_letters.log_reading import read_piece
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import MessageAttempts, MessageAttemptsReply, SettleError, Settling

PIECE = 4_096


class Asking:
    """Histories of messages of `orders`, and how many pieces of logs were read for them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.redriving = Redriving.begin(Core())
        self.giving = self.redriving.giving
        self.core = self.redriving.core
        self.pieces = 0
        monkeypatch.setattr(attempts, "read_piece", self._counted)
        monkeypatch.setattr("tidelog.broker.dead_letters.log_reading.PIECE_BYTES", PIECE)

    def _counted(self, *given: Any) -> Any:
        self.pieces += 1
        return read_piece(*given)

    def ask(self, offset: int, *, group: str = "g", since_us: int = 0) -> MessageAttemptsReply:
        """Ask for the history of a message."""
        self.pieces = 0
        request = MessageAttempts(f"default/{group}", self.core.topic("orders").id, 0, offset, since_us)
        return self.core.wait(self.redriving.desk.attempts(request))

    def produce(self, count: int) -> None:
        """Store more messages."""
        encoded = encode_batch([b"x"] * count, timestamp_us=1)
        self.core.produce(self.core.topic("orders").partition(0), memoryview(bytearray(encoded)))

    def others(self) -> None:
        """Let much happen to messages in another group: some two hundred pieces."""
        for _ in range(20):
            self.produce(2_000)
            held = self.giving.take("h")
            self.core.wait(self.giving.ask("h", self.giving.items(held, Settling.RELEASE, [*held][::2], BOOM)))
            self.core.wait(self.giving.ask("h", self.giving.items(held, Settling.ACCEPT, [*held][1::2])))
            self.core.advance(SECOND // 10)


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> Asking:
    """Eight messages, all of which group g gave up on."""
    return Asking(monkeypatch)


def told(reply: MessageAttemptsReply) -> tuple[list[str], bool]:
    """What happened, and whether that is all."""
    return [one.outcome for one in reply.attempts], reply.is_complete


def test_of_a_dead_letter_it_ends_with_its_copy(asking: Asking) -> None:
    """One piece of the message itself, one of its attempt, one of its copy; however much happened to others since."""
    asking.others()
    assert told(asking.ask(3)) == (["rejected", "dead-lettered"], True)
    assert asking.pieces <= 3


def test_of_a_leased_message_it_ends_with_its_lease(asking: Asking) -> None:
    """Which nobody can have ended since."""
    asking.produce(1)
    asking.giving.take("g")
    asking.others()
    assert told(asking.ask(8)) == (["leased"], True)
    assert asking.pieces <= 3


def test_of_a_message_that_nobody_was_given_nothing_is_read(asking: Asking) -> None:
    """There is no event about it."""
    asking.others()
    asking.produce(1)
    end = asking.core.topic("orders").partition(0).visible_offset
    assert told(asking.ask(end - 1)) == ([], True)
    assert asking.pieces == 0


def test_of_a_message_that_is_available_again_so_much_is_read(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it was tried once more only the rest of the log could say: that it was not read is told."""
    monkeypatch.setattr(attempts, "READ_BYTES", 5 * PIECE)
    asking.redriving.redrive([(3, 4)])
    assert told(asking.ask(3)) == (["rejected", "dead-lettered", "redriven"], True)
    for what in (Settling.RETURN, Settling.RELEASE):
        held = asking.giving.take("g")
        asking.core.wait(asking.giving.ask("g", asking.giving.items(held, what, [3], BOOM)))
    asking.others()
    outcomes, is_complete = told(asking.ask(3))
    assert (outcomes[:5], is_complete) == (["rejected", "dead-lettered", "redriven", "returned", "failed"], False)
    assert asking.pieces <= 8


def test_what_lies_behind_too_much_is_read_from_its_own_time_on(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that waited among many is dead-lettered in the end: its attempt is told, and that more may be missing."""
    monkeypatch.setattr(attempts, "READ_BYTES", 5 * PIECE)
    asking.produce(1)
    first = asking.giving.take("g")
    asking.core.wait(asking.giving.ask("g", asking.giving.items(first, Settling.RELEASE, [8], BOOM)))
    asking.others()
    began_us = asking.core.time.wall_us()
    asking.core.advance(60 * SECOND)
    asking.giving.reject_held("g", {8: asking.giving.take("g")[8]})
    asking.core.advance(3 * SECOND)
    assert told(asking.ask(8))[1] is False
    assert told(asking.ask(8, since_us=began_us)) == (["failed", "rejected", "dead-lettered"], False)
    assert asking.pieces <= 14


def test_of_hundreds_of_attempts_with_long_errors_the_last_are_told(asking: Asking) -> None:
    """Of 400 that said 3,000 characters each those that a mebibyte holds; all of 300."""
    giving, core = asking.giving, asking.core
    giving.group("often", letter_settings(max_attempts=1_000))
    told: list[tuple[int, int, bool]] = []
    for number in range(1, 401):
        error = SettleError("ValueError", f"{number:03}" + "x" * 2_997, "")
        held = giving.take("often", 1)
        core.wait(giving.ask("often", giving.items(held, Settling.RELEASE, [0], error)))
        core.advance(SECOND)
        if number % 100 == 0 and number > 200:
            reply = asking.ask(0, group="often")
            texts = [int(one.error.text[:3]) for one in reply.attempts if one.error is not None]
            assert texts == [*range(texts[0], number + 1)]
            told.append((number, texts[0], reply.is_complete))
    assert told == [(300, 1, True), (400, 56, False)]
