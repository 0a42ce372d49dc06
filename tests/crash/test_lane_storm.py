"""Messages of several priorities while their real broker and workers are killed and cut off at random.

One topic's lanes are strict, another's weighted with a limit to waiting, and each has a group. What the workers wrote
down keeps every rule of queue groups, and after each start of the broker every message has the place and the priority
that it was published with. After a last kill of everything one worker is left, and takes the rest in the order of lanes.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest
from tests.crash.test_kill import wait_until
from tests.crash.test_queue_storm import GROUPS, PARTITIONS, Storm
from tests.crash.test_queue_workers import Crew, states_of
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.history import Fault
from tests.helpers.proxy import Proxy
from tests.helpers.queue_broker import QueueBroker, queue_settings
from tests.helpers.queue_history import Asked, Handed, Published, QueueEvent, Told, message_of, read_queue_records
from tests.helpers.queue_rules import violations
from tests.helpers.queue_working import WorkerProcess

from tidelog import Client
from tidelog.protocol.delivery_states import DeliveryState
from tidelog.protocol.messages import GroupMessages, GroupMessagesReply, Message

pytestmark = [pytest.mark.process, pytest.mark.crash, pytest.mark.usefixtures("children_find_the_tests")]

STRICT, WEIGHTED = "billing", "audit"
"""The groups of a storm; each is of one topic here."""

TOPICS = {STRICT: "alarms", WEIGHTED: "letters"}
LANES = {STRICT: (0, 2, 7, 9), WEIGHTED: (0, 4, 9)}
WEIGHTS = {9: 6, 4: 3, 0: 1}
MAX_WAIT_S = 0.3
VISIBILITY_S = 2.0
"""Longer than replies wait here: each start is followed by a reading of all that there is."""

BACKLOG = 100
"""Messages of each lane that the last worker finds."""

TURNS = 100
"""Deliveries by weights that are counted: every lane has something left all the time."""

SLACK = 8
"""How many of those a lane may miss of its share: some deliveries by weights alone, and what was leased at once."""

AT_HAND = 10
"""What the last worker may hold, or have fetched, when a message of a higher lane comes."""

BACKOFF_S = 0.1
WAIT_NS = 200_000_000
"""When what was given back without a time of its own is ready for sure."""

KINDS = ("kill broker", "kill worker", "cut", "kill broker", "kill worker")


class Publisher:
    """Publishes to both topics for as long as the storm lasts, each batch of the call of priorities drawn at random."""

    def __init__(self, seen: dict[str, QueueBroker], url: str, seed: int) -> None:
        self.published = 0
        self.error: BaseException | None = None
        self._seen, self._url, self._rng = seen, url, random.Random(seed)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._publish, daemon=True)
        self._thread.start()

    def _publish(self) -> None:
        try:
            with Client(self._url, timeout=60) as client:
                while not self._stopping.wait(0.02):
                    group = self._rng.choice((STRICT, WEIGHTED))
                    priorities = self._rng.choices(LANES[group], k=self._rng.choice((1, 3, 20)))
                    partition = self._rng.randrange(PARTITIONS)
                    publish(self._seen[group], client, priorities, partition)
                    self.published += len(priorities)
        except BaseException as error:
            self.error = error

    def wait_until_known(self) -> None:
        """Wait until the client knows its broker: to find none at a first connection is an error."""
        wait_until(lambda: bool(self.error or self.published), "a first message")

    def finish(self) -> None:
        """End it; raises what ended it before."""
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "publishing did not end"
        if self.error is not None:
            raise self.error


def publish(seen: QueueBroker, client: Client, priorities: list[int], partition: int) -> list[str]:
    """Publish one call of these priorities; returns the messages' names."""
    return seen.publish(client, seen.topic, len(priorities), partition=partition, priorities=priorities)


class LaneStorm(Storm):
    """A storm over two topics, each seen for itself: after each start all that was published is looked up."""

    def __init__(self, seen: dict[str, QueueBroker], proxy: Proxy, crews: dict[str, Crew], stack: ExitStack, seed: int):
        super().__init__(seen[STRICT], proxy, crews, stack, seed)
        self.checked = 0
        self._every = seen

    def strike(self, kind: str) -> None:
        """Provoke one fault; what it is of the broker, both topics suffer."""
        super().strike(kind)
        if kind == "kill broker":
            self._every[WEIGHTED].note(Fault(kind="kill"))
            self.check_places()

    def kill_all(self) -> None:
        """Kill every worker, and then the broker."""
        for worker in self.workers:
            worker.kill()
        self.strike("kill broker")

    def check_places(self) -> None:
        """Fail unless every message is where it was published, with its priority, read one by one or all at once."""
        for seen in self._every.values():
            told = published_by(seen)
            with Client(seen.broker.url) as client, client.replay(seen.topic) as replay:
                found = {
                    place_of(message): (message_of(message.value), message.priority) for message in replay.messages()
                }
                assert {place: found.get(place) for place in told} == told
                for partition, offset in self.rng.sample([*told], min(len(told), 20)):
                    message = client.get(f"{seen.topic}/{partition}@{offset}")
                    assert (message_of(message.value), message.priority) == told[partition, offset]
            self.checked += len(told)


def published_by(seen: QueueBroker) -> dict[tuple[int, int], tuple[str, int]]:
    """Partition, offset -> name and priority of all that was acknowledged so far."""
    return {
        (int(event.partition.rpartition("/")[2]), offset): (name, priority)
        for event in [*seen.events]
        if isinstance(event, Published)
        for name, offset, priority in zip(event.messages, event.offsets, event.priorities or [], strict=True)
    }


def place_of(message: object) -> tuple[int, int]:
    """Partition and offset of a message."""
    return message.partition, message.offset  # type: ignore[attr-defined]


def in_states(seen: QueueBroker, group: str, *states: DeliveryState) -> set[tuple[int, int]]:
    """Partition and offset of what is in one of the states."""
    found: set[tuple[int, int]] = set()
    place = None
    while True:
        request = GroupMessages(f"default/{group}", [state.value for state in states], place=place)
        reply: Message = seen.ask(request)
        assert isinstance(reply, GroupMessagesReply)
        found |= {(each.partition, each.offset) for each in reply.messages}
        place = reply.place
        if place is None:
            return found


class LastWorker:
    """The one that takes what a storm left of a group, and in which order it did."""

    def __init__(self, seen: QueueBroker, crew: Crew, stack: ExitStack) -> None:
        self.seen, self.crew = seen, crew
        away = (DeliveryState.LEASED, DeliveryState.WAITING, DeliveryState.DEAD_LETTERING)
        wait_until(lambda: not in_states(seen, crew.group, *away), "the end of what was leased", every_s=0.05)
        self.suspects = in_states(seen, crew.group, DeliveryState.SUSPECT)
        self.worker: WorkerProcess = stack.enter_context(
            crew.start(seen.broker.url, nacks=0.1, rejects=0, extends=0, waits=0.3, delay=0, max_in_flight=AT_HAND)
        )

    def events(self) -> list[QueueEvent]:
        """All that it wrote down so far."""
        return read_queue_records([self.worker.record]) if self.worker.record.exists() else []

    def taken(self) -> list[Handed]:
        """All that its code was handed in its turn; suspects come alone, and before it."""
        handed = [event for event in self.events() if isinstance(event, Handed)]
        return [each for each in handed if (int(each.partition.rpartition("/")[2]), each.offset) not in self.suspects]

    def finish(self) -> list[Handed]:
        """Let it take everything; returns in which order it did."""
        self.seen.wait_until_settled([self.crew.group])
        self.worker.finish()
        return self.taken()


def first_times(taken: list[Handed]) -> list[Handed]:
    """Each message as it was handed out first."""
    found: dict[str, Handed] = {}
    for event in taken:
        found.setdefault(event.message, event)
    return [*found.values()]


def check_strict(taken: list[Handed], late: set[str]) -> None:
    """The highest lane first, and in it each partition by offset; what came late, as soon as what was at hand is done."""
    first = first_times(taken)
    before = [event for event in first if event.message not in late]
    assert [event.priority for event in before] == sorted((event.priority for event in before), reverse=True)
    for lane in set(LANES[STRICT]):
        for partition in {event.partition for event in before}:
            offsets = [event.offset for event in before if (event.priority, event.partition) == (lane, partition)]
            assert offsets == sorted(offsets)
    places = [place for place, event in enumerate(first) if event.message in late]
    assert places == [*range(places[0], places[0] + len(late))], "something of a lower lane was handed out in between"


def check_passed_over(taken: list[Handed], ready: list[tuple[str, int]]) -> int:
    """Once a message is ready, no more of lower lanes is handed out before it than was at hand by then. Returns how often
    anything was handed out before it at all."""
    waited = 0
    for message, since_ns in ready:
        after = [event for event in taken if event.at_ns > since_ns]
        place = next((place for place, event in enumerate(after) if event.message == message), 0)
        lower = sum(event.priority < after[place].priority for event in after[:place])
        assert lower <= AT_HAND, f"{lower} messages of lower lanes were handed out before {message}"
        waited += place > 0
    return waited


def given_back(events: list[QueueEvent], suspects: set[tuple[int, int]]) -> list[tuple[str, int]]:
    """What a worker gave back and was handed out again only after it was ready for sure, and since when it was."""
    asked = {event.ask: event for event in events if isinstance(event, Asked) and event.what == "nack"}
    ready: list[tuple[str, int]] = []
    for event in events:
        if isinstance(event, Told) and event.how == "ok" and (nack := asked.get(event.ask)) is not None:
            since_ns = event.at_ns + (0 if nack.delay_us == 0 else WAIT_NS)
            again = [one for one in events if isinstance(one, Handed) and [one.message] == nack.messages]
            after = next((one for one in again if one.at_ns > nack.at_ns), None)
            is_suspect = after is None or (int(after.partition.rpartition("/")[2]), after.offset) in suspects
            if after is not None and not is_suspect and after.at_ns > since_ns:
                ready.append((after.message, since_ns))
    return ready


def check_weighted(taken: list[Handed]) -> None:
    """While all lanes have something, each has its share of the four in five deliveries that go by weights."""
    counts = Counter(event.priority for event in taken[:TURNS])
    by_weight = {lane: TURNS * 4 // 5 * weight // 10 for lane, weight in WEIGHTS.items()}
    assert by_weight == {9: 48, 4: 24, 0: 8}
    assert all(counts[lane] >= wanted - SLACK for lane, wanted in by_weight.items()), counts
    assert counts[0] > 0


def take_the_rest(storm: LaneStorm, seen: dict[str, QueueBroker], crews: dict[str, Crew], stack: ExitStack) -> None:
    """Kill everything, leave a backlog of all lanes, kill the broker again, and let one worker a group take it."""
    storm.kill_all()
    with Client(seen[STRICT].broker.url) as client:
        for group, one in seen.items():
            priorities = [*LANES[group]] * BACKLOG
            storm.rng.shuffle(priorities)
            for partition in range(PARTITIONS):
                publish(one, client, priorities[partition::PARTITIONS], partition)
    storm.strike("kill broker")
    strict = LastWorker(seen[STRICT], crews[STRICT], stack)
    wait_until(lambda: any(event.priority < 7 for event in strict.taken()), "a message of a low lane", every_s=0.01)
    with Client(seen[STRICT].broker.url) as client:
        late = {*publish(seen[STRICT], client, [9] * 30, 0)}
    answered_ns = time.monotonic_ns()
    taken = strict.finish()
    assert len(first_times(taken)) >= BACKLOG * len(LANES[STRICT]) + len(late)
    check_strict(taken, late)
    again = given_back(strict.events(), strict.suspects)
    assert check_passed_over(taken, again) > 0
    check_passed_over(taken, [(message, answered_ns) for message in late])
    rest = LastWorker(seen[WEIGHTED], crews[WEIGHTED], stack).finish()
    assert len(rest) >= BACKLOG * len(LANES[WEIGHTED])
    check_weighted(rest)


def judge(folder: Path, seen: QueueBroker, crew: Crew) -> None:
    """Hold a group's history to every rule of queue groups."""
    finals = seen.finals([crew.group])
    history = crew.history(finals)
    (folder / f"{crew.group}-history").write_bytes(b"\n".join(map(msgspec.json.encode, history.events)))
    assert violations(history) == []
    assert {*states_of(finals, crew.group).values()} <= {"acknowledged", "dead-lettered"}
    assert {event.priority for event in history.events if isinstance(event, Handed)} == {*LANES[crew.group]}
    assert sum(isinstance(event, Told) and event.how == "ok" for event in history.events) > 100


@pytest.mark.timeout(900)
def test_lanes_in_a_storm(tmp_path: Path, soak: int) -> None:
    """Kills of the broker and of workers, and lost answers: no message changes its place or its priority, nothing
    acknowledged comes back, nothing is lost, and who is left at the end is handed the rest in the order of lanes."""
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProcess(tmp_path / "data"))
        proxy = stack.enter_context(Proxy(*broker.address))
        seen = {group: QueueBroker(broker, topic, PARTITIONS) for group, topic in TOPICS.items()}
        with Client(broker.url) as client:
            client.topics.set(
                TOPICS[WEIGHTED],
                lanes_policy="weighted",
                lanes_weights=", ".join(f"{lane}:{weight}" for lane, weight in WEIGHTS.items()),
                lanes_max_wait=MAX_WAIT_S,
            )
        settings = queue_settings(visibility_s=VISIBILITY_S, max_attempts=4, backoff_s=BACKOFF_S)
        for group in GROUPS:
            seen[group].make_group(group, settings)
        crews = {group: Crew(tmp_path, seen[group], group, visibility_timeout=VISIBILITY_S) for group in GROUPS}
        publisher = Publisher(seen, broker.url, soak)
        publisher.wait_until_known()
        storm = LaneStorm(seen, proxy, crews, stack, soak)
        for _ in range(soak):
            for kind in storm.rng.sample(KINDS, len(KINDS)):
                storm.wait_for_progress()
                storm.strike(kind)
        storm.wait_for_progress()
        publisher.finish()
        proxy.heal()
        take_the_rest(storm, seen, crews, stack)
        for group in GROUPS:
            judge(tmp_path, seen[group], crews[group])
        assert broker.stop() == 0
    assert storm.counts["kill broker"] == 2 * soak + 2
    assert storm.counts["kill worker"] == 2 * soak
    assert any(rule.fired for rule in storm.rules)
    assert storm.checked > 0
