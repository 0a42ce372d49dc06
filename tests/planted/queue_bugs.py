"""Bugs that queue groups could have, and the test that must find each; see `bugs`."""

from __future__ import annotations

from .bug import Bug

QUEUE_LIVES = "tests/crash/test_queue_power_loss.py"
QUEUES = "tests/crash/test_queue_scenarios.py"

QUEUE_BUGS = (
    Bug(
        name="acknowledge-a-settle-when-written",
        what="a settle of a synced topic is answered before its event is synced",
        file="broker/queues/settles.py",
        before="word = Durability(request.durability) if request.durability else part.partition.durability",
        after="word = Durability.WRITTEN",
        test=f"{QUEUE_LIVES}",
    ),
    Bug(
        name="delivery-log-without-a-name",
        what="the folder of a delivery log that a kill left behind is never made durable",
        file="broker/queues/delivery_opening.py",
        before="if one.is_missing or not one.is_made:",
        after="if one.is_missing or log.recovery.is_new:",
        test=f"{QUEUES}::test_a_kill_in_the_making_of_the_delivery_log",
    ),
    Bug(
        name="forget-limits-at-a-start",
        what="a message's own limit is forgotten when the broker starts while it is leased",
        file="broker/queues/deliveries.py",
        before="            result.load_retries(delivery.messages())",
        after="            pass",
        test=f"{QUEUES}::test_a_limit_of_its_own_holds_over_a_restart",
    ),
    Bug(
        name="lease-until-the-old-deadline",
        what="a start ends the leases that survived it",
        file="broker/delivery/queue_state.py",
        before="lease.deadline_us = now.monotonic_us + max(left_us, visibility_timeout_us)",
        after="lease.deadline_us = now.monotonic_us + max(left_us, 0) // 8",
        test=f"{QUEUE_LIVES}",
    ),
    Bug(
        name="lease-ids-of-one-epoch",
        what="lease ids are given out again after a start",
        file="broker/delivery/lease.py",
        before="return lease_id(self._epoch, self._counter)",
        after="return lease_id(1, self._counter)",
        test=f"{QUEUES}::test_a_lease_id_is_never_given_twice",
    ),
)
