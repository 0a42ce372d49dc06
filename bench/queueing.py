"""Each message acknowledged on its own, by one consumer: the loop that both sides are timed by, and its account."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from .errors import VerificationError

NACK_EVERY = 100
"""Of the figure with failures: every so many messages one is given back at its first delivery."""

M = TypeVar("M")


class Deliveries(Protocol[M]):
    """A consumer of a queue group, of either system."""

    def next(self) -> Sequence[M]:
        """Return the next messages, once there are some; none after a silence."""
        ...

    def value_of(self, message: M) -> bytes:
        """Return a message's value."""
        ...

    def settle(self) -> None:
        """Return when everything acknowledged or given back so far is done."""
        ...


class OnceEach:
    """Which values were acknowledged: at the end each one, and none twice."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._left = set(values)
        self._count = len(values)
        self._done: list[bytes] = []

    def take(self, done: Iterable[bytes]) -> None:
        """Note values that were acknowledged, in any order."""
        self._done.extend(done)

    def finish(self) -> None:
        """Raise VerificationError unless all were acknowledged, each once."""
        if len(self._done) != self._count or set(self._done) != self._left:
            wrong = len(set(self._done) - self._left)
            raise VerificationError(
                f"expected {self._count} messages to be acknowledged once each, found {len(self._done)},"
                f" of {len(set(self._done))} values, {wrong} of them never sent"
            )


def time_acknowledging(consumer: Deliveries[M], values: Sequence[bytes], acknowledge: Callable[[M], object]) -> float:
    """Acknowledge each message on its own, and return how many a second until the last is settled.

    The clock starts with the first messages in hand: joining is not timed.
    """
    once = OnceEach(values)
    kept: list[Sequence[M]] = []
    found = consumer.next()
    kept.append(found)
    began, count, first = time.perf_counter(), 0, len(found)
    while found:
        for message in found:
            acknowledge(message)
        count += len(found)
        if count >= len(values):
            break
        found = consumer.next()
        kept.append(found)
    consumer.settle()
    elapsed = time.perf_counter() - began
    for messages in kept:
        once.take(map(consumer.value_of, messages))
    once.finish()
    return (count - first) / elapsed


def time_with_failures(
    consumer: Deliveries[M],
    values: Sequence[bytes],
    acknowledge: Callable[[M], object],
    give_back: Callable[[M], object],
) -> float:
    """The same, but of every NACK_EVERY messages one is given back when it is first delivered, and acknowledged when it
    comes again."""
    once = OnceEach(values)
    failing = {value for at, value in enumerate(values) if at % NACK_EVERY == 0}
    expected, acked, returned = len(values), list[bytes](), 0
    found = consumer.next()
    began = time.perf_counter()
    while found:
        for message in found:
            value = consumer.value_of(message)
            if value in failing:
                failing.remove(value)
                give_back(message)
                returned += 1
            else:
                acknowledge(message)
                acked.append(value)
        if len(acked) >= expected:
            break
        found = consumer.next()
    consumer.settle()
    elapsed = time.perf_counter() - began
    once.take(acked)
    once.finish()
    if failing:
        raise VerificationError(f"expected {returned + len(failing)} messages to be given back, found {returned}")
    return expected / elapsed
