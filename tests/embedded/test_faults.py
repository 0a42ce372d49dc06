"""Faults by a seed: each happens, promises hold, whoever tries again gets on, and the same seed does the same."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from tidelog import LeaseLostError, LostLease
from tidelog.testing import Broker, Faults

VALUES = [b"%d" % number for number in range(20)]
ONE = {"partitions": 1}


def work(faults: Faults | None, seed: int) -> tuple[list[tuple[bytes, int]], dict[str, int]]:
    """Send 20 messages and handle all of them one by one; return what was handled with its attempts, and what fired."""
    handled: list[tuple[bytes, int]] = []
    with Broker(faults=faults, seed=seed, topics=ONE) as broker, broker.client() as client:
        for value in VALUES:
            client.produce("t", value)
        assert [message.value for message in broker.messages("t")] == VALUES
        queue = client.queue("t", group="g", max_in_flight=1)
        for message in queue.messages(idle_timeout=60):
            handled.append((message.value or b"", message.attempt))
            with suppress(LeaseLostError):
                message.ack(wait=True)
        queue.close()
        assert client.groups.describe("g").topics[0].partitions[0].floor == 20
        return handled, broker.fired


def test_without_faults_everything_is_handled_once() -> None:
    """The measure for what follows."""
    assert work(None, 1) == ([(value, 1) for value in VALUES], {"duplicate": 0, "lose_lease": 0, "cut_after_send": 0})
    assert work(Faults(), 1)[0] == [(value, 1) for value in VALUES]


@pytest.mark.parametrize("kind", ["duplicate", "lose_lease"])
def test_a_lost_lease_is_a_second_delivery(kind: str) -> None:
    """Some messages are handled twice, as their second attempt, and all are settled in the end."""
    handled, fired = work(Faults(**{kind: 0.3}), 7)
    times = Counter(value for value, _ in handled)
    assert set(times) == set(VALUES)
    assert 1 <= sum(count == 2 for count in times.values()) == fired[kind] < 20
    assert {attempt for value, attempt in handled if times[value] == 1} == {1}


def test_always_is_once_for_each() -> None:
    """A chance of 1 strikes every message, and none a second time."""
    handled, fired = work(Faults(duplicate=1), 7)
    assert sorted(handled) == sorted([(value, attempt) for value in VALUES for attempt in (1, 2)])
    assert fired["duplicate"] == 20


@pytest.mark.parametrize("chance", [0.4, 1.0])
def test_a_cut_connection_loses_and_doubles_nothing(chance: float) -> None:
    """The request was carried out, its repeat changes nothing, and the client goes on over another connection."""
    handled, fired = work(Faults(cut_after_send=chance), 7)
    assert handled == [(value, 1) for value in VALUES]
    assert fired["cut_after_send"] >= 5


def test_the_same_seed_does_the_same() -> None:
    """And another seed something else."""
    faults = Faults(duplicate=0.3, lose_lease=0.2, cut_after_send=0.3)
    first = work(faults, 7)
    assert work(faults, 7) == first
    assert work(faults, 8) != first


def test_who_does_not_wait_is_told_of_what_was_lost() -> None:
    """`on_lease_lost` hears of each message whose acknowledgement came too late."""
    lost: list[LostLease] = []
    with Broker(faults=Faults(duplicate=1), topics=ONE) as broker, broker.client() as client:
        client.produce("t", b"x")
        queue = client.queue("t", group="g", on_lease_lost=lost.append)
        [message] = queue.receive()
        message.ack()
        [again] = queue.receive()
        assert (again.value, again.attempt) == (b"x", 2)
        again.ack()
        queue.close()
    assert len(lost) == 1


@pytest.mark.parametrize("wrong", [-0.1, 1.1, "often", True])
def test_chances_are_checked(wrong: object) -> None:
    """From 0 to 1, and nothing else."""
    with pytest.raises(ValueError, match="lose_lease: expected a chance from 0 to 1"):
        Faults(lose_lease=wrong)  # pyright: ignore[reportArgumentType]
