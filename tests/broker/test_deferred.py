"""Answers that come later: once, to whoever still wants them."""

from __future__ import annotations

import pytest

from tidelog.broker.deferred import Deferred, State, failed, resolved
from tidelog.protocol.errors import NotFoundError, OverloadedError


def test_callbacks_hear_the_answer_once_in_order() -> None:
    """Everyone who asked before or after the answer is called once with it."""
    answer: Deferred[int] = Deferred()
    heard: list[str] = []
    answer.on_done(lambda done: heard.append(f"first {done.result()}"))
    answer.on_done(lambda done: heard.append(f"second {done.result()}"))
    assert answer.resolve(7)
    answer.on_done(lambda done: heard.append(f"late {done.result()}"))
    assert heard == ["first 7", "second 7", "late 7"]


def test_a_failure_is_raised_to_whoever_asks_for_the_value() -> None:
    """A failed answer has its error and raises it as the result."""
    answer: Deferred[int] = failed(NotFoundError("no"))
    assert isinstance(answer.error, NotFoundError)
    with pytest.raises(NotFoundError):
        answer.result()


def test_nobody_is_called_after_a_withdrawal() -> None:
    """Whoever would answer is told to forget it; an answer that comes all the same goes nowhere."""
    forgotten: list[str] = []
    answer: Deferred[int] = Deferred(lambda: forgotten.append("told"))
    heard: list[int] = []
    answer.on_done(lambda done: heard.append(done.result()))
    assert answer.withdraw()
    assert not answer.withdraw()
    assert not answer.resolve(1)
    assert (forgotten, heard, answer.state) == (["told"], [], State.WITHDRAWN)


def test_an_answer_cannot_be_withdrawn() -> None:
    """What was answered stays answered."""
    answer = resolved(1)
    assert not answer.withdraw()
    assert answer.result() == 1


def test_a_second_answer_is_a_bug() -> None:
    """Nobody can change an answer that was given."""
    answer = resolved(1)
    with pytest.raises(AssertionError):
        answer.resolve(2)
    with pytest.raises(AssertionError):
        answer.fail(NotFoundError("no"))


def test_then_changes_the_value_and_passes_errors_on() -> None:
    """A changed answer has the changed value, the first one's error, or the error that changing it raised."""
    source: Deferred[int] = Deferred()
    doubled = source.then(lambda value: value * 2)
    source.resolve(4)
    assert doubled.result() == 8

    broken: Deferred[int] = Deferred()
    passed = broken.then(lambda value: value * 2)
    broken.fail(NotFoundError("no"))
    assert isinstance(passed.error, NotFoundError)

    def refuse(value: int) -> int:
        raise OverloadedError(f"not {value}")

    assert isinstance(resolved(3).then(refuse).error, OverloadedError)


def test_withdrawing_the_changed_withdraws_the_source() -> None:
    """Whoever only knows the changed answer can still withdraw the request behind it."""
    source: Deferred[int] = Deferred()
    changed = source.then(str)
    assert changed.withdraw()
    assert source.state is State.WITHDRAWN
