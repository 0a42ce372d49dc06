"""Who is given what where messages have several priorities: lanes first, then the turns of partitions within a lane.

    changed   partitions of which is not known what they have now; looked at when somebody asks
    rotation  the partitions that have something in a lane, whose turn is next first (`lane_rotation`)
    unknown   partitions where a worker reads what it takes to know: while one may have something higher, nothing lower
              is given out under the strict policy

Topics with the same settings that are asked for together share a policy (`delivery/lane_policy`), and so one order
over all of their partitions; topics with other settings take turns with them. Members that ask for other topics have
policies of their own: what one is given of its lanes is no part of the others' shares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set

from ...protocol.errors import UnknownTopicIdError
from ...protocol.messages import Portion
from ..delivery.lane_policy import LanePolicy, LaneSettings
from .aged_parts import AgedParts
from .group_partition import GroupPartition, Leased
from .lane_filling import Giver, LaneFilling
from .lane_rotation import LaneRotation
from .lane_search import NO_LANE
from .partition_lanes import bit_of
from .room import MAX_GRANTS, Room
from .topic_source import TopicSource

MAX_POLICIES = 256
"""Of one group, beside those that are asked for: clients say for which topics, and could name every set of them. The
one that gave nothing for longest is forgotten first, and begins anew."""


_Asked = tuple[LaneSettings, frozenset[int]]


class LaneTurns:
    """The lanes of one group."""

    def __init__(self, topics: TopicSource) -> None:
        self._topics = topics
        self._masks: dict[int, int] = {}
        """Of each topic, the priorities there may be."""
        self._changed: dict[GroupPartition, None] = {}
        self._unknown: dict[GroupPartition, None] = {}
        self._rotation = LaneRotation()
        self._policies: dict[_Asked, LanePolicy] = {}
        """By settings, and the topics of those that were asked for. Whose turn is next first: one that gave something
        goes behind the others."""

    def __repr__(self) -> str:
        return f"<LaneTurns {self._rotation!r}, {len(self._unknown)} unknown>"

    # -- what there is ---------------------------------------------------------------------------------------------

    def note(self, part: GroupPartition) -> None:
        """Note that a partition may have something else than before."""
        topic_id = part.partition.topic_id
        self._masks[topic_id] = self._masks.get(topic_id, 0) | part.lanes.mask
        self._changed[part] = None

    def drop(self, part: GroupPartition) -> None:
        """Look at a partition no more."""
        self._changed.pop(part, None)
        self._unknown.pop(part, None)
        self._rotation.place(part, 0)

    def forget_masks(self, parts: Iterable[GroupPartition]) -> None:
        """Look anew which topics have several priorities: retention may have removed one."""
        self._masks.clear()
        for part in parts:
            self.note(part)

    def concern(self, topics: Collection[int]) -> bool:
        """Whether messages of some topics have several priorities."""
        mask = 0
        for topic_id in topics:
            mask |= self._masks.get(topic_id, 0)
        return mask & (mask - 1) != 0

    def _look(self, policy: LanePolicy, topics: Collection[int]) -> None:
        for part in [part for part in (*self._changed, *self._unknown) if part.partition.topic_id in topics]:
            self._look_at(policy, part)

    def _look_at(self, policy: LanePolicy, part: GroupPartition) -> None:
        self._changed.pop(part, None)
        self._unknown.pop(part, None)
        bits: int | None = 0
        if part.problem() is not None:
            bits = bit_of(NO_LANE) if part.has_available() else 0  # who leases it is told
        elif part.has_available():
            part.lanes.keep_ages(policy.settings.max_wait_us)
            bits = part.lanes.known(only_highest=policy.is_strict)
            if bits is not None and policy.is_strict:
                # Its turns in lower lanes are as they were: what comes higher now and then is not to cost them.
                bits |= self._rotation.bits_of(part) & max(bits - 1, 0)
        if bits is None:
            self._unknown[part] = None
        self._rotation.place(part, bits or 0)

    def unknown(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return the partitions of topics where a worker reads what it takes to know what they have."""
        return [part for part in self._unknown if part.partition.topic_id in topics]

    # -- giving out ------------------------------------------------------------------------------------------------

    def lease(self, topics: Collection[int], room: Room, limit: int, giver: Giver) -> list[Portion]:
        """Lease what is next, the highest lane first, as far as it fits, at most `limit` messages; return how the
        leases are mixed, where they are not given out one after the other."""
        leased: list[Leased] = []
        order: list[Portion] = []
        for policy, some in self._in_turn(topics):
            given = sum(one.batches.choice.count for one in leased)
            left = min(room.records, limit - given)
            if left <= 0 or room.is_full or len(leased) == MAX_GRANTS:
                break
            before = len(leased)
            order += LaneFilling(self, policy, some, room, giver, leased).run(left)
            if len(leased) > before:
                asked = (policy.settings, some)
                self._policies[asked] = self._policies.pop(asked, policy)
        return order if [*range(len(order))] != [one.grant for one in order] else []

    def _in_turn(self, topics: Collection[int]) -> Sequence[tuple[LanePolicy, frozenset[int]]]:
        """Return the policies of topics, each with its topics, whose turn is next first."""
        by_settings: dict[LaneSettings, list[int]] = {}
        for topic_id in topics:
            try:
                settings = self._topics.by_id(topic_id).settings.lanes
            except UnknownTopicIdError:
                continue
            by_settings.setdefault(settings, []).append(topic_id)
        asked = {(settings, frozenset(some)): frozenset(some) for settings, some in by_settings.items()}
        for each in asked:
            if each not in self._policies:
                self._policies[each] = LanePolicy(each[0])
        while len(self._policies) > MAX_POLICIES + len(asked):
            del self._policies[next(each for each in self._policies if each not in asked)]
        if len(asked) == 1:
            ((each, some),) = asked.items()
            return [(self._policies[each], some)]
        return [(policy, asked[each]) for each, policy in self._policies.items() if each in asked]

    def keep_policies(self, topics: Iterable[int]) -> None:
        """Forget the policies of settings that none of these topics has any more, and of other topics."""
        kept, used = frozenset(topics), set[LaneSettings]()
        for topic_id in kept:
            try:
                used.add(self._topics.by_id(topic_id).settings.lanes)
            except UnknownTopicIdError:
                continue
        self._policies = {
            (settings, some): policy
            for (settings, some), policy in self._policies.items()
            if settings in used and some <= kept
        }

    def next_of(self, topics: Collection[int], lane: int, without: Set[GroupPartition]) -> GroupPartition:
        """Return the partition whose turn is next in a lane that has something."""
        return self._rotation.next_of(topics, lane, without)

    def all_of(self, topics: Collection[int]) -> list[GroupPartition]:
        """Return the partitions of topics that have something."""
        return self._rotation.all_of(topics)

    def bits(self, policy: LanePolicy, topics: Collection[int], without: Set[GroupPartition]) -> int:
        """Return which lanes of topics have something, some partitions left out."""
        self._look(policy, topics)
        return self._rotation.bits(topics, without)

    def aged(self, policy: LanePolicy, topics: Collection[int]) -> AgedParts:
        """Return the partitions of topics that have something old enough to go for its age."""
        self._look(policy, topics)
        return AgedParts(self.all_of(topics), policy.settings.max_wait_us)

    def may_be_above(self, topics: Collection[int], lane: int) -> bool:
        """Whether a partition of which it is not known yet may have something in a higher lane."""
        return any(part.partition.topic_id in topics and bit_of(lane) <= part.lanes.mask for part in self._unknown)

    def gave_nothing(self, part: GroupPartition) -> None:
        """Look at a partition again when somebody asks; one with a problem when it is noted again."""
        self._rotation.place(part, 0)
        if part.problem() is None:
            self._changed[part] = None

    def gave(self, policy: LanePolicy, part: GroupPartition, lane: int) -> int:
        """End a partition's turn in the lane that it gave something of; returns what it still has. In the others it
        keeps its turn: one that always has something high would never be asked for what it has of a lower lane."""
        self._rotation.end(part, lane)
        self._look_at(policy, part)
        return self._rotation.bits_of(part)
