"""Random lives of messages of several priorities, leased, settled, given back and found again after starts, against a
plain list of them: what is given out is what may be, in the order it must be, and nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.helpers.broker_core import DEFAULTS, SECOND
from tests.helpers.queue_core import QueueCore, member_of, notebook, take
from tests.helpers.queue_core import settings as group_settings
from tests.helpers.queue_member import Held

from tidelog.protocol.batch import encode_batch
from tidelog.protocol.messages import Settling

PARTITIONS = 2
DELAY = 5 * SECOND
SETTLINGS = st.sampled_from([Settling.ACCEPT, Settling.RETURN, Settling.RELEASE])


@dataclass
class Plain:
    """One message of the reference: where it is, its priority, and when it is available; None while somebody holds it."""

    partition: int
    offset: int
    priority: int
    since_us: int | None


class LaneMachine(RuleBasedStateMachine):
    """A topic, a group of two members, and the list of what is not settled."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[tuple[int, int], Plain] = {}
        self.ends = [0] * PARTITIONS
        self.is_strict = self.is_in_order = True

    @initialize(policy=st.sampled_from(["strict", "strict", "weighted"]), share=st.sampled_from([None, None, DELAY]))
    def begin(self, policy: str, share: int | None) -> None:
        self.is_in_order = share is None
        self.is_strict = policy == "strict" and self.is_in_order
        self.core = QueueCore(defaults=DEFAULTS)
        given = {
            "lanes_policy": policy,
            "lanes_weights": "9:5, 4:2",
            "lanes_max_wait": share,
            "segment_bytes": 65_536,
        }
        self.core.wait(self.core.topics.create("default/orders", partitions=PARTITIONS, settings=given))
        self.join()

    def join(self) -> None:
        """Let two members join, who know of nothing."""
        book, _events = notebook(self.core)
        own = group_settings(visibility_s=600, max_attempts=60_000)
        self.members = [member_of(self.core, book, number, given=own) for number in (1, 2)]

    @property
    def now_us(self) -> int:
        """The time."""
        return self.core.time.now_us()

    def available(self) -> list[Plain]:
        """What may be given out."""
        return [one for one in self.messages.values() if one.since_us is not None and one.since_us <= self.now_us]

    # -- what happens ----------------------------------------------------------------------------------------------

    @rule(
        partition=st.integers(0, PARTITIONS - 1),
        runs=st.lists(st.tuples(st.sampled_from([0, 4, 9]), st.integers(1, 30)), min_size=1, max_size=6),
        size=st.sampled_from([1, 1_500]),
    )
    def publish(self, partition: int, runs: list[tuple[int, int]], size: int) -> None:
        data = b"".join(encode_batch([bytes(size)] * n, timestamp_us=7, priority=p) for p, n in runs)
        self.core.produce(self.core.topic("orders").partition(partition), memoryview(bytearray(data)))
        for priority, count in runs:
            for _ in range(count):
                offset = self.ends[partition]
                self.messages[partition, offset] = Plain(partition, offset, priority, self.now_us)
                self.ends[partition] += 1

    @rule(number=st.integers(0, 1), count=st.sampled_from([1, 2, 5, 40, 1_000]))
    def acquire(self, number: int, count: int) -> None:
        member = self.members[number]
        before = {*member.held}
        allowed = self.available()
        take(self.core, member, count)
        given = [
            self.messages[held.partition, offset]
            for lease, held in member.held.items()
            if lease not in before
            for offset in held.left
        ]
        self.check_given(given, allowed, count)
        for one in given:
            one.since_us = None

    def check_given(self, given: list[Plain], allowed: list[Plain], count: int) -> None:
        """Compare what was given out with what the rules say."""
        assert len(given) <= count
        assert all(one in allowed for one in given)
        assert bool(given) == bool(allowed), "who asks gets something where there is anything"
        left = [one for one in allowed if one not in given]
        if self.is_strict and given:
            lowest = min(one.priority for one in given)
            assert all(one.priority <= lowest for one in left), "a higher lane was passed over"
            assert [one.priority for one in given] == sorted((one.priority for one in given), reverse=True)
        if self.is_in_order:
            for one in left:
                behind = [
                    other.offset
                    for other in given
                    if (other.partition, other.priority) == (one.partition, one.priority)
                ]
                assert one.offset > max(behind, default=-1), "a lane is in the order of offsets"

    @precondition(lambda self: any(member.held for member in self.members))
    @rule(data=st.data(), what=SETTLINGS, is_late=st.booleans())
    def settle(self, data: st.DataObject, what: Settling, is_late: bool) -> None:
        member = data.draw(st.sampled_from([member for member in self.members if member.held]))
        held: Held = data.draw(st.sampled_from([*member.held.values()]))
        offsets = sorted(held.left)
        first = data.draw(st.integers(0, len(offsets) - 1))
        chosen = offsets[first :: data.draw(st.integers(1, 3))]
        delay_us = DELAY if is_late else 0
        member.settle([(held, what, chosen, delay_us if what is Settling.RELEASE else -1)])
        self.core.settle()
        member.harvest()
        for offset in chosen:
            if what is Settling.ACCEPT:
                del self.messages[held.partition, offset]
            else:
                late_us = delay_us if what is Settling.RELEASE else 0
                self.messages[held.partition, offset].since_us = self.now_us + late_us

    @rule(seconds=st.sampled_from([1, 6]))
    def let_time_pass(self, seconds: int) -> None:
        self.core.advance(seconds * SECOND)

    @rule(loses_indexes=st.booleans())
    def start_again(self, loses_indexes: bool) -> None:
        """The members come back with nothing in their hands, and what they held is given back."""
        for member in self.members:
            for held in [*member.held.values()]:
                member.settle([(held, Settling.RETURN, [*held.left], -1)])
            self.core.settle()
            member.harvest()
        for one in self.messages.values():
            one.since_us = self.now_us if one.since_us is None else one.since_us
        files = self.core.files
        if loses_indexes:
            for partition in range(PARTITIONS):
                folder = f"partitions/1-{partition}/messages"
                for name in files.list_folder(folder):
                    if name.endswith(".lanes"):
                        files.remove_folder(f"{folder}/{name}")
        self.core = self.core.next_process(files)
        self.join()
        self.core.advance(1_000)  # so that waits which were over meanwhile are known to be

    # -- what holds ------------------------------------------------------------------------------------------------

    @invariant()
    def the_states_hold(self) -> None:
        for topic in self.core.topics.all() if self.messages else ():
            for partition in topic.partitions:
                for state in partition.delivery.log.fold.states.values() if partition.delivery.log else ():
                    state.check()

    def teardown(self) -> None:
        """In the end everything comes, once."""
        if not self.messages:
            return
        self.core.advance(DELAY + SECOND)
        while self.available():
            self.acquire(0, 1_000)


TestLaneMachine = LaneMachine.TestCase
TestLaneMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
