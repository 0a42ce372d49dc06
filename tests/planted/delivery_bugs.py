"""Bugs that could be in the core of delivery."""

from __future__ import annotations

from .bug import Bug

SETTLING = "tests/broker/delivery/test_settling.py"
EXPIRING = "tests/broker/delivery/test_expiring.py"
ACQUIRING = "tests/broker/delivery/test_acquiring.py"
FOLD = "tests/broker/delivery/test_fold.py"

DELIVERY_BUGS = (
    Bug(
        name="settle-without-the-member",
        what="whoever knows a lease settles it, its holder or not",
        file="broker/delivery/settling.py",
        before="        if lease is None or self._member not in (BY_TOKEN, lease.member):\n",
        after="        if lease is None:\n",
        test=f"{SETTLING}::test_a_foreign_lease_is_refused_and_nothing_changes",
    ),
    Bug(
        name="count-by-lease",
        what="being leased is an attempt, handed over or not",
        file="broker/delivery/acquiring.py",
        before="    if counts or (choice.are_suspects and choice.count == 1):\n",
        after="    if True:\n",
        test=f"{EXPIRING}::test_what_was_reported_counts_and_the_rest_is_suspect",
    ),
    Bug(
        name="expiry-clears-suspicion",
        what="a suspect whose lease ended by itself is leased with others again",
        file="broker/delivery/queue_state.py",
        before="        if Flag.EXPIRED not in event.flags:\n",
        after="        if True:\n",
        test=f"{EXPIRING}::test_only_a_settle_clears_suspicion",
    ),
    Bug(
        name="suspects-with-their-neighbours",
        what="one that is to be leased alone is leased in a group",
        file="broker/delivery/acquiring.py",
        before="    if stricter:\n",
        after="    if False:\n",
        test=f"{EXPIRING}::test_one_that_is_to_be_alone_is_not_leased_with_its_neighbours",
    ),
    Bug(
        name="ignore-the-backoff",
        what="a released message is available at once",
        file="broker/delivery/queue_state.py",
        before="        if event.duration_us > 0:\n",
        after="        if event.duration_us < 0:\n",
        test=f"{SETTLING}::test_a_released_message_waits_and_knows_why_it_came_back",
    ),
    Bug(
        name="one-attempt-more",
        what="a message is handed over once more than its limit says",
        file="broker/delivery/releasing.py",
        before="            if attempts >= policy.max_attempts:\n",
        after="            if attempts > policy.max_attempts:\n",
        test=f"{SETTLING}::test_the_last_attempt_rejects_exactly_at_the_limit",
    ),
    Bug(
        name="floor-passes-the-leased",
        what="what is leased counts as settled below the floor",
        file="broker/delivery/message_sets.py",
        before="        return self.open.min() if self.open else self.frontier\n",
        after="        return self.ready.min() if self.ready else self.frontier\n",
        test=f"{ACQUIRING}::test_the_floor_waits_for_what_is_leased",
    ),
    Bug(
        name="forget-what-a-settle-did",
        what="the repeat of an acknowledgement whose answer was lost is refused",
        file="broker/delivery/queue_state.py",
        before="        if Flag.ASKED in event.flags:\n",
        after="        if Flag.ASKED in event.flags and event.member < 0:\n",
        test=f"{FOLD}::test_a_repeat_is_known_after_any_number_of_starts",
    ),
    Bug(
        name="another-outcome-is-a-repeat",
        what="a rejection of what was acknowledged is answered as done",
        file="broker/delivery/settling.py",
        before=".done(self._member, item.lease, item.what)",
        after=".done(self._member, item.lease, Settling.ACCEPT)",
        test=f"{SETTLING}::test_a_repeat_of_all_that_was_left_is_known",
    ),
    Bug(
        name="apply-an-earlier-life",
        what="events from before a reset change the group's present state",
        file="broker/delivery/fold.py",
        before="        return self.states[group] if generation >= known else None\n",
        after="        return self.states[group]\n",
        test=f"{FOLD}::test_events_of_an_earlier_generation_say_nothing",
    ),
    Bug(
        name="skip-the-epoch-rule",
        what="acknowledgements of lost messages settle those that took their offsets",
        file="broker/delivery/fold.py",
        before="            bound = self._bound(self._epoch)\n",
        after="            bound = 1 << 62\n",
        test=f"{FOLD}::test_acknowledgements_of_lost_messages_do_not_settle_those_that_follow",
    ),
    Bug(
        name="bound-a-snapshot-by-no-epoch",
        what="a start from a snapshot forgets what was settled",
        file="broker/delivery/fold.py",
        before="            self._epoch = packed.epoch\n",
        after="            self._epoch = 0\n",
        test=f"{FOLD}::test_a_snapshot_of_an_intact_log_keeps_all_it_says",
    ),
    Bug(
        name="expire-at-the-start",
        what="a lease that ran out while the broker was down ends before its holder can come back",
        file="broker/delivery/queue_state.py",
        before="max(left_us, visibility_timeout_us)",
        after="left_us",
        test=f"{FOLD}::test_leases_survive_a_start_for_what_is_left_of_them",
    ),
    Bug(
        name="wait-anew-after-a-start",
        what="a wait begins again with each start of the broker",
        file="broker/delivery/waiting.py",
        before="max(0, min(wait.delay_us, wait.wall_us - wall_us))",
        after="wait.delay_us",
        test=f"{FOLD}::test_a_wait_is_the_smaller_of_what_time_and_delay_say",
    ),
)
