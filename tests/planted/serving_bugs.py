"""Bugs that serving queue groups could have, and the test that must find each; see `bugs`."""

from __future__ import annotations

from .bug import Bug

TURNS = "tests/broker/queues/test_turns.py"
GRANTING = "tests/broker/queues/test_granting.py"

SERVING_BUGS = (
    Bug(
        name="starve-closed-partitions",
        what="delivery logs are opened only when the open ones have nothing",
        file="broker/queues/dispatch.py",
        before="        for part in self._available.to_prepare(topics):",
        after="        for part in [] if offer.leased else self._available.to_prepare(topics):",
        test=f"{TURNS}::test_partitions_that_are_closed_take_their_turns_beside_those_that_have_something",
    ),
    Bug(
        name="drain-one-member-for-ever",
        what="suspects wait for the one member that is drained for them, however long it holds something",
        file="broker/queues/draining.py",
        before="(not self._members or now_us - self._since_us >= MORE_US)",
        after="not self._members",
        test=f"{TURNS}::test_suspects_do_not_wait_for_a_member_that_is_at_one_message_for_long",
    ),
    Bug(
        name="lose-what-was-leased-before-a-bug",
        what="what an acquire was given before it met a bug stays leased to nobody",
        file="broker/queues/dispatch.py",
        before="            offer.take_back()\n",
        after="",
        test=f"{TURNS}::test_an_acquire_that_meets_a_bug_is_answered_and_leaves_nothing_behind",
    ),
    Bug(
        name="forget-that-a-log-is-reopened",
        what="a delivery log that is being reopened is taken for one that was never made",
        file="broker/queues/partition_delivery.py",
        before="        self.log = None\n        self._failure = LogFencedError(",
        after="        self.log = None\n        _never = lambda: LogFencedError(",
        test="tests/broker/queues/test_reopening.py",
    ),
    Bug(
        name="deliver-what-is-over",
        what="a lease that ended while its batches were cut is delivered all the same",
        file="broker/queues/granting.py",
        before="            if left_us:\n",
        after="            if True:\n",
        test=GRANTING,
    ),
    Bug(
        name="part-the-end-of-a-lease",
        what="the events that end a lease are recorded one by one, and decided anew in between",
        file="broker/queues/endings.py",
        before="next(ledger.log.pieces_of(ended), None)",
        after="next(ledger.log.pieces(event for events in ended for event in events), None)",
        test="tests/broker/queues/test_endings.py",
    ),
    Bug(
        name="late-deadlines-before-sockets",
        what="after a standstill leases end before the settles that wait in the sockets are read",
        file="broker/background.py",
        before="            for _ in range(LATE_TURNS):",
        after="            for _ in range(0):",
        test="tests/broker/test_background.py::test_late_deadlines_wait_until_sockets_were_read",
    ),
)
