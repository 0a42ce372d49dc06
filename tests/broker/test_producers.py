"""Idempotence: what a partition remembers of its producers, against a plain reference."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tidelog.broker.producer_id import NAMED_PRODUCER, first_id
from tidelog.broker.producers import NAMED_EXPIRY_US, UNNAMED_EXPIRY_US, Judgement, ProducerTable, Receipt
from tidelog.protocol.batch import BatchHeader
from tidelog.protocol.errors import (
    ProducerFencedError,
    SequenceGapError,
    SequenceReusedError,
    UnknownProducerError,
)

LAST = 0xFFFF_FFFF
NO_BYTES = memoryview(b"")


def batch(sequence: int, *, producer: int = 7, epoch: int = 0, checksum: int | None = None) -> BatchHeader:
    """A batch of two records as a producer sends it."""
    return BatchHeader(
        record_count=2,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        checksum=1000 + sequence if checksum is None else checksum,
    )


class Log:
    """A table and the batches it has seen, as a partition drives it."""

    def __init__(self, table: ProducerTable | None = None) -> None:
        self.table = table or ProducerTable(0)
        self.stored: list[BatchHeader] = []

    def send(self, *headers: BatchHeader, now_us: int = 0) -> Judgement:
        judgement = self.table.judge(headers, now_us)
        for header, verdict in zip(headers, judgement.verdicts, strict=False):
            if verdict is None:
                stored = BatchHeader(
                    base_offset=2 * len(self.stored),
                    append_time_us=5_000 + len(self.stored),
                    record_count=header.record_count,
                    producer_id=header.producer_id,
                    producer_epoch=header.producer_epoch,
                    base_sequence=header.base_sequence,
                    checksum=header.checksum,
                )
                self.stored.append(stored)
                self.table.apply_batch(stored, NO_BYTES)
        return judgement

    def restart(self, covered: int | None = None) -> None:
        """Come back from a snapshot taken after `covered` batches, then the batches after it."""
        source = ProducerTable(0)
        for header in self.stored[:covered]:
            source.apply_batch(header, NO_BYTES)
        self.table = ProducerTable(0)
        self.table.restore(source.freeze()())
        for header in self.stored[len(self.stored) if covered is None else covered :]:
            self.table.apply_batch(header, NO_BYTES)


def test_a_repeat_has_the_first_receipt() -> None:
    """A batch that comes again is not new; its answer is the first one, in any order, also after a restart."""
    log = Log()
    for sequence in range(5):
        assert log.send(batch(sequence)).verdicts == [None]
    for _ in range(2):
        assert log.send(batch(3), batch(1)).verdicts == [
            Receipt(base_offset=6, append_time_us=5_003, checksum=1_003, record_count=2),
            Receipt(base_offset=2, append_time_us=5_001, checksum=1_001, record_count=2),
        ]
        log.restart()
    assert len(log.stored) == 5


def test_a_gap_names_the_last_sequence() -> None:
    """A batch that skips a number is refused with the last one known, and stays refused until the gap is filled."""
    log = Log()
    log.send(batch(0), batch(1))
    refused = log.send(batch(3)).refused
    assert isinstance(refused, SequenceGapError)
    assert refused.details == {"producer_id": 7, "last": 1, "found": 3}
    assert log.send(batch(2), batch(3)).verdicts == [None, None]


def test_the_rest_of_a_request_is_refused_with_its_first_refused_batch() -> None:
    """Nothing after a refused batch is judged, so that nothing overtakes it."""
    judgement = Log().send(batch(0), batch(2), batch(1))
    assert judgement.verdicts == [None]
    assert isinstance(judgement.refused, SequenceGapError)


def test_only_the_last_64_are_remembered() -> None:
    """The 64th batch back is known by its receipt, the 65th is refused as no next one."""
    log = Log()
    for sequence in range(100):
        log.send(batch(sequence))
    known = log.send(batch(36)).verdicts[0]
    assert known is not None
    assert known.base_offset == 72
    assert isinstance(log.send(batch(35)).refused, SequenceGapError)


def test_an_unknown_producer_must_begin_at_zero() -> None:
    """A producer that is not known here begins with sequence 0; any other number asks it to take a new id."""
    refused = Log().send(batch(5)).refused
    assert isinstance(refused, UnknownProducerError)
    assert refused.details == {"producer_id": 7}


def test_a_later_epoch_takes_over() -> None:
    """A later epoch begins at 0 and fences the older one, whose receipts are gone with it."""
    log = Log()
    log.send(batch(0), batch(1))
    refused = log.send(batch(2, epoch=3)).refused
    assert isinstance(refused, SequenceGapError)
    assert refused.details["last"] is None
    assert log.send(batch(0, epoch=3, checksum=9)).verdicts == [None]
    fenced = log.send(batch(2)).refused
    assert isinstance(fenced, ProducerFencedError)
    assert fenced.details == {"producer_id": 7, "epoch": 3}


def test_a_reused_sequence_is_told_from_a_repeat() -> None:
    """Two processes that share a producer after a fork never get each other's receipt."""
    log = Log()
    log.send(batch(0, checksum=1))
    assert isinstance(log.send(batch(0, checksum=2)).refused, SequenceReusedError)
    log.restart()
    assert isinstance(log.send(batch(0, checksum=2)).refused, SequenceReusedError)


def test_a_repeat_within_one_request_waits_for_the_first_copy() -> None:
    """A request that holds a batch twice is judged up to the second copy; once appended, that one is a repeat."""
    log = Log()
    judgement = log.send(batch(0), batch(0))
    assert (judgement.verdicts, judgement.refused) == ([None], None)
    assert log.send(batch(0)).verdicts == [Receipt(0, 5_000, 1_000, 2)]


def test_sequences_wrap() -> None:
    """After 2^32 - 1 comes 0 of the same session, and the batches before it are still known as repeats."""
    log = Log()
    for sequence in range(LAST - 1, LAST + 1):
        log.table.apply_batch(batch(sequence), NO_BYTES)
    assert log.send(batch(0)).verdicts == [None]
    assert log.send(batch(LAST), batch(0)).refused is None
    assert isinstance(log.send(batch(2)).refused, SequenceGapError)


def test_batches_without_a_producer_are_all_new() -> None:
    """Producer 0 is nobody: nothing of it is remembered."""
    log = Log()
    assert log.send(batch(5, producer=0), batch(5, producer=0)).verdicts == [None, None]
    assert log.table.count == 0


def test_nameless_producers_are_forgotten_after_15_minutes_named_ones_after_a_week() -> None:
    """Silence for longer than its time makes a producer unknown; any batch, a repeat too, counts as a sign of life."""
    log = Log()
    named = NAMED_PRODUCER | 1
    log.send(batch(0, producer=1), batch(0, producer=2), batch(0, producer=named))
    log.send(batch(0, producer=2), now_us=UNNAMED_EXPIRY_US)
    log.table.expire(UNNAMED_EXPIRY_US)
    assert log.table.count == 3
    log.table.expire(UNNAMED_EXPIRY_US + 1)
    assert isinstance(log.send(batch(1, producer=1)).refused, UnknownProducerError)
    assert log.send(batch(1, producer=2), now_us=UNNAMED_EXPIRY_US + 1).verdicts == [None]
    log.table.expire(NAMED_EXPIRY_US)
    assert log.send(batch(1, producer=named), now_us=NAMED_EXPIRY_US).verdicts == [None]
    log.table.expire(2 * NAMED_EXPIRY_US + 1)
    assert log.table.count == 0


def test_a_repeat_is_heard_of_and_hides_nobody() -> None:
    """A producer that repeats is not silent, a refused batch is no sign of life, and both leave others to expire."""
    log = Log()
    for producer in (1, 2, 3):
        log.send(batch(0, producer=producer), now_us=producer)
    log.send(batch(0, producer=1), now_us=UNNAMED_EXPIRY_US)
    log.send(batch(9, producer=3), now_us=UNNAMED_EXPIRY_US)
    log.table.expire(UNNAMED_EXPIRY_US + 4)
    assert log.table.count == 1
    assert log.send(batch(1, producer=1), now_us=UNNAMED_EXPIRY_US + 4).verdicts == [None]


def test_the_one_silent_for_longest_makes_room() -> None:
    """Beyond the limit the producer whose last batch is oldest is forgotten, and counted."""
    log = Log(ProducerTable(0, max_producers=2))
    log.send(batch(0, producer=1), batch(0, producer=2), batch(1, producer=1), batch(0, producer=3))
    assert log.table.forgotten == 1
    assert isinstance(log.send(batch(1, producer=2)).refused, UnknownProducerError)
    assert log.send(batch(2, producer=1)).verdicts == [None]


def test_a_name_fences_partitions_its_newer_session_never_used() -> None:
    """The current epoch of a name counts everywhere: the older session is refused, one never given out too."""
    named = NAMED_PRODUCER | 4
    log = Log(ProducerTable(0, named_epoch={named: 2}.get))
    assert isinstance(log.send(batch(0, producer=named, epoch=1)).refused, ProducerFencedError)
    assert isinstance(log.send(batch(0, producer=named, epoch=3)).refused, UnknownProducerError)
    assert log.send(batch(0, producer=named, epoch=2)).verdicts == [None]


def test_a_batch_lost_to_damage_leaves_a_hole_not_a_false_receipt() -> None:
    """When recovery skips a damaged batch the later ones are known, the lost one and those before it are not."""
    log = Log()
    for sequence in (0, 1, 3, 4):
        log.table.apply_batch(batch(sequence), NO_BYTES)
    assert log.send(batch(4), batch(3)).refused is None
    assert isinstance(log.send(batch(2)).refused, UnknownProducerError)
    assert log.send(batch(5)).verdicts == [None]


def test_a_new_data_directory_begins_elsewhere() -> None:
    """Directories made at different milliseconds count from places half a million ids apart."""
    assert first_id(1_700_000_000_001_000) - first_id(1_700_000_000_000_000) == 524_288
    assert first_id(1_700_000_000_000_000) < NAMED_PRODUCER


@dataclass
class Reference:
    """One producer's sessions as lists: what was stored under which number."""

    epoch: int
    stored: list[tuple[int, int]]
    """(checksum, base offset) by sequence."""


class ProducersMachine(RuleBasedStateMachine):
    """Sends, repeats, gaps, forks, epochs and restarts against the reference."""

    @initialize()
    def start(self) -> None:
        self.log = Log()
        self.reference: dict[int, Reference] = {}

    @rule(
        producer=st.integers(1, 3),
        epoch_step=st.sampled_from([0, 0, 0, 0, 1, -1]),
        back=st.sampled_from([0, 0, 0, 0, 1, 2, 3, 70, -1]),
        other=st.booleans(),
        count=st.integers(1, 3),
    )
    def send(self, producer: int, epoch_step: int, back: int, other: bool, count: int) -> None:
        known = self.reference.get(producer)
        epoch = max((known.epoch if known else 0) + epoch_step, 0)
        following = len(known.stored) if known and known.epoch == epoch else 0
        sequence = max(following - back, 0)
        for step in range(count):
            checksum = 100_000 * epoch + sequence + step + (10**9 if other else 0)
            header = batch(sequence + step, producer=producer, epoch=epoch, checksum=checksum)
            expected = self._expected(header)
            judgement = self.log.send(header)
            if expected is None:
                assert judgement.verdicts == [None]
                self._store(header)
            elif isinstance(expected, int):
                receipt = judgement.verdicts[0]
                assert receipt is not None
                assert receipt.base_offset == expected
            else:
                assert type(judgement.refused) is expected

    def _expected(self, header: BatchHeader) -> type[Exception] | int | None:
        """None for new, an offset for a repeat, or the error."""
        known = self.reference.get(header.producer_id)
        sequence = header.base_sequence
        if known is None:
            return None if sequence == 0 else UnknownProducerError
        if header.producer_epoch != known.epoch:
            if header.producer_epoch < known.epoch:
                return ProducerFencedError
            return None if sequence == 0 else SequenceGapError
        if sequence >= len(known.stored):
            return None if sequence == len(known.stored) else SequenceGapError
        if sequence < len(known.stored) - 64:
            return SequenceGapError
        checksum, offset = known.stored[sequence]
        return offset if checksum == header.checksum else SequenceReusedError

    def _store(self, header: BatchHeader) -> None:
        known = self.reference.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self.reference[header.producer_id] = Reference(header.producer_epoch, [])
        known.stored.append((header.checksum, self.log.stored[-1].base_offset))

    @rule(producer=st.integers(1, 3), count=st.integers(1, 80))
    def send_many(self, producer: int, count: int) -> None:
        for _ in range(count):
            self.send(producer, 0, 0, other=False, count=1)

    @rule(share=st.floats(0, 1))
    def restart(self, share: float) -> None:
        self.log.restart(round(len(self.log.stored) * share))

    @invariant()
    def nothing_is_stored_twice(self) -> None:
        keys = [(h.producer_id, h.producer_epoch, h.base_sequence) for h in self.log.stored]
        assert len(keys) == len(set(keys))


TestProducersMachine = ProducersMachine.TestCase
TestProducersMachine.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@pytest.mark.parametrize("producers", [0, 1, 100])
def test_a_snapshot_is_the_same_after_a_restart(producers: int) -> None:
    """Restoring a snapshot and taking one again gives the same bytes."""
    log = Log()
    for n in range(producers):
        for sequence in range(n + 1):
            log.send(batch(sequence, producer=n + 1))
    before = log.table.freeze()()
    log.restart()
    assert log.table.freeze()() == before


def test_a_snapshot_holds_what_was_known_when_it_was_taken() -> None:
    """Batches that come before it is packed are not in it, whether their receipts wrap or not; the table goes on."""
    log = Log()
    for sequence in range(70):
        log.send(batch(sequence, producer=1))
    log.send(batch(0, producer=2))
    expected = log.table.freeze()()
    first = log.table.freeze()
    log.send(batch(70, producer=1), batch(1, producer=2))
    log.send(batch(0, producer=3))
    second = log.table.freeze()
    log.send(batch(71, producer=1), batch(0, epoch=1, producer=2))
    assert first() == expected
    restored = ProducerTable(0)
    restored.restore(second())
    assert restored.count == 3
    log.table = restored
    assert log.send(batch(70, producer=1)).verdicts != [None]
