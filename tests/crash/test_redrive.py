"""A real broker that is killed in the middle of redrives and of dead-lettering: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from tests.crash.test_kill import wait_until
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.command_line import CommandLine

from tidelog import Client, Redriven, TidelogError

pytestmark = [pytest.mark.process, pytest.mark.crash]

COUNT = 10_000


def give_up_on_all(client: Client) -> None:
    """Publish messages, and have group g refuse all of them."""
    client.topics.create("orders", partitions=1)
    client.produce_many("orders", [b"%d" % at for at in range(COUNT)])
    with client.queue("orders", "g", max_in_flight=COUNT) as queue:
        left = COUNT
        while left:
            for message in queue.receive(1_000, timeout=30):
                message.reject("poison")
                left -= 1
        queue.flush(timeout=60)


class Killer:
    """Kills the broker in the middle of a redrive, each time it has come so far, and starts it again."""

    def __init__(self, broker: BrokerProcess, at: tuple[int, ...], seed: int) -> None:
        self.kills = 0
        self._broker = broker
        self._at = [*at]
        self._done = 0
        self._rng = random.Random(seed)
        self._thread = threading.Thread(target=lambda: None)
        self._thread.start()

    def progress(self, count: int) -> None:
        """Be told how many more are done."""
        self._done += count
        if self._at and self._done >= self._at[0]:
            del self._at[0]
            self._thread.join()
            self._thread = threading.Thread(target=self._kill, args=(self._rng.uniform(0.0, 0.04),))
            self._thread.start()

    def _kill(self, delay_s: float) -> None:
        time.sleep(delay_s)  # into one of the requests that follow
        self._broker.restart()
        self.kills += 1

    def join(self) -> None:
        """Wait for the last start."""
        self._thread.join()


def values_of(client: Client, group: str) -> Counter[bytes]:
    """Take all that a group can get, as it is given out; how often each value came."""
    found: Counter[bytes] = Counter()
    with client.queue("orders", group) as queue:
        while messages := queue.receive(1_000, timeout=2):
            for message in messages:
                assert message.value is not None
                found[message.value] += 1
                message.ack()
        queue.flush(timeout=60)
    return found


ONE_EACH = Counter(b"%d" % at for at in range(COUNT))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("as_new", [False, True], ids=["in place", "as new"])
def test_ten_thousand_are_redriven_once_over_kills(tmp_path: Path, as_new: bool) -> None:
    """Killed three times in the middle of it: in the end every message was given to the group once more, and once only,
    and none is pending."""
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.url) as client:
        give_up_on_all(client)
        wait_until(lambda: client.dead_letters.count("orders") == COUNT, "dead-lettering")
        killer = Killer(broker, (500, 3_000, 6_500), seed=as_new)
        done = Redriven()
        while client.dead_letters.count("orders"):
            with suppress(TidelogError):
                done = client.dead_letters.redrive(
                    "orders", as_new=as_new, rate=5_000, on_progress=killer.progress, timeout=30
                )
            killer.join()
        assert killer.kills == 3
        assert done.refused == []
        assert client.dead_letters.count("orders") == 0
        assert values_of(client, "g") == ONE_EACH
        stored = sum(1 for _ in client.replay("orders").messages())
        assert stored == (2 * COUNT if as_new else COUNT)


@pytest.mark.timeout(300)
def test_the_command_finishes_what_was_cut_off(tmp_path: Path) -> None:
    """`tidelog dlq redrive` whose broker is killed, the same command again, and the exit code that says there is no
    more."""
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.url) as client:
        give_up_on_all(client)
        wait_until(lambda: client.dead_letters.count("orders") == COUNT, "dead-lettering")
        tidelog = CommandLine(broker.url, tmp_path)
        cut = tidelog.run("dlq", "redrive", "orders", "--limit", "4000").out
        assert cut == b"redrove 4000 dead letters: 4000 in place\n"
        broker.restart()
        assert client.dead_letters.count("orders") == COUNT - 4_000
        thread = threading.Timer(0.2, broker.restart)
        thread.start()
        tidelog.run("dlq", "redrive", "orders", "--rate", "5000/s", code=None)
        thread.join()
        tidelog.run("dlq", "redrive", "orders", code=None)
        assert tidelog.run("dlq", "redrive", "orders", code=3).out == b""
        assert values_of(client, "g") == ONE_EACH


@pytest.mark.timeout(300)
def test_dead_letters_survive_kills_while_they_are_made(tmp_path: Path) -> None:
    """Killed while the copies of 10,000 refused messages are made: one dead letter each in the end."""
    rng = random.Random(6)
    with BrokerProcess(tmp_path / "data") as broker, Client(broker.url) as client:
        give_up_on_all(client)
        for _ in range(3):
            time.sleep(rng.uniform(0.0, 0.1))
            broker.restart()
        wait_until(lambda: client.dead_letters.count("orders") == COUNT, "dead-lettering")
        time.sleep(0.5)
        letters = Counter(letter.original_id for letter in client.dead_letters.list("orders"))
        assert letters == Counter(f"orders/0@{at}" for at in range(COUNT))
