"""A random life of queue groups on a disk that loses power: members decide by lot, and speak frames.

Members of two groups take, hand over, settle, lose answers and repeat, are killed and come back, while time passes,
logs roll and snapshots are written. What they did and were told is a history (`queue_rules`); at the end all that is
left is taken by one more member, so that nothing stays behind. The disk is full now and then, and the wall clock is set
back an hour or forward a year; members count by a time that nobody steps.
"""

from __future__ import annotations

import dataclasses
import random
from itertools import count

import msgspec

from tidelog.broker.deferred import Deferred
from tidelog.broker.partition import Partition
from tidelog.broker.produced import Produced
from tidelog.protocol.messages import ResetGroup, Settling
from tidelog.protocol.messages.groups import BackoffInfo, GroupSettings, GroupStart

from .broker_core import DEFAULTS, SECOND, batch
from .drawn_lanes import DrawnLanes
from .faulty_files import Fault as DiskFault
from .faulty_files import FaultyFiles
from .history import Durability, Fault
from .log_driver import KIB
from .payloads import payload
from .power_loss import Crashed, PowerLossFiles
from .queue_core import QueueCore
from .queue_history import (
    Grouped,
    Handed,
    Moved,
    Published,
    QueueEvent,
    WorkerEvent,
)
from .queue_life_end import ask_for_all, drain
from .queue_life_faults import fail_syncs, fill_disk, step_clock
from .queue_member import Held, Notebook, QueueMember

CRASHES_PER_LIFE = 6
STEPS_PER_RUN = 60
TOPIC = "orders"
PARTITIONS = 2
SMALL_SEGMENTS = dataclasses.replace(DEFAULTS, segment_bytes=24 * KIB)
GROUPS = ("billing", "audit")
MAX_ATTEMPTS = 3
BACKOFF_US = 2 * SECOND
SETTINGS = GroupSettings(
    visibility_timeout_us=30 * SECOND,
    max_attempts=MAX_ATTEMPTS,
    backoff=BackoffInfo("constant", BACKOFF_US, BACKOFF_US, jitter_percent=0),
)
UNANSWERED_MAX = 16
"""Settles that one member has no answer to; a client has at most twice as many."""

SETTLES = (Settling.ACCEPT, Settling.RELEASE, Settling.REJECT, Settling.RETURN, Settling.SUSPECT, Settling.RENEW)


class QueueLife:
    """One random life of a broker with queue groups."""

    groups = GROUPS

    def __init__(self, seed: int) -> None:
        self.rng, self.lanes = random.Random(seed), DrawnLanes(seed)
        self.durability: Durability = self.rng.choice(("synced", "synced", "written"))
        self.core = QueueCore(FaultyFiles(PowerLossFiles()), defaults=SMALL_SEGMENTS)
        self.began_us = self.core.clock.wall_us()
        """The time of members when this process of the broker began."""
        self.core.now_us = self.core_now
        self.core.create(TOPIC, PARTITIONS, {"durability": self.durability, **self.lanes.settings})
        self.topic_id = self.core.topic(TOPIC).id
        self.events: list[QueueEvent] = []
        self.book = Notebook(TOPIC, self.core_now, self.note)
        self.sent: list[tuple[list[str], int, Deferred[Produced]]] = []
        self.places: dict[str, tuple[str, int]] = {}
        self.limits: dict[str, int] = {}
        """Of messages that say themselves how often they may be handed over."""
        self.numbers = count(1)
        self.sequence = 0
        self.crashes = self.power_losses = self.late = self.resets = self.failed_syncs = self.steps = 0
        self.full: list[DiskFault] = []
        """Where the disk had no room."""
        self.members: list[QueueMember] = []
        for group in GROUPS:
            self.note(Grouped(group=group, max_attempts=MAX_ATTEMPTS, backoff_us=[BACKOFF_US]))
        for group in (*GROUPS, *GROUPS):
            self.new_member(group)

    @property
    def files(self) -> PowerLossFiles:
        """The disk."""
        assert isinstance(self.faulty.inner, PowerLossFiles)
        return self.faulty.inner

    @property
    def faulty(self) -> FaultyFiles:
        """The disk as the broker sees it."""
        assert isinstance(self.core.files, FaultyFiles)
        return self.core.files

    def core_now(self) -> int:
        """The time of members, which goes on over all processes of the broker."""
        return self.began_us + self.core.clock.monotonic_us()

    def note(self, event: QueueEvent) -> None:
        """Add to the history."""
        if isinstance(event, Handed):
            self.publish_seen(event)
        self.events.append(msgspec.structs.replace(event, at_ns=self.core_now() * 1_000))

    def publish_seen(self, event: Handed) -> None:
        """A message that was sent, whose answer was lost, and that is seen now, is published all the same."""
        place = (event.partition, event.offset)
        if event.message not in self.places and event.message.startswith("p/"):
            self.publish([event.message], *place)

    def publish(self, messages: list[str], partition: str, first: int) -> None:
        """Note where messages lie."""
        new = [(name, first + at) for at, name in enumerate(messages) if name not in self.places]
        for name, offset in new:
            self.places[name] = (partition, offset)
            self.events.append(
                Published(
                    at_ns=self.core_now() * 1_000,
                    messages=[name],
                    partition=partition,
                    offsets=[offset],
                    durability=self.durability,
                    max_attempts=self.limits.get(name),
                )
            )

    # -- members -----------------------------------------------------------------------------------------------------

    def new_member(self, group: str) -> QueueMember:
        """Let another member join, and wait until it is answered."""
        member = QueueMember(self.book, group, next(self.numbers), self.topic_id)
        self.members.append(member)
        member.connect(self.core.door())
        self.join(member)
        return member

    def reconnect(self, member: QueueMember) -> None:
        """Go on over a new connection: at once, as a client does, it says what it holds."""
        member.connect(self.core.door())
        member.acquire(self.rng.choice((1, 20)))

    def join(self, member: QueueMember) -> None:
        """Join, first or again after the group was reset."""
        call = member.join(GroupStart("earliest"), SETTINGS)
        self.core.settle()
        member.joined(call)

    # -- steps -------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do one thing."""
        member = self.rng.choice(self.members)
        kinds = (
            "send",
            "acquire",
            "hand over",
            "settle",
            "sync",
            "wait",
            "foreign",
            "lose",
            "reconnect",
            "replace",
            "fail",
            "fill",
            "step the clock",
        )
        kind = self.rng.choices(kinds, (16, 22, 14, 22, 16, 8, 2, 3, 2, 1, 2, 2, 1))[0]
        match kind:
            case "send":
                self.send()
            case "acquire":
                member.acquire(self.rng.choice((1, 3, 20)), max_wait_us=self.rng.choice((0, 0, 5 * SECOND)))
            case "hand over" if member.held:
                held = self.rng.choice([*member.held.values()])
                member.hand_over(held, sorted(held.left)[: self.rng.choice((1, 2, 10))])
            case "settle":
                settle_some(self, member)
            case "sync" if self.core.begin_round():
                self.core.finish_round()
            case "wait":
                self.core.advance(self.rng.choice((1_000, SECOND, SECOND, 10 * SECOND, 31 * SECOND)))
            case "foreign":
                settle_of_another(self, member)
            case "lose":
                member.harvest(lose=True)
            case "reconnect":
                member.connection.close()
                self.reconnect(member)
            case "replace":
                self.replace(member)
            case "fail":
                fail_syncs(self)
            case "fill":
                fill_disk(self)
            case "step the clock":
                step_clock(self)
            case _:
                pass
        self.harvest()

    def send(self) -> None:
        """Send a batch of new messages."""
        names = [f"p/{self.sequence + at}" for at in range(self.rng.choice((1, 2, 10, 30)))]
        values = [payload("p", self.sequence + at, self.rng.choice((20, 200))) for at in range(len(names))]
        self.sequence += len(names)
        index = self.rng.randrange(PARTITIONS)
        own = [self.rng.choice((0, 0, 1, 5)) for _name in names] if self.rng.random() < 0.3 else None
        self.limits.update({name: limit for name, limit in zip(names, own or [], strict=False) if limit})
        encoded = batch(*values, max_attempts=own, priority=self.lanes.priority())
        self.sent.append((names, index, self.core.send(self.partitions[index], encoded)))

    @property
    def partitions(self) -> list[Partition]:
        """The topic's partitions."""
        return self.core.topic(TOPIC).partitions

    def replace(self, member: QueueMember) -> None:
        """Kill a member, and let another come."""
        self.note(WorkerEvent(worker=member.name, did="killed"))
        self.members.remove(member)
        member.connection.close()
        self.new_member(member.group)

    def harvest(self) -> None:
        """Take the answers that are there."""
        for names, index, answer in [sent for sent in self.sent if not sent[2].is_pending]:
            self.sent.remove((names, index, answer))
            if answer.error is None and (result := answer.result().results[0]).error is None:
                self.publish(names, f"{TOPIC}/{index}", result.base_offset)
        for member in self.members:
            member.harvest()
            member.expect_ended()

    # -- crashes -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Work and crash, again and again; then take what is left, and ask what became of everything."""
        for _ in range(CRASHES_PER_LIFE):
            self.files.crash_at(self.rng.randint(5, 250), self.rng)
            try:
                for _ in range(STEPS_PER_RUN):
                    self.step()
            except Crashed:
                self.crashes += 1
            self.restart(power=self.rng.random() < 0.6)
            if self.rng.random() < 0.1:
                self.reset(self.rng.choice(GROUPS))
        self.faulty.heal()
        self.core.settle()
        self.harvest()
        drain(self)
        ask_for_all(self)

    def restart(self, *, power: bool) -> None:
        """Start again after the process or the machine died; members go on over new connections."""
        self.sent.clear()
        for member in self.members:
            member.harvest()  # what had arrived before
        while True:
            downtime_us = self.rng.choice((1, SECOND, 20 * SECOND))
            files = self.files.crash(self.rng) if power else self.files.kill()
            self.power_losses += power
            self.note(Fault(kind="power" if power else "kill"))
            if self.rng.random() < 0.2:
                files.crash_at(self.rng.randint(1, 30), self.rng)
            began_us = self.core_now() + downtime_us
            try:
                self.core = self.core.next_process(FaultyFiles(files), downtime_us)
            except Crashed:
                self.crashes += 1
                self.core.files = FaultyFiles(files)
                continue
            self.began_us, self.core.now_us = began_us, self.core_now
            files.crash_at(-1, self.rng)
            break
        for member in self.members:
            for request in member.requests:
                if power and self.durability == "written":
                    request.was_done.clear()
            for held in member.held.values():
                held.is_doubtful |= power
            self.reconnect(member)
        self.harvest()

    def reset(self, group: str) -> None:
        """Let a group begin anew; its members join again."""
        self.resets += 1
        self.core.settle()
        self.harvest()  # what is answered of the life before
        self.note(Moved(group=group, is_done=False))
        call = self.core.door().ask(ResetGroup(f"default/{group}", GroupStart("earliest")))
        self.core.settle()
        call.message()
        self.note(Moved(group=group, is_done=True))
        for member in self.members:
            if member.group == group:
                member.held.clear()
                for request in member.requests:
                    request.was_done.clear()  # of a life that is over
                self.join(member)


def some_held(life: QueueLife, member: QueueMember) -> Held | None:
    """A lease of a member, now and then one that ended."""
    pool = [*member.held.values()]
    if member.ghosts and life.rng.random() < 0.2:
        pool = [ghost for ghost in member.ghosts if ghost.left]
        life.late += bool(pool)
    return life.rng.choice(pool) if pool else None


def settle_some(life: QueueLife, member: QueueMember) -> None:
    """Settle parts of some leases in one request."""
    if len(member.requests) >= UNANSWERED_MAX:
        return
    items: list[tuple[Held, Settling, list[int], int]] = []
    for _ in range(life.rng.choice((1, 1, 2, 3))):
        held = some_held(life, member)
        if held is None or not held.left or any(held is each for each, *_ in items):
            continue
        what = life.rng.choices(SETTLES, (50, 20, 6, 8, 2, 6))[0]
        offsets = sorted(life.rng.sample([*held.left], life.rng.randint(1, len(held.left))))
        if what is Settling.RENEW:
            offsets = []
        delay_us = life.rng.choice((-1, -1, 0, SECOND, 40 * SECOND)) if what is Settling.RELEASE else 20 * SECOND
        items.append((held, what, offsets, delay_us))
    if items:
        member.settle(items)


def settle_of_another(life: QueueLife, member: QueueMember) -> None:
    """Try to settle what another member holds, or the same twice."""
    others = [held for other in life.members if other is not member for held in other.held.values() if held.left]
    if others and len(member.requests) < UNANSWERED_MAX:
        held = life.rng.choice(others)
        copy = Held(held.lease, held.topic_id, held.partition, dict(held.left), {}, 0, 0, False)
        copy.handed = set(copy.left)  # it was not handed to this one's code
        member.settle([(copy, life.rng.choice(SETTLES[:4]), [life.rng.choice([*copy.left])], 0)])
