"""Bugs of messages of several priorities."""

from __future__ import annotations

from .bug import Bug

LANES = "tests/broker/queues/test_lanes.py"
POLICY = "tests/broker/delivery/test_lane_policy.py"
INDEX = "tests/broker/storage/test_lanes.py"

LANE_BUGS = (
    Bug(
        name="forget-what-came-back",
        what="a message that was given back comes after everything else, whatever its priority",
        file="broker/queues/lane_search.py",
        before="        self._came |= offsets\n",
        after="        self._came |= OffsetSet()\n",
        test=f"{LANES}::test_a_released_message_comes_before_the_rest_of_its_lane",
    ),
    Bug(
        name="serve-what-is-at-hand",
        what="a lower lane is served while it is not known whether there is something higher",
        file="broker/queues/lane_filling.py",
        before="            if policy.is_strict and (",
        after="            if policy is None and (",
        test=f"{LANES}::test_nothing_lower_goes_while_something_higher_is_not_at_hand",
    ),
    Bug(
        name="make-up-for-silence",
        what="a lane that had nothing for long floods the others when it comes back",
        file="broker/delivery/lane_policy.py",
        before="                clocks[lane] = max(clocks[lane], self._now)\n",
        after="                clocks[lane] = max(clocks[lane], 0)\n",
        test=f"{POLICY}::test_what_a_lane_did_not_use_is_not_made_up_for",
    ),
    Bug(
        name="save-up-for-age",
        what="after a quiet time aged messages push the priorities aside",
        file="broker/delivery/lane_policy.py",
        before="            self._credit = min(self._credit, share - 1)\n",
        after="            pass\n",
        test=f"{POLICY}::test_a_share_for_age_is_not_saved_up",
    ),
    Bug(
        name="believe-a-foreign-lane-index",
        what="the lanes of another segment are taken for this one's",
        file="broker/storage/lane_index.py",
        before="if len(sets) < 2 or any(lane.min() < start or lane.max() >= end for lane in sets.values()):",
        after="if len(sets) < 2:",
        test="tests/broker/storage/test_lane_index.py::test_sets_of_other_offsets_are_no_index_of_a_segment",
    ),
    Bug(
        name="hold-all-lanes",
        what="the lanes of every segment that was ever looked at stay in memory",
        file="broker/storage/segments.py",
        before="        for old in [*self._with_lanes.values()][: max(excess, 0)]:\n",
        after="        for old in [*self._with_lanes.values()][: max(excess, 0) * 0]:\n",
        test=f"{INDEX}::test_alternating_priorities_take_bounded_memory_and_time",
    ),
)
