"""Two queue groups and a replay over one topic, their real broker and workers killed, stopped and cut off at random.

Workers (blocking, asyncio, trio) go through one proxy. What they wrote down, what was done to them, and what the broker
says of every message at the end form one history, which must keep every rule of queue groups.
"""

from __future__ import annotations

import random
import threading
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.crash.test_kill import wait_until
from tests.crash.test_queue_workers import Crew, states_of
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.history import Fault
from tests.helpers.proxy import Proxy, Rule
from tests.helpers.queue_broker import QueueBroker, queue_settings
from tests.helpers.queue_history import Handed, Told, message_of
from tests.helpers.queue_rules import violations
from tests.helpers.queue_working import WorkerProcess

from tidelog import Client
from tidelog.protocol.api import Api

pytestmark = [pytest.mark.process, pytest.mark.crash, pytest.mark.usefixtures("children_find_the_tests")]

TOPIC = "orders"
PARTITIONS = 2
VISIBILITY_S = 1.0
GROUPS = {"billing": ("blocking", "asyncio"), "audit": ("trio",)}
BETWEEN = 25
"""Hand-overs between one fault and the next."""


class Publisher:
    """Publishes for as long as the storm lasts, and replays what there is."""

    def __init__(self, seen: QueueBroker, url: str, seed: int) -> None:
        self.published = self.replays = 0
        self.error: BaseException | None = None
        self._seen, self._url, self._rng = seen, url, random.Random(seed)
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=run, daemon=True) for run in (self._publish, self._replay)]
        for thread in self._threads:
            thread.start()

    def _publish(self) -> None:
        try:
            with Client(self._url, timeout=60) as client:
                while not self._stopping.wait(0.02):
                    partition = self._rng.randrange(PARTITIONS)
                    names = self._seen.publish(client, "p", self._rng.choice((1, 3, 20)), partition=partition)
                    self.published += len(names)
        except BaseException as error:
            self.error = error

    def _replay(self) -> None:
        """A reader without a group sees every message, whatever groups make of them."""
        try:
            with Client(self._url, timeout=60) as client:
                while not self._stopping.wait(0.2):
                    with client.replay(TOPIC) as replay:
                        ranges = replay.ranges()
                        found = [message_of(message.value) for message in replay.messages()]
                    assert len(found) == sum(end - start for start, end in ranges.values())
                    assert len(set(found)) == len(found)
                    self.replays += 1
        except BaseException as error:
            self.error = error

    def wait_until_known(self) -> None:
        """Wait until both clients know their broker: to find none at a first connection is an error."""
        wait_until(lambda: self.error or (self.published and self.replays), "a first message and a first replay")

    def finish(self) -> None:
        """End it; raises what ended it before."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), "publishing or replaying did not end"
        if self.error is not None:
            raise self.error


class Storm:
    """The faults, and how often each of them was provoked."""

    def __init__(self, seen: QueueBroker, proxy: Proxy, crews: dict[str, Crew], stack: ExitStack, seed: int) -> None:
        self.seen, self.proxy, self.crews = seen, proxy, crews
        self.rng = random.Random(seed)
        self.workers: list[WorkerProcess] = []
        self.rules: list[Rule] = []
        self.counts = dict.fromkeys(("kill broker", "kill worker", "stop worker", "stop broker", "cut", "reset"), 0)
        self._stack = stack
        for group, flavours in GROUPS.items():
            for flavour in flavours:
                self.hire(group, flavour)

    def hire(self, group: str, flavour: str) -> None:
        """Start a worker."""
        seed = self.rng.randrange(1 << 30)
        worker = self.crews[group].start(self.proxy.url, flavour=flavour, seed=seed, syncs=flavour == "asyncio")
        self.workers.append(self._stack.enter_context(worker))

    def wait_for_progress(self) -> None:
        """Wait until workers were handed so many more messages."""
        goal = self.written() + BETWEEN * 250
        wait_until(lambda: self.written() >= goal, f"progress after {self.counts}")
        # A first connection to a broker that is away is an error: new workers are let in before the next fault.
        wait_until(lambda: all(worker.recorded_bytes() > 300 for worker in self.workers), "a first message of each")
        for worker in self.workers:
            assert not worker.has_ended(), f"{worker.job.name} ended with {worker.process.exitcode}"

    def written(self) -> int:
        """How much all workers wrote down."""
        return sum(path.stat().st_size for crew in self.crews.values() for path in crew.records if path.exists())

    def strike(self, kind: str) -> None:
        """Provoke one fault."""
        self.counts[kind] += 1
        broker = self.seen.broker
        match kind:
            case "kill broker":
                broker.kill()
                self.seen.note(Fault(kind="kill"))
                broker.start()
            case "kill worker":
                worker = self.workers.pop(self.rng.randrange(len(self.workers)))
                worker.kill()
                self.hire(worker.job.group, worker.job.flavour)
            case "stop worker":
                worker = self.rng.choice(self.workers)
                worker.pause()
                threading.Event().wait(VISIBILITY_S + 0.3)
                worker.resume()
            case "stop broker":
                broker.pause()
                threading.Event().wait(0.7)  # nothing can be seen of time that passes for a process that stands still
                broker.resume()
            case "reset":
                self.seen.reset_group("audit")
            case _:
                apis = (Api.SETTLE, Api.ACQUIRE, Api.SETTLE)
                self.rules += [
                    self.proxy.cut(api, replies=self.rng.random() < 0.7, after=self.rng.randrange(5)) for api in apis
                ]


def blow(tmp_path: Path, rounds: int, seed: int, kinds: tuple[str, ...]) -> Storm:
    """Run a storm of some rounds of faults, let the workers end their work, and judge."""
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path / "data"))
        proxy = stack.enter_context(Proxy(*broker.address))
        seen = QueueBroker(broker, TOPIC, PARTITIONS)
        for group in GROUPS:
            seen.make_group(group, queue_settings(visibility_s=VISIBILITY_S, max_attempts=4, backoff_s=0.1))
        crews = {group: Crew(tmp_path, seen, group, visibility_timeout=VISIBILITY_S) for group in GROUPS}
        publisher = Publisher(seen, broker.url, seed)
        publisher.wait_until_known()
        storm = Storm(seen, proxy, crews, stack, seed)
        for _ in range(rounds):
            for kind in storm.rng.sample(kinds, len(kinds)):
                storm.wait_for_progress()
                storm.strike(kind)
        storm.wait_for_progress()
        publisher.finish()
        proxy.heal()
        seen.wait_until_settled([*GROUPS])
        for worker in storm.workers:
            worker.finish()
        finals = seen.finals([*GROUPS])
        for group, crew in crews.items():
            history = crew.history([final for final in finals if final.group == group])
            history.events = [event for event in history.events if getattr(event, "group", group) == group]
            (tmp_path / f"{group}-history").write_bytes(b"\n".join(map(msgspec.json.encode, history.events)))
            assert violations(history) == []
            assert set(states_of(finals, group).values()) <= {"acknowledged", "dead-lettered"}
            assert sum(isinstance(event, Handed) for event in history.events) > 100
            assert sum(isinstance(event, Told) and event.how == "ok" for event in history.events) > 50
        assert publisher.replays > 0
        assert broker.stop() == 0
    return storm


@pytest.mark.timeout(900)
def test_groups_in_a_storm(tmp_path: Path, soak: int) -> None:
    """Kills of the broker and of workers, stops of either, and lost answers: nothing acknowledged comes back, nothing
    is lost, attempts are what was counted, and no group feels the other, nor a replay either."""
    kinds = ("kill broker", "kill worker", "stop worker", "stop broker", "cut")
    storm = blow(tmp_path, soak, seed=soak, kinds=kinds)
    assert [storm.counts[kind] for kind in kinds] == [soak] * len(kinds)
    assert any(rule.fired for rule in storm.rules)


@pytest.mark.timeout(900)
def test_a_group_that_is_reset_under_its_workers(tmp_path: Path, soak: int) -> None:
    """Members of the generation before settle nothing any more, and go on in the new one; the other group is not moved."""
    storm = blow(tmp_path, 2 * soak, seed=soak, kinds=("reset", "kill worker"))
    assert storm.counts["reset"] == 2 * soak
