"""Ctrl-C between any two steps of taking messages of a queue and of settling them: nothing is lost, nothing hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.client.core.interrupting import FOLDER, at_line
from tests.client.flavours import World
from tests.client.queues import Stage, queue_broker  # noqa: F401
from tests.helpers.broker_process import BrokerProcess
from tidelog import Client, LeaseLostError, Queue, UnknownGroupError
from tidelog.client.blocking import taking

pytestmark = pytest.mark.process

EDGE = (
    str(Path(taking.__file__).parent),
    ("taking.py", "acquirer.py", "asking.py", "queue_desk.py", "settle_sender.py"),
)
CORE = (FOLDER, ("granted.py", "held_lease.py", "lease_book.py", "queue_hand.py", "settles.py"))
COUNT = 6
UNSETTLED = ["available", "leased", "waiting", "suspect"]
MOMENT_S = 15.0
"""Half of what a lease runs: what comes only when it has ended is not there by then."""
STRIDE = 9
"""Every ninth line, so that it takes seconds."""


def _interrupt() -> None:
    raise KeyboardInterrupt


def _work(queue: Queue) -> None:
    """Take and settle some in every way, of two answers."""
    for message in queue.receive(2):
        message.ack()
    for message in queue.messages(limit=2):
        message.ack(wait=True)
    queue.flush()


def _interrupted(queue: Queue, number: int, where: tuple[str, tuple[str, ...]]) -> bool:
    try:
        return at_line(number, _interrupt, lambda: _work(queue), where[1], where[0])
    except KeyboardInterrupt:
        return True


def _rest(client: Client, queue: Queue, group: str, most_left: int) -> list[int]:
    """Acknowledge what comes until so many are left, and return it. A busy machine may take a while, but never as long
    as a lease runs."""
    found: list[int] = []
    until = time.monotonic() + MOMENT_S
    while _left(client, group) > most_left and time.monotonic() < until:
        for message in queue.messages(idle_timeout=0.05):
            found.append(message.offset)
            message.ack()
        with suppress(LeaseLostError):
            queue.flush(timeout=5)
    return found


def _left(client: Client, group: str) -> int:
    """Return how many messages the group has not settled; all of them before it is there."""
    with suppress(UnknownGroupError):
        return sum(1 for _ in client.groups.messages(group, states=UNSETTLED))
    return COUNT


def _leave(client: Client, stage: Stage, group: str, number: int, where: tuple[str, tuple[str, ...]]) -> bool:
    """Leave the block by the interrupt; another queue of the group gets all the rest at once."""
    was_struck = False
    with client.queue(stage.topic, group, max_in_flight=4) as queue:
        was_struck = _interrupted(queue, number, where)
    with client.queue(stage.topic, group, max_in_flight=4) as queue:
        _rest(client, queue, group, 0)
    return was_struck


def _go_on(client: Client, stage: Stage, group: str, number: int, where: tuple[str, tuple[str, ...]]) -> bool:
    """Go on in the same block; only what a call had in its hands comes when the block is left."""
    with client.queue(stage.topic, group, max_in_flight=4) as queue:
        was_struck = _interrupted(queue, number, where)
        _rest(client, queue, group, 2)
        assert _left(client, group) <= 2
    with client.queue(stage.topic, group, max_in_flight=4) as queue:
        _rest(client, queue, group, 0)
    return was_struck


@pytest.mark.parametrize("after", [_leave, _go_on])
@pytest.mark.parametrize("where", [EDGE, CORE], ids=["edge", "core"])
def test_ctrl_c_anywhere_loses_nothing(
    where: tuple[str, tuple[str, ...]],
    after: Callable[[Client, Stage, str, int, tuple[str, tuple[str, ...]]], bool],
    queue_broker: BrokerProcess,  # noqa: F811
) -> None:
    """Everything is acknowledged in the end, within a moment and not after a visibility timeout."""
    stage = Stage(World("blocking", None), queue_broker)  # type: ignore[arg-type]
    with Client(queue_broker.url) as client:
        client.topics.create(stage.topic, partitions=1)
        client.produce_many(stage.topic, [b"x"] * COUNT)
        number, was_struck = 1, True
        while was_struck:
            group = f"{stage.group}-{number}"
            was_struck = after(client, stage, group, number, where)
            left = [(each.id, each.state) for each in client.groups.messages(group, states=UNSETTLED)]
            assert (number, left) == (number, [])
            number += STRIDE
    assert number > 100
