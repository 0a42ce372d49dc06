"""Whose turn it is in a lane: partitions of all topics take turns, and nobody who is served often keeps another out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from tests.helpers.broker_core import DEFAULTS
from tests.helpers.queue_core import QueueCore, member_of, notebook, settings, take
from tests.helpers.queue_member import QueueMember

from tidelog.broker.queues.lane_rotation import LaneRotation
from tidelog.broker.queues.partition_lanes import bit_of
from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import Settling
from tidelog.protocol.messages.groups import GroupSettings
from tidelog.protocol.topic_settings import SettingValue

Settings = dict[str, SettingValue]


NAMES = ("apples", "berries", "cherries")
STRICT: Settings = {}
WEIGHTED: Settings = {"lanes_policy": "weighted"}
OTHERS: Settings = {"lanes_weights": "9:2"}
"""Strict as well, and not the same settings."""


def begin(topics: Sequence[Settings], *asked: str, partitions: int = 2) -> tuple[QueueCore, list[QueueMember]]:
    """A core with topics, and members of a group that ask for some of them: their initials."""
    core = QueueCore(defaults=DEFAULTS)
    ids: dict[str, int] = {}
    for name, given in zip(NAMES, topics, strict=False):
        core.wait(core.topics.create(f"default/{name}", partitions=partitions, settings=given))
        ids[name[0]] = core.topic(name).id
    members: list[QueueMember] = []
    for number, initials in enumerate(asked):
        member = member_of(core, notebook(core, "apples")[0], number + 1, given=settings())
        member.topic_id, *member.others = [ids[initial] for initial in initials]
        members.append(member)
    core.wait(core.groups.join("default/g", [*ids.values()], start=None, settings=None))
    core.settle()
    return core, members


def store(core: QueueCore, topic: str, priority: int, count: int, partition: int = 0) -> None:
    """Store many messages of a priority in one batch."""
    data = encode_batch([b"%d" % priority] * count, timestamp_us=7, priority=priority)
    core.produce(core.topic(topic).partition(partition), memoryview(data))


def served(core: QueueCore, member: QueueMember, count: int) -> Counter[str]:
    """Let a member take messages and acknowledge them; how many of which topic, partition and priority: `a0 9`."""
    take(core, member, count)
    found: Counter[str] = Counter()
    for held in [*member.held.values()]:
        place = f"{NAMES[held.topic_id - 1][0]}{held.partition}"
        found.update(place + " " + value.strip("b'") for value in held.left.values())
        member.settle([(held, Settling.ACCEPT, [*held.left], -1)])
    core.settle()
    member.harvest()
    return found


@pytest.mark.parametrize("given", [STRICT, WEIGHTED])
def test_partitions_of_all_topics_take_turns_in_a_lane(given: Settings) -> None:
    """Two topics with the same settings and a backlog that never ends: each partition gets a quarter of each lane that
    is served, whichever topic it is of, and a partition that gave something goes behind those of the others."""
    core, (member,) = begin([given, given], "ab")
    lanes = (9,) if given is STRICT else (9, 0)
    for name in ("apples", "berries"):
        for partition in (0, 1):
            for priority in (9, 0):
                store(core, name, priority, 100, partition)
    seen: Counter[str] = Counter()
    for _ in range(20):
        found = served(core, member, 10)
        seen.update(found)
        for priority in lanes:
            store(core, "apples", priority, 10)
            store(core, "apples", priority, 10, 1)
    each = 200 // (4 * len(lanes))
    assert seen == {f"{place} {lane}": each for place in ("a0", "a1", "b0", "b1") for lane in lanes}


def test_topics_take_turns_one_message_at_a_time() -> None:
    """Three of one partition each: the third message comes of the third topic, and the fourth of the first again."""
    core, (member,) = begin([STRICT, STRICT, STRICT], "abc", partitions=1)
    for name in NAMES:
        store(core, name, 9, 50)
        store(core, name, 4, 50)
    turns = [*(next(iter(served(core, member, 1))) for _ in range(9))]
    assert sorted(turns[:3]) == ["a0 9", "b0 9", "c0 9"]
    assert turns == turns[:3] * 3


def test_a_partition_that_always_has_something_high_gives_what_it_has_of_a_lower_lane_too() -> None:
    """Under weights, with a lower lane in another partition as well: its turn in one lane is not ended by another."""
    core, (member,) = begin([WEIGHTED], "a")
    store(core, "apples", 9, 1_000, 0)
    store(core, "apples", 0, 1_000, 0)
    store(core, "apples", 0, 1_000, 1)
    seen: Counter[str] = Counter()
    for _ in range(40):
        seen.update(served(core, member, 1))
    assert seen == {"a0 9": 20, "a0 0": 10, "a1 0": 10}


def test_something_high_now_and_then_does_not_cost_a_partition_its_turn_in_a_lower_lane() -> None:
    """One of four gets a critical message after every second one that is given out: it keeps its place in the rest."""
    core, (member,) = begin([STRICT], "a", partitions=4)
    for partition in range(4):
        store(core, "apples", 4, 100, partition)
    seen: Counter[str] = Counter()
    for number in range(60):
        if number % 3 == 0:
            store(core, "apples", 9, 1)
        seen.update(served(core, member, 1))
    assert seen == {"a0 9": 20, "a0 4": 10, "a1 4": 10, "a2 4": 10, "a3 4": 10}


def test_topics_with_other_settings_take_turns() -> None:
    """Neither can keep the other out, whatever their lanes."""
    core, (member,) = begin([STRICT, OTHERS], "ab", partitions=1)
    for priority in (9, 8):
        store(core, "apples", priority, 500)
    for priority in (1, 0):
        store(core, "berries", priority, 500)
    turns = [next(iter(served(core, member, 10))) for _ in range(6)]
    assert turns in (["a0 9", "b0 1"] * 3, ["b0 1", "a0 9"] * 3)


def test_members_in_step_keep_no_topic_out() -> None:
    """Topics with other settings: each time one member takes of the third, the other takes of the first or the second,
    in turn; and where one takes of the first itself, that is a turn of the first."""
    core, (third, both, first) = begin([STRICT, OTHERS, WEIGHTED], "c", "ab", "a", partitions=1)
    for name in NAMES:
        for priority in (9, 0):
            store(core, name, priority, 500)
    seen: Counter[str] = Counter()
    for _ in range(20):
        assert {*served(core, third, 1)} <= {"c0 9", "c0 0"}
        seen.update(served(core, both, 1))
    assert seen == {"a0 9": 10, "b0 9": 10}
    for _ in range(20):
        seen.update(served(core, first, 1))
        seen.update(served(core, both, 1))
    assert seen == {"a0 9": 30, "b0 9": 30}


def test_a_topic_that_had_nothing_keeps_its_turn() -> None:
    """Who asked while it had nothing did not use it up: it is the first when it has something."""
    core, (member,) = begin([STRICT, OTHERS], "ab", partitions=1)
    for name in ("apples", "berries"):
        store(core, name, 9, 10)
        store(core, name, 0, 10)
    seen = [next(iter(served(core, member, 20))) for _ in range(2)]
    assert sorted(seen) == ["a0 9", "b0 9"]
    store(core, "apples", 4, 100)
    assert [next(iter(served(core, member, 1))) for _ in range(3)] == ["a0 4"] * 3
    store(core, "berries", 4, 100)
    assert [next(iter(served(core, member, 1))) for _ in range(4)] == ["b0 4", "a0 4", "b0 4", "a0 4"]


def test_a_partition_that_is_left_out_or_has_nothing_is_given_no_turn() -> None:
    """The next of those that have something in the lane; one without anything is forgotten."""
    core, _members = begin([STRICT], "a")
    group, topic_id = core.groups.named("default/g"), core.topic("apples").id
    first, second = (core.queues.part(group, topic_id, index) for index in (0, 1))
    rotation = LaneRotation()
    rotation.place(first, bit_of(9) | bit_of(4))
    rotation.place(second, bit_of(9))
    assert rotation.next_of([topic_id], 9, set()) is first
    assert rotation.next_of([topic_id], 9, {first}) is second
    assert rotation.bits([topic_id], {first}) == bit_of(9)
    rotation.place(first, 0)
    assert rotation.all_of([topic_id]) == [second]
    assert (rotation.bits_of(first), rotation.bits([topic_id], set())) == (0, bit_of(9))


def test_a_topic_that_had_nothing_beside_another_in_a_reply_keeps_its_turn() -> None:
    """Topics with other settings: the one that gave all that it had is behind one that was asked in the same reply and
    had nothing, when both have something."""
    core, (member,) = begin([STRICT, OTHERS], "ab", partitions=1)
    for name in ("apples", "berries"):
        store(core, name, 9, 10)
        store(core, name, 0, 10)
    assert [sum(served(core, member, 40).values()) for _ in range(2)] == [40, 0]
    for given, other in (("apples", "berries"), ("berries", "apples")):
        store(core, given, 4, 5)
        assert served(core, member, 10) == {f"{given[0]}0 4": 5}
        for name in (given, other):
            store(core, name, 4, 1)
        assert [*served(core, member, 1)] == [f"{other[0]}0 4"]
        assert [*served(core, member, 1)] == [f"{given[0]}0 4"]


def test_topics_with_other_settings_have_the_room_of_their_group_together() -> None:
    """Seven hundred messages may be in flight: one topic gives the three hundred that it has of two lanes, and the other
    four hundred of its thousand."""
    core, (member,) = begin([WEIGHTED, {**WEIGHTED, **OTHERS}], "ab", partitions=1)
    for name in ("apples", "berries"):
        for priority in (9, 0):
            store(core, name, priority, 1)
    assert [sum(served(core, member, 4).values()) for _ in range(2)] == [4, 0]
    store(core, "berries", 4, 1)
    assert served(core, member, 1) == {"b0 4": 1}
    core.wait(core.groups.alter("default/g", GroupSettings(max_in_flight=700)))
    for name, count in (("apples", 150), ("berries", 500)):
        for priority in (9, 0):
            store(core, name, priority, count)
    found = served(core, member, 2_000)
    assert Counter({place: found[f"{place} 9"] + found[f"{place} 0"] for place in ("a0", "b0")}) == {
        "a0": 300,
        "b0": 400,
    }
    assert sum(served(core, member, 2_000).values()) == 600
