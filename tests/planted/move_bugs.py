"""Bugs that moving what is given up could have, and the test that must find each; see `bugs`."""

from __future__ import annotations

from .bug import Bug

CRASHES = "tests/broker/moving/test_crashes.py"
PINS = "tests/broker/moving/test_pins.py"
BLOCKED = "tests/broker/dead_letters/test_blocked.py"
COPIES = "tests/broker/dead_letters/test_copies.py"

MOVE_BUGS = (
    Bug(
        name="record-copies-before-they-are-synced",
        what="a message is settled whose copy a power loss takes",
        file="broker/moving/mover.py",
        before="        yield durable(self._services.commit, log)\n        yield from self._source.before_done",
        after="        yield from self._source.before_done",
        test=f"{CRASHES}::test_a_crash_in_any_step_leaves_one_copy_each[power-synced]",
    ),
    Bug(
        name="copy-before-it-is-announced",
        what="copies are made although it is not synced that they would be",
        file="broker/moving/mover.py",
        before="        yield recorded\n",
        after="",
        test=f"{CRASHES}::test_a_crash_in_any_step_leaves_one_copy_each[power-synced]",
    ),
    Bug(
        name="make-copies-again-that-are-there",
        what="a start does not find the copies whose record was lost",
        file="broker/moving/mover.py",
        before="search.run(intent.search_from)",
        after="search.run(log.end_offset)",
        test=f"{CRASHES}::test_a_crash_in_any_step_leaves_one_copy_each[kill-synced]",
    ),
    Bug(
        name="take-the-copy-of-another-group",
        what="of two groups that gave up on a message one finds the copy of the other and makes none",
        file="broker/dead_letters/letter_source.py",
        before="return any(header == (GROUP, name) for header in headers)",
        after="return bool(name)",
        test=f"{CRASHES}::test_a_crash_in_any_step_leaves_one_copy_each[kill-written]",
    ),
    Bug(
        name="remove-copies-before-their-record-is-synced",
        what="retention takes copies that a start would have to find",
        file="broker/moving/pins.py",
        before="return segment.end_offset <= first",
        after="return segment.end_offset >= first",
        test=f"{PINS}::test_copies_stay_until_their_record_is_synced",
    ),
    Bug(
        name="let-go-of-copies-whose-record-failed",
        what="when a delivery log is fenced nothing holds the copies that it may have to find",
        file="broker/moving/held_copies.py",
        before="self._unsynced = set() if is_durable else old",
        after="self._unsynced = set()",
        test=f"{PINS}::test_pins_outlive_a_delivery_log_that_is_fenced",
    ),
    Bug(
        name="trust-copies-in-a-fenced-log",
        what="copies count as durable that are in memory only, after their sync failed",
        file="broker/moving/mover.py",
        before="if copies and not is_durable:",
        after="if copies and False:",
        test=f"{BLOCKED}::test_a_target_whose_sync_fails_blocks_until_it_is_reopened[False]",
    ),
    Bug(
        name="lose-what-is-given-up-silently",
        what="retention removes a message whose copy was not made yet, and nobody hears of it",
        file="broker/queues/ledger.py",
        before='self.on_lost(lost, "removed by retention")',
        after="pass",
        test=f"{BLOCKED}::test_what_retention_removes_before_its_copy_is_lost_and_said_to_be",
    ),
    Bug(
        name="keep-dead-letters-of-dead-letters",
        what="a letter that nobody can read goes from topic to topic",
        file="broker/dead_letters/dead_lettering.py",
        before="return settings.dead_letter and not self._around.letters.is_one(topic_id)",
        after="return settings.dead_letter and topic_id > 0",
        test=f"{COPIES}::test_what_is_given_up_in_a_dead_letter_topic_is_dropped[orders.dlq]",
    ),
    Bug(
        name="hold-nothing-at-a-start",
        what="retention takes copies that a start has not looked for yet, and they are made again",
        file="broker/moving/held_copies.py",
        before="self._uncertain = {one.id: self._pins.hold(one.target_log, one.search_from) for one in intents}",
        after="self._uncertain = {}",
        test=f"{PINS}::test_an_intent_that_is_searched_for_holds_from_where_the_search_begins",
    ),
    Bug(
        name="record-copies-that-are-found-before-they-are-synced",
        what="a message is settled whose copy, found by a search, a power loss takes",
        file="broker/moving/mover.py",
        before="                yield durable(self._services.commit, log)\n            limit",
        after="                pass\n            limit",
        test=f"{PINS}::test_a_copy_that_a_search_finds_is_durable_before_it_is_recorded",
    ),
)
