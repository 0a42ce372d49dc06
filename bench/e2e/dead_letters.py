"""Dead letters: how many a second go in, and come back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from tidelog import Client

from ..conditions import Conditions
from ..errors import VerificationError
from ..queueing import OnceEach
from ..values import unique_values
from .broker import BrokerProcess
from .queueing import GROUP, SILENCE_SECONDS, check_settled
from .topic import TOPIC, create_topics, produce_lists

SHARE = 10
"""One in so many of the messages of other figures: each copy is decoded, made anew and synced."""

PATIENCE_SECONDS = 120.0


def dead_letters(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time messages from their rejection to the last durable copy, and back to their group; then handle them."""
    values = unique_values(max(conditions.messages // SHARE, 1), conditions.size, conditions.round)
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        create_topics(client)
        produce_lists(client, TOPIC, values)
        began = time.perf_counter()
        _reject_all(client, values)
        _wait_for_copies(client, len(values))
        elapsed = time.perf_counter() - began
        _check_copies(client, values)
        yield "dead_letters_in", len(values) / elapsed
        began = time.perf_counter()
        done = client.dead_letters.redrive(TOPIC, timeout=PATIENCE_SECONDS)
        elapsed = time.perf_counter() - began
        if (done.matched, client.dead_letters.count(TOPIC)) != (len(values), 0):
            raise VerificationError(f"expected {len(values)} dead letters to be redriven, found {done}")
        _handle_all(client, values)
        yield "dead_letters_redriven", len(values) / elapsed


def _reject_all(client: Client, values: Sequence[bytes]) -> None:
    with client.queue(TOPIC, GROUP) as queue:
        for _, message in zip(values, queue.messages(idle_timeout=SILENCE_SECONDS), strict=False):
            message.reject("no handler for it")
        queue.flush()


def _wait_for_copies(client: Client, count: int) -> None:
    """Return when every copy is durable, as the group's account says. Raises VerificationError."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        (found,) = client.groups.describe(GROUP).topics[0].partitions
        if found.floor == count:
            return
        if time.monotonic() > until:
            raise VerificationError(f"expected {count} messages to be dead-lettered, found {found}")
        time.sleep(0.01)


def _check_copies(client: Client, values: Sequence[bytes]) -> None:
    once = OnceEach(values)
    once.take([letter.message.value or b"" for letter in client.dead_letters.list(TOPIC)])
    once.finish()


def _handle_all(client: Client, values: Sequence[bytes]) -> None:
    """Acknowledge what came back, each as at its first attempt."""
    once = OnceEach(values)
    with client.queue(TOPIC, GROUP) as queue:
        for _, message in zip(values, queue.messages(idle_timeout=SILENCE_SECONDS), strict=False):
            if message.attempt != 1:
                raise VerificationError(f"expected a first attempt, found {message.attempt} of {message.id}")
            once.take([message.value or b""])
            message.ack()
        queue.flush()
    once.finish()
    check_settled(client, GROUP, len(values))
