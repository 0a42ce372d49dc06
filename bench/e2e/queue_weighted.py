"""A queue group over lanes with weights: small batches of one lane each in turn, and few large ones."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tidelog import Client, QueueMessage

from ..conditions import Conditions
from ..errors import VerificationError
from ..values import unique_values
from .broker import BrokerProcess
from .queueing import GROUP, acknowledge_each, check_settled
from .topic import TOPIC

WEIGHTS = {9: 6, 4: 3, 0: 1}
SMALL = (40, 74)
"""Messages of a small batch: what one of several producers sends at a time."""

FURTHEST = 100
"""Deliveries that a lane may be from its share: half a round of 200, twice where a reply ends within one."""

Fill = Callable[[Client, Sequence[bytes], int], None]


def weighted(conditions: Conditions) -> Iterator[tuple[str, float]]:
    """Time each message acknowledged on its own where three lanes have weights."""
    values = unique_values(conditions.messages, conditions.size, conditions.round)
    for name, fill in (("small", _fill_small), ("large", _fill_large)):
        yield f"queue_weighted_{name}", _time(conditions, values, fill)


def _fill_small(client: Client, values: Sequence[bytes], seed: int) -> None:
    chance = random.Random(seed)
    at = 0
    while at < len(values):
        end = at + chance.randint(*SMALL)
        client.produce_many(TOPIC, values[at:end], priority=chance.choice([*WEIGHTS]))
        at = end


def _fill_large(client: Client, values: Sequence[bytes], _seed: int) -> None:
    for place, priority in enumerate(WEIGHTS):
        start, end = (len(values) * each // len(WEIGHTS) for each in (place, place + 1))
        client.produce_many(TOPIC, values[start:end], priority=priority)


def _time(conditions: Conditions, values: Sequence[bytes], fill: Fill) -> float:
    """Acknowledge all. Raises VerificationError where a lane does not have its share."""
    weights = ", ".join(f"{lane}:{weight}" for lane, weight in WEIGHTS.items())
    with BrokerProcess("--durability", conditions.durability) as broker, Client(broker.url) as client:
        client.topics.create(TOPIC, partitions=1, lanes_policy="weighted", lanes_weights=weights)
        fill(client, values, conditions.round)
        rate, kept = acknowledge_each(client, values)
        check_settled(client, GROUP, len(values))
    _check_shares(kept)
    return rate


def _check_shares(kept: Sequence[QueueMessage]) -> None:
    """Raise VerificationError where a lane is far from its share while all of them have something."""
    left, seen, total = Counter(message.priority for message in kept), Counter[int](), sum(WEIGHTS.values())
    if len(left) < len(WEIGHTS):
        return  # of few messages none may have been of some lane
    for count, message in enumerate(kept, 1):
        seen[message.priority] += 1
        left[message.priority] -= 1
        if not left[message.priority]:
            return
        furthest = max(abs(seen[lane] - count * weight / total) for lane, weight in WEIGHTS.items())
        if furthest > FURTHEST:
            raise VerificationError(f"expected shares by {WEIGHTS}, found {dict(seen)} of the first {count} messages")
