"""Settles that race the end of their lease, others' and repeated ones on a real broker: each is done or refused, never
half, never twice.

One member settles what it holds from shortly before its deadline until shortly after, one message a request, by every
outcome; the other takes whatever comes free at once. What both were told is judged by the rules of queue groups.
"""

from __future__ import annotations

import random
import threading
import time
from itertools import count
from pathlib import Path

import msgspec
import pytest
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.frame_door import Call
from tests.helpers.queue_broker import QueueBroker, queue_settings
from tests.helpers.queue_history import Final, Handed, QueueEvent, QueueHistory, Told
from tests.helpers.queue_member import Notebook, QueueMember, packed
from tests.helpers.queue_rules import violations
from tests.helpers.raw_peer import RawClient

from tidelog import Client
from tidelog.protocol.messages import DeleteGroup, Message, Settle, SettleItem, SettleReply, Settling
from tidelog.protocol.messages.groups import GroupStart
from tidelog.protocol.messages.queue import BY_TOKEN

pytestmark = [pytest.mark.process, pytest.mark.crash]

MESSAGES = 200
LEASE_S = 1.0
EARLY_S = 0.15
"""How long before their deadline leases begin to be settled."""

WHATS = (Settling.ACCEPT, Settling.ACCEPT, Settling.RELEASE, Settling.RETURN, Settling.REJECT)


class SocketDoor:
    """A real connection as members use one: every answer is waited for."""

    def __init__(self, client: RawClient) -> None:
        self._client = client

    def ask(self, message: Message) -> Call:
        """Ask and wait. A lease may have begun when it was asked for: that is when it is counted from."""
        asked_us = now_us()
        return Call(self._client.ask(message), asked_us)


def now_us() -> int:
    """The machine's monotonic clock."""
    return time.monotonic_ns() // 1_000


def connect(seen: QueueBroker, member: QueueMember) -> None:
    """Give a member a new connection."""
    member.connect(SocketDoor(seen.broker.connect()))  # type: ignore[arg-type]


def join(seen: QueueBroker, book: Notebook, group: str, number: int) -> QueueMember:
    """Let a member in, over a connection of its own."""
    member = QueueMember(book, group, number, seen.topic_id)
    connect(seen, member)
    member.joined(member.join(GroupStart("earliest")))
    return member


class Race:
    """Both members, and what they write down."""

    def __init__(self, seen: QueueBroker) -> None:
        self.events: list[QueueEvent] = []
        self.book = Notebook(seen.topic, now_us, self.note)
        self.members = [join(seen, self.book, "g", number) for number in (1, 2)]
        self.is_over = False

    def note(self, event: QueueEvent) -> None:
        """Add to the history, now."""
        self.events.append(msgspec.structs.replace(event, at_ns=time.monotonic_ns()))

    def settle_at_the_deadline(self, rng: random.Random) -> None:
        """Take everything, and settle it while its time runs out."""
        member = self.members[0]
        while sum(len(held.left) for held in member.held.values()) < MESSAGES:
            member.acquire(10)
            member.harvest()
        held_all = [*member.held.values()]
        for held in held_all:
            member.hand_over(held, sorted(held.left))
        member.acquire(1)  # which reports what was handed over
        member.harvest()
        while held_all:
            held = held_all[0]
            if now_us() < held.until_us - int(EARLY_S * 1e6):
                threading.Event().wait(0.002)
                continue
            held_all = held_all[1:] if len(held.left) <= 1 else [*held_all[1:], held]
            if held.left:
                what, offset = rng.choice(WHATS), rng.choice([*held.left])
                member.settle([(held, what, [offset], 0 if what is Settling.RELEASE else -1)])
                member.harvest()

    def take_what_comes_free(self) -> None:
        """Acquire, and acknowledge, until nothing comes any more."""
        member = self.members[1]
        while not self.is_over:
            member.acquire(20)
            member.harvest()
            for held in [*member.held.values()]:
                member.settle([(held, Settling.ACCEPT, sorted(held.left), 0)])
                member.harvest()


@pytest.mark.timeout(120)
def test_settles_that_race_the_end_of_their_lease(tmp_path: Path, soak: int) -> None:
    """What was told to be done is, what was refused is the other member's, and all comes to its end exactly once."""
    with BrokerProcess(tmp_path / "data") as broker:
        hows: dict[str, int] = {}
        for number in range(soak):
            seen = QueueBroker(broker, f"orders{number}")
            seen.make_group("g", queue_settings(visibility_s=LEASE_S, max_attempts=10, backoff_s=0.01))
            with Client(broker.url) as client:
                seen.publish(client, "p", MESSAGES)
            race = Race(seen)
            other = threading.Thread(target=race.take_what_comes_free, daemon=True)
            taken = threading.Thread(target=race.settle_at_the_deadline, args=(random.Random(number),), daemon=True)
            taken.start()
            threading.Event().wait(LEASE_S / 2)
            other.start()
            taken.join(30)
            seen.wait_until_settled(["g"], 20)
            race.is_over = True
            other.join(30)
            finals: list[Final] = seen.finals(["g"])
            events = sorted([*seen.events, *race.events], key=lambda event: event.at_ns)
            (tmp_path / f"history{number}").write_bytes(b"\n".join(map(msgspec.json.encode, [*events, *finals])))
            assert violations(QueueHistory([*events, *finals])) == []
            assert {final.state for final in finals} <= {"acknowledged", "dead-lettered"}
            assert sum(isinstance(event, Handed) for event in events) > MESSAGES
            for event in events:
                if isinstance(event, Told):
                    hows[event.how] = hows.get(event.how, 0) + 1
            seen.ask(DeleteGroup("default/g"))  # so that the next round may have its name
    assert hows["ok"] > 0
    assert hows["lost"] > 0


def settled(member: QueueMember, number: int, lease: int, what: Settling, *offsets: int, by_token: bool = False) -> str:
    """Ask for one outcome, by a request of this number; what comes of it."""
    item = SettleItem(member.topic_id, 0, lease, what, packed(offsets), delay_us=0, duration_us=30_000_000)
    asker = BY_TOKEN if by_token else member.number
    reply = member.connection.ask(Settle(member.group_id, member.generation, asker, number, [item])).message()
    assert isinstance(reply, SettleReply)
    return "OK" if reply.results[0] is None else reply.results[0].error().code


def states_of(seen: QueueBroker) -> dict[tuple[str, str], tuple[str, int]]:
    """(group, message) -> state and attempts."""
    return {(one.group, one.message): (one.state, one.attempts) for one in seen.finals(["g", "h"])}


def test_settles_of_others_and_settles_again(tmp_path: Path) -> None:
    """What another member holds, what another group gave, and what nobody was given is LEASE_LOST whatever the outcome,
    and changes nothing. The same outcome again, by the same request, another one or a token, is OK and changes nothing,
    also after a kill -9 and when the message is another's by then; another outcome is LEASE_LOST."""
    with BrokerProcess(tmp_path / "data") as broker:
        seen = QueueBroker(broker, "orders")
        for group in ("g", "h"):
            given = queue_settings(visibility_s=60, max_attempts=4, backoff_s=0.001)
            seen.make_group(group, msgspec.structs.replace(given, dead_letter=False))
        with Client(broker.url) as client:
            seen.publish(client, "p", 6)
        book = Notebook("orders", now_us, lambda _event: None)
        one, two, third = (join(seen, book, group, number) for number, group in enumerate("ggh", 1))
        for member, most in ((one, 4), (two, 2), (third, 6)):
            member.acquire(most)
            member.harvest()
        (mine,), (of_third,) = one.held, third.held
        before = states_of(seen)
        assert sorted(before.values()) == [("leased", 0)] * 12
        number = count(100)
        for what in (
            Settling.ACCEPT,
            Settling.RELEASE,
            Settling.REJECT,
            Settling.RETURN,
            Settling.SUSPECT,
            Settling.RENEW,
        ):
            for lease in (mine, of_third, mine + 1_000):
                assert settled(two, next(number), lease, what, 0, 1, 2, 3) == "LEASE_LOST", what
            assert settled(two, 0, of_third, what, 0, by_token=True) == "LEASE_LOST", what
        assert states_of(seen) == before

        assert settled(one, 1, mine, Settling.ACCEPT, 0) == "OK"
        assert settled(one, 2, mine, Settling.RELEASE, 1) == "OK"
        assert settled(one, 0, mine, Settling.REJECT, 2, by_token=True) == "OK"
        two.acquire(1)
        two.harvest()
        assert [[*held.left] for held in two.held.values()] == [[4, 5], [1]]
        before = states_of(seen)
        after = [before["g", f"p/{offset}"] for offset in range(4)]
        assert after == [("acknowledged", 0), ("leased", 1), ("rejected", 1), ("leased", 0)]
        for is_restarted in (False, True):
            if is_restarted:
                broker.restart()
                for member in (one, two, third):
                    connect(seen, member)
            for request in (1, next(number)):
                assert settled(one, request, mine, Settling.ACCEPT, 0) == "OK"
            for request in (2, next(number)):
                assert settled(one, request, mine, Settling.RELEASE, 1) == "OK"
            assert settled(one, 0, mine, Settling.REJECT, 2, by_token=True) == "OK"
            for what, offset in ((Settling.REJECT, 0), (Settling.ACCEPT, 1), (Settling.RELEASE, 2)):
                assert settled(one, next(number), mine, what, offset) == "LEASE_LOST", what
                assert settled(one, 0, mine, what, offset, by_token=True) == "LEASE_LOST", what
            assert states_of(seen) == before
