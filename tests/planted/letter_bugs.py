"""Bugs that redriving dead letters could have, and the test that must find each; see `bugs`."""

from __future__ import annotations

from .bug import Bug

DELETED = "tests/broker/dead_letters/test_redrive_deleted.py"
REDRIVES = "tests/broker/dead_letters/test_redrive.py"

LETTER_BUGS = (
    Bug(
        name="resolve-before-redriven",
        what="a dead letter is pending no more before it is durable that its message is available again",
        file="broker/dead_letters/redrive.py",
        before="            yield wait\n",
        after="            pass\n",
        test=f"{REDRIVES}::test_a_dead_letter_is_resolved_when_its_message_is_back_for_sure",
    ),
    Bug(
        name="forget-what-was-begun",
        what="a start leaves dead letters pending whose messages came back before it",
        file="broker/dead_letters/desk.py",
        before="        resolve_begun(self._topics, self._groups)\n",
        after="",
        test="tests/broker/dead_letters/test_redrive_lives.py::test_each_message_is_acknowledged_once_or_purged",
    ),
    Bug(
        name="redrive-what-somebody-has-in-hand",
        what="two requests bring the same dead letter back",
        file="broker/dead_letters/desk.py",
        before="wanted = (asked & pending.offsets()) - in_hand",
        after="wanted = asked & pending.offsets()",
        test=f"{REDRIVES}::test_of_two_at_once_one_passes_over_what_the_other_has_in_hand",
    ),
    Bug(
        name="redrive-once-too-often",
        what="a message that comes back each time is brought back once more than is allowed",
        file="broker/dead_letters/origins.py",
        before="if letter.redrives >= max_redrives:",
        after="if letter.redrives > max_redrives:",
        test=f"{REDRIVES}::test_what_is_given_up_again_is_another_dead_letter",
    ),
    Bug(
        name="redrive-to-a-group-that-was-moved-on",
        what="a message is resolved that its group will never be given",
        file="broker/dead_letters/origins.py",
        before="if offset < side.begin:",
        after="if offset < 0:",
        test=f"{REDRIVES}::test_where_the_group_was_moved_past_it_nothing_is_done",
    ),
    Bug(
        name="send-anew-what-is-being-sent",
        what="a dead letter whose copy is on its way is pending all the same",
        file="broker/dead_letters/pending.py",
        before="state.moves.offsets - self._being_sent(partition)",
        after="state.moves.offsets",
        test=f"{REDRIVES}::test_what_is_being_sent_anew_is_not_pending",
    ),
    Bug(
        name="keep-the-headers-of-the-last-round",
        what="a message that is published anew says what was said of it as a dead letter",
        file="broker/dead_letters/anew_source.py",
        before="own = [pair for pair in headers if pair[0] not in REPLACED]",
        after="own = [*headers]",
        test=f"{REDRIVES}::test_as_new_each_has_one_new_message",
    ),
    Bug(
        name="tell-nothing-of-what-was-published",
        what="dead letters that were published anew count as refused where the rest was not",
        file="broker/dead_letters/sending_anew.py",
        before="one.moved |= unrecorded & one.letters",
        after="pass",
        test=f"{DELETED}::test_as_new_what_was_published_is_told_though_their_topic_is_gone",
    ),
)
