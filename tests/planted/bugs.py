"""The bugs: each a small change of one file, and the test that must find it.

`before` stands exactly once in the file; what it does to the product is in `what`. Add one whenever a bug
gets past the suite, together with the test that finds it now.
"""

from __future__ import annotations

from .bug import Bug
from .delivery_bugs import DELIVERY_BUGS
from .lane_bugs import LANE_BUGS
from .letter_bugs import LETTER_BUGS
from .move_bugs import MOVE_BUGS
from .queue_bugs import QUEUE_BUGS
from .serving_bugs import SERVING_BUGS

__all__ = ["BUGS", "Bug"]

LIVES = "tests/crash/test_power_loss.py::test_random_lives"
STEPS = "tests/crash/test_steps.py::test_crash_between_every_two_steps"


COPYING = "tests/broker/archive/test_copying.py"

BUGS = (
    *DELIVERY_BUGS,
    *LANE_BUGS,
    *LETTER_BUGS,
    *MOVE_BUGS,
    *QUEUE_BUGS,
    *SERVING_BUGS,
    Bug(
        name="archive-without-reading-back",
        what="an entry is made of what was sent, whatever arrived",
        file="broker/archive/copying.py",
        before="        if read_back != entry.checksum:\n",
        after="        if False:\n",
        test=f"{COPYING}::test_a_copy_that_arrives_damaged_is_sent_again",
    ),
    Bug(
        name="retention-does-not-wait",
        what="retention removes what is not archived yet",
        file="broker/storage/log.py",
        before="        if may_remove is not None:\n",
        after="        if may_remove is ...:\n",
        test="tests/broker/archive/test_retention.py::test_retention_waits_for_the_archive",
    ),
    Bug(
        name="damaged-object-as-data",
        what="the first damaged range of an archived segment is not known as damaged",
        file="broker/archive/cache.py",
        before="        for gap in segment.gaps:\n",
        after="        for gap in segment.gaps[1:]:\n",
        test="tests/broker/archive/test_reading.py::test_a_flipped_bit_is_an_error_for_its_batch_alone",
    ),
    Bug(
        name="drop-the-sync",
        what="a sync round syncs nothing and says that it worked",
        file="broker/storage/sync_round.py",
        before="failures = files.sync_many([task.first for task in tasks])",
        after="failures: list[OSError | None] = [None for _task in tasks]",
        test=LIVES,
    ),
    Bug(
        name="acknowledge-before-the-sync",
        what="the synced mark moves when a sync begins",
        file="broker/storage/log.py",
        before="        return self._sync\n",
        after="        self._synced_offset = active.end_offset\n        return self._sync\n",
        test=LIVES,
    ),
    Bug(
        name="skip-the-folder-sync",
        what="a rolled segment counts before its name is durable",
        file="broker/storage/roll.py",
        before="        files.sync_folder(self.folder)\n",
        after="",
        test=STEPS + "[roll-unprepared]",
    ),
    Bug(
        name="name-before-bytes",
        what="a new segment gets its name before its header page is durable",
        file="broker/storage/roll.py",
        before="        self.new.opened.sync()\n",
        after="",
        test=STEPS + "[roll]",
    ),
    Bug(
        name="count-an-unproven-roll",
        what="what lies in a segment whose roll is not proven counts as written",
        file="broker/storage/log.py",
        before="return rolls[0].old.end_offset if rolls else self.end_offset",
        after="return self.end_offset",
        test=LIVES,
    ),
    Bug(
        name="retry-after-a-failed-sync",
        what="a failed sync does not fence the log: the next one succeeds and proves nothing",
        file="broker/storage/log.py",
        before="            self._fence = error\n            return\n",
        after="            return\n",
        test="tests/crash/test_faulty_disk.py::test_each_sync_is_lost[work]",
    ),
    Bug(
        name="trust-the-page-cache",
        what="a tail that recovery accepts is served without being written anew",
        file="broker/storage/replay.py",
        before="elif tail or ",
        after="elif ",
        test=LIVES,
    ),
    Bug(
        name="trust-an-unsynced-name",
        what="a start goes on in an empty segment whose name may be on no disk",
        file="broker/storage/replay.py",
        before="elif tail or not self._is_named(segment) or has_data",
        after="elif tail or has_data",
        test=STEPS + "[roll-empty]",
    ),
    Bug(
        name="rename-an-unsynced-copy",
        what="the copy of a tail replaces its source before it is durable",
        file="broker/storage/recovery.py",
        before='    sync_all("the tail copy", lambda r: r.new_segment.opened if r.new_segment else None)\n',
        after="",
        test=STEPS + "[tail-copy]",
    ),
    Bug(
        name="trust-the-index",
        what="a stored index is used without comparing its checksum",
        file="broker/storage/files/arrays.py",
        before="return bytes(read(CHECKSUM)) == checksum_of(read, tag) and ",
        after="return len(read(CHECKSUM)) > 0 and ",
        test="tests/broker/storage/test_damage_containment.py"
        "::test_a_flip_in_any_byte_of_an_index_costs_a_rebuild_alone",
    ),
    Bug(
        name="trust-a-torn-body",
        what="recovery takes a batch whose header survived and whose records did not",
        file="broker/storage/scan.py",
        before='return xxhash.xxh3_64_intdigest(body) == int(entry["checksum"])',
        after="return len(body) > 0",
        test=LIVES,
    ),
    Bug(
        name="checksum-skips-the-header",
        what="a reader does not compare the checksum of the leader's fields",
        file="protocol/batch_header.py",
        before="    if not verify_leader(buffer, position):\n        raise CorruptError(",
        after="    if len(buffer) < HEADER_BYTES:\n        raise CorruptError(",
        test="tests/protocol/test_batch_header.py::test_a_stored_batch_verifies_until_any_bit_changes",
    ),
    Bug(
        name="cut-at-the-first-bad-batch",
        what="recovery ends the log at a bad batch below the mark, as if it were a torn tail",
        file="broker/storage/scan.py",
        before="if found.position >= self._proven_position and not self._was_synced(found.position):",
        after="if self._window:",
        test="tests/crash/test_damage.py::test_one_bit_costs_one_batch_at_most",
    ),
    Bug(
        name="zeros-are-the-end",
        what="a page of zeros ends the log wherever it lies",
        file="broker/storage/scan.py",
        before="if found.position >= self._proven_position and not self._was_synced(found.position):",
        after="if not any(self._segment.view[found.position : found.position + 112]):",
        test="tests/crash/test_damage.py::test_a_page_that_reads_as_zeros",
    ),
    Bug(
        name="snapshot-ahead-of-the-sync",
        what="a snapshot covers what a power loss may still take",
        file="broker/storage/snapshot_schedule.py",
        before="if self._taken is None or self._taken.appended_bytes > synced_bytes:",
        after="if self._taken is None:",
        test=LIVES,
    ),
    Bug(
        name="retention-off-by-one",
        what="retention removes one segment more than it may",
        file="broker/storage/retention.py",
        before="        total -= size\n        count += 1\n    return count\n",
        after="        total -= size\n        count += 1\n    return min(count + 1, removable) if count else 0\n",
        test="tests/broker/storage/test_retention.py::test_segments_go_while_the_log_is_too_large",
    ),
    Bug(
        name="time-lookup-off-by-one",
        what="a lookup by append time passes over a batch of exactly that time",
        file="broker/storage/lookup.py",
        before='late = entries["append_time_us"] >= time_us',
        after='late = entries["append_time_us"] > time_us',
        test="tests/broker/storage/test_times.py::test_lookups_equal_a_linear_scan_over_segments",
    ),
    Bug(
        name="forget-producers-at-a-restart",
        what="a repeat is stored again when the first copy came before the last snapshot",
        file="broker/producers.py",
        before="            self._restore(section.data)\n",
        after="            _ = section\n",
        test="tests/crash/test_broker_power_loss.py",
    ),
    Bug(
        name="answer-a-repeat-too-early",
        what="a repeat is answered while the sync of the first copy is pending",
        file="broker/message_log.py",
        before="        self.upto = max(self.upto, end)\n",
        after="        self.upto = max(self.upto, 0 if duplicate else end)\n",
        test="tests/broker/test_partition.py::test_a_repeat_waits_for_the_sync_of_the_first_copy",
    ),
    Bug(
        name="answer-a-duplicate-too-early",
        what="a duplicate is answered while the sync of the first message is pending",
        file="broker/message_log.py",
        before="end = max(end, last) if record_count else last",
        after="end = max(end, last) if record_count else 0",
        test="tests/broker/test_dedup_repeats.py::test_a_duplicate_waits_until_the_first_is_as_durable_as_it_asks",
    ),
    Bug(
        name="forget-the-ids",
        what="a snapshot does not give the dedup ids back",
        file="broker/dedup.py",
        before="            self._restore(section.data)\n",
        after="            _ = section\n",
        test="tests/broker/test_dedup_machine.py",
    ),
    Bug(
        name="miscount-what-moves-up",
        what="the second of two records with one id in a batch is told an offset that is not the first one's",
        file="broker/dedup.py",
        before="firsts[dedup_id] = base_offset + row - len(found), now_us",
        after="firsts[dedup_id] = base_offset + row, now_us",
        test="tests/broker/test_dedup.py::test_the_others_of_a_batch_move_up",
    ),
    Bug(
        name="receipt-for-what-is-gone",
        what="a message is left out although retention removed the one it repeats",
        file="broker/dedup.py",
        before=" < self.settings.window_us and exists(first.offset) else None",
        after=" < self.settings.window_us else None",
        test="tests/broker/test_dedup.py::test_an_id_is_free_again_when_retention_removed_its_message",
    ),
    Bug(
        name="guess-a-receipt",
        what="a repeat is answered by ids that stand for other messages by now",
        file="broker/dedup.py",
        before="            elif first is not None and first.offset < next_offset:\n",
        after="            elif first is not None:\n",
        test="tests/broker/test_dedup_repeats.py::test_a_repeat_that_nobody_can_answer_is_refused",
    ),
    Bug(
        name="vouch-for-a-control-batch",
        what="a snapshot is written while control batches it covers may still be lost",
        file="broker/storage/snapshot_schedule.py",
        before="self._taken.appended_bytes > synced_bytes",
        after="self._taken.offset < 0",
        test="tests/broker/test_dedup_repeats.py::test_control_batches_behind_the_last_sync_do_not_hurt_a_log",
    ),
    Bug(
        name="show-what-is-not-durable",
        what="consumers of a synced topic see what a power loss may take",
        file="broker/partition.py",
        before="self.log.synced_offset if self._settings.durability is Durability.SYNCED else self.log.written_offset",
        after="self.log.written_offset",
        test="tests/broker/test_partition.py::test_consumers_see_what_is_as_durable_as_the_topic_asks",
    ),
    Bug(
        name="pass-over-broken-replies",
        what="a client drops intact records in front of a broken one and goes on behind them",
        file="client/core/position.py",
        before="        except InvalidBatchError as error:\n            self._found_damage(self.handed, error)\n",
        after="        except InvalidBatchError as error:\n            self._found_damage(self.offset, error)\n",
        test="tests/client/core/test_position_damage.py",
    ),
    Bug(
        name="draw-what-was-taken-off",
        what="a producer that was interrupted in the middle of a cut sends the messages of it twice",
        file="client/core/rows.py",
        before="if drawn is None or drawn.number != self.items[0]:",
        after="if drawn is None:",
        test="tests/client/core/test_rows.py",
    ),
    Bug(
        name="draw-the-older-lists-first",
        what="a producer overtakes a message that the same thread sent before",
        file="client/core/intake.py",
        before="""        last = self.rows.draw()
        found = [(rows, drawn) for rows in self.older if (drawn := rows.draw()) is not None]
""",
        after="""        found = [(rows, drawn) for rows in self.older if (drawn := rows.draw()) is not None]
        last = self.rows.draw()
""",
        test="tests/client/core/test_intake.py",
    ),
)
