"""Workers of a queue group that die: by a message, wherever it lies in a lease, or standing still past their lease.

Each test is a real broker and real worker processes; what they wrote down is judged by the rules of queue groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.crash.test_kill import wait_until
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.history import Recorder
from tests.helpers.queue_broker import QueueBroker, queue_settings
from tests.helpers.queue_history import Final, Handed, Killers, QueueHistory, Told, read_queue_records
from tests.helpers.queue_rules import violations
from tests.helpers.queue_working import KILLER, Job, WorkerProcess

from tidelog import Client

pytestmark = [pytest.mark.process, pytest.mark.crash, pytest.mark.usefixtures("children_find_the_tests")]

TOPIC = "orders"
LEASE = 10
"""Messages that are published at once, and mostly leased together."""


class Crew:
    """Workers of one group on one topic, replaced as they die."""

    def __init__(self, folder: Path, seen: QueueBroker, group: str, **given: object) -> None:
        self.folder = folder
        self.seen = seen
        self.group = group
        self.records: list[Path] = []
        self.deaths = 0
        self._given = given
        self._names = count()
        fates = folder / f"{group}-fates"
        self.records.append(fates)
        self.fates = Recorder(fates)

    def start(self, url: str, **given: object) -> WorkerProcess:
        """Start one more worker."""
        name = f"{self.group}-{next(self._names)}"
        record = self.folder / name
        self.records.append(record)
        job = Job(url, str(record), self.seen.topic, self.group, name, **{**self._given, **given})  # type: ignore[arg-type]
        return WorkerProcess(job, self.fates)

    def history(self, finals: list[Final]) -> QueueHistory:
        """All that was written down so far, and what the broker says."""
        records = [record for record in self.records if record.exists()]
        events = sorted([*self.seen.events, *read_queue_records(records)], key=lambda event: event.at_ns)
        return QueueHistory([*events, *finals])


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[QueueBroker]:
    """A broker with a topic of one partition."""
    with BrokerProcess(tmp_path / "data") as broker:
        yield QueueBroker(broker, TOPIC)


def states_of(finals: list[Final], group: str) -> dict[str, str]:
    """Message -> state in a group."""
    return {final.message: final.state for final in finals if final.group == group}


class Ordeal:
    """One topic with one message that kills, and the workers that go through it."""

    def __init__(self, folder: Path, broker: BrokerProcess, place: int, max_attempts: int) -> None:
        self.max_attempts = max_attempts
        self.seen = QueueBroker(broker, f"orders-{place}-{max_attempts}")
        self.seen.make_group("g", queue_settings(visibility_s=1, max_attempts=max_attempts, backoff_s=0.01))
        with Client(broker.url) as client:
            before = self.seen.publish(client, "p", place) if place else []
            (self.killer,) = self.seen.publish(client, KILLER, 1)
            after = self.seen.publish(client, "q", LEASE - 1 - place) if place < LEASE - 1 else []
        self.seen.note(Killers(messages=[self.killer]))
        self.wanted = dict.fromkeys([*before, *after], "acknowledged") | {self.killer: "dead-lettered"}
        folder.mkdir()
        self.crew = Crew(folder, self.seen, "g", nacks=0, rejects=0, waits=1, extends=0, visibility_timeout=1)
        self.worker = self.crew.start(broker.url)

    def is_over(self) -> bool:
        """Whether all has come to its end; a worker that died is replaced."""
        if self.worker.has_ended():
            self.crew.deaths += 1
            assert self.crew.deaths <= self.max_attempts + 3, (
                "handed over a few times more than it counts, not for ever"
            )
            self.worker = self.crew.start(self.seen.broker.url)
        return states_of(self.seen.finals(["g"]), "g") == self.wanted

    def judge(self) -> None:
        """Let the last worker end, and hold all of it to the rules."""
        self.worker.finish()
        finals = self.seen.finals(["g"])
        assert violations(self.crew.history(finals)) == []
        assert self.crew.deaths >= self.max_attempts
        assert [final.attempts for final in finals if final.message == self.killer] == [self.max_attempts]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("max_attempts", [1, 2, 3])
def test_a_message_that_kills_its_worker(tmp_path: Path, max_attempts: int) -> None:
    """First, in the middle or last in a lease, it is given up alone, at its limit; all the others end acknowledged."""
    with BrokerProcess(tmp_path / "data") as broker:
        ordeals = [Ordeal(tmp_path / f"at{place}", broker, place, max_attempts) for place in (0, LEASE // 2, LEASE - 1)]
        try:
            wait_until(lambda: [each.is_over() for each in ordeals] == [True, True, True], "the end", every_s=0.05)
            for ordeal in ordeals:
                ordeal.judge()
        finally:
            for ordeal in ordeals:
                ordeal.worker.__exit__(None, None, None)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("flavour", ["blocking", "asyncio"])
def test_a_worker_that_stood_still_past_its_lease(tmp_path: Path, seen: QueueBroker, flavour: str) -> None:
    """What it settles when it goes on is refused and changes nothing: the message is another's by then."""
    seen.make_group("g", queue_settings(visibility_s=1, max_attempts=4, backoff_s=0.01))
    crew = Crew(tmp_path, seen, "g", nacks=0, rejects=0, waits=1, extends=0, visibility_timeout=1)
    with Client(seen.broker.url) as client:
        seen.publish(client, "p", 1)
    with crew.start(seen.broker.url, flavour=flavour, handling=2.0, seed=3) as slow:
        wait_until(lambda: handed_by(slow) > 0, "the first hand-over")
        slow.pause()
        with crew.start(seen.broker.url, handling=0) as other:
            wait_until(
                lambda: states_of(seen.finals(["g"]), "g") == {"p/0": "acknowledged"}, "the other's work", every_s=0.05
            )
            wait_until(lambda: told_by(other) > 0, "the answer to the other's settle")
            slow.resume()
            wait_until(lambda: told_by(slow) > 0, "the answer to the late settle")
            other.finish()
        slow.finish()
    history = crew.history(seen.finals(["g"]))
    assert violations(history) == []
    assert [event.how for event in history.events if isinstance(event, Told)] == ["ok", "lost"]
    assert [event.attempt for event in history.events if isinstance(event, Handed)] in ([1, 1], [1, 2])


def handed_by(worker: WorkerProcess) -> int:
    """How many messages a worker wrote down that it was handed."""
    return _count(worker, Handed)


def told_by(worker: WorkerProcess) -> int:
    """How many answers a worker wrote down."""
    return _count(worker, Told)


def _count(worker: WorkerProcess, kind: type) -> int:
    events = read_queue_records([worker.record]) if worker.record.exists() else []
    return sum(isinstance(event, kind) for event in events)
