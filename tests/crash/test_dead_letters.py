"""A real broker killed at random while two groups give up on a stream of messages: one dead letter for each, no more."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.crash.test_kill import wait_until
from tests.helpers.broker_process import BrokerProcess

from tidelog import Client

pytestmark = [pytest.mark.process, pytest.mark.crash, pytest.mark.usefixtures("children_find_the_tests")]

GROUPS = ("billing", "audit")
MESSAGES = 4_000
KILLS = 6


class Giver:
    """A worker that rejects all it gets, until it is told to stop."""

    def __init__(self, url: str, group: str) -> None:
        self.rejected = 0
        self.error: BaseException | None = None
        self._url, self._group = url, group
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with (
                Client(self._url, timeout=60) as client,
                client.queue("orders", self._group, max_in_flight=200) as queue,
            ):
                while not self._stopping.is_set():
                    for message in queue.receive(max_messages=50, timeout=0.2):
                        message.reject(ValueError(f"{self._group} gave up on {message.id}"))
                        self.rejected += 1
        except BaseException as error:
            self.error = error

    def finish(self) -> None:
        """End it; raises what ended it before."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "a worker did not end"
        if self.error is not None:
            raise self.error


def rejected(givers: list[Giver]) -> int:
    """How many messages were rejected so far. Raises what ended a worker."""
    for giver in givers:
        if giver.error is not None:
            raise giver.error
    return sum(giver.rejected for giver in givers)


def left_of(client: Client, group: str) -> int:
    """How many messages a group has to do with, or waits to have copies of."""
    found = client.groups.describe(group)
    return found.backlog + sum(part.dead_lettering for topic in found.topics for part in topic.partitions)


@pytest.mark.parametrize("seed", [1])
def test_killed_at_random_there_is_one_dead_letter_for_each_group_and_message(tmp_path: Path, seed: int) -> None:
    """Six kills between rejects, intents, copies and records; after the last each message is in the dead-letter topic
    once for each of the groups, whole, and neither group has anything left to do."""
    rng = random.Random(seed)
    with BrokerProcess(tmp_path / "data") as broker:
        with Client(broker.url, timeout=60) as client:
            client.topics.create("orders", partitions=2)
            values = [b"%d " % number + b"x" * (number % 300) for number in range(MESSAGES)]
            for at in range(0, MESSAGES, 500):
                client.produce_many("orders", values[at : at + 500], partition=at // 500 % 2)
            for group in GROUPS:
                client.groups.create(group, "orders")
        givers = [Giver(broker.url, group) for group in GROUPS]
        for kill in range(KILLS):
            want = (kill + 1) * MESSAGES * len(GROUPS) // (KILLS + 2)
            wait_until(lambda want=want: rejected(givers) >= want, "so many rejects")
            time.sleep(rng.random() / 20)
            broker.kill()
            broker.start()
        with Client(broker.url, timeout=60) as client:
            wait_until(lambda: not any(left_of(client, group) for group in GROUPS), "the end", every_s=0.1)
            for giver in givers:
                giver.finish()
            found = list(client.replay("orders.dlq").messages())
            for group in GROUPS:
                standing = client.groups.describe(group)
                parts = [part for topic in standing.topics for part in topic.partitions]
                assert sum(part.dead_lettered for part in parts) == MESSAGES
                assert [(part.dead_lettering, part.blocked) for part in parts] == [(0, None)] * 2
    assert broker.starts == KILLS + 1
    copies = Counter((message.headers["tidelog.dlq.group"], message.value) for message in found)
    assert copies == Counter((f"default/{group}".encode(), value) for group in GROUPS for value in values)
    for message in found:
        group, place = message.headers["tidelog.dlq.group"], message.headers["tidelog.dlq.offset"]
        assert group is not None
        assert place is not None
        where = f"orders/{message.partition}@{place.decode()}"
        text = f"ValueError: {group.decode().removeprefix('default/')} gave up on {where}".encode()
        assert (message.headers["tidelog.dlq.error"] or b"").startswith(text)
