"""Drives one `Log` over a disk that can fail, and remembers what it was promised.

The driver keeps every batch it appended, in order, and the marks it was shown. `reopen` recovers the log
over what a crash left and holds it to the invariants: the recovered log is a prefix of the append order
that contains all that was promised, byte for byte; its fold is that of the same prefix; and it is itself
durable before it is served.
"""

from __future__ import annotations

import random
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

import xxhash

from tidelog.broker.errors import DiskFullError, LogFencedError, StorageError
from tidelog.broker.storage.files import Files
from tidelog.broker.storage.fold import Section
from tidelog.broker.storage.log import Log
from tidelog.broker.storage.settings import LogSettings
from tidelog.protocol.batch import BatchHeader, encode_batch, iterate_headers, verify

from .disk_model import Loss
from .faulty_files import FaultyFile, FaultyFiles
from .payloads import payload
from .power_loss import PowerLossFiles

FOLDER = "log"
LOG_ID = 1 << 32 | 1
KIB = 1024
SMALL = LogSettings(
    segment_bytes=24 * KIB,
    index_interval_bytes=1 * KIB,
    max_unsynced_bytes=64 * KIB,
    snapshot_interval_bytes=12 * KIB,
    snapshot_min_interval_us=0,
)
_EXTREMES = (
    (Loss.NOTHING_SURVIVES, Loss.NOTHING_SURVIVES),
    (Loss.EVERYTHING_SURVIVES, Loss.NOTHING_SURVIVES),
    (Loss.NOTHING_SURVIVES, Loss.EVERYTHING_SURVIVES),
)
"""Bytes and names of which only what was synced is left, and each without the other."""


@dataclass(frozen=True)
class Sent:
    """One batch that was appended: its offsets, and what the producer signed."""

    base_offset: int
    end_offset: int
    epoch: int
    body: bytes
    checksum: int


class ChainFold:
    """The smallest fold that notices any batch that is missing, repeated, changed or out of order."""

    _STATE = struct.Struct("<QQ")

    def __init__(self) -> None:
        self.records = 0
        self.chain = 0

    def section_ids(self) -> frozenset[int]:
        """One section, the first id that is free."""
        return frozenset({16})

    def apply_batch(self, header: BatchHeader, batch: memoryview) -> None:
        """Chain the batch's place and its checksum to what came before."""
        self.take(header.base_offset, header.record_count, header.checksum)

    def take(self, base_offset: int, records: int, checksum: int) -> None:
        """Chain one batch."""
        self.records += records
        self.chain = xxhash.xxh3_64_intdigest(struct.pack("<QQQ", self.chain, base_offset, checksum))

    def freeze(self) -> Callable[[], list[Section]]:
        """Both numbers."""
        packed = self._STATE.pack(self.records, self.chain)
        return lambda: [Section(16, 1, packed)]

    def restore(self, sections: Sequence[Section]) -> None:
        """Take both numbers back; no section is an empty log."""
        self.records, self.chain = self._STATE.unpack(sections[0].data) if sections else (0, 0)

    def state(self) -> tuple[int, int]:
        """Return what two equal folds have in common."""
        return self.records, self.chain


class LogDriver:
    """One log, its disk, and what is known about both from outside."""

    def __init__(self, seed: int, settings: LogSettings = SMALL, files: PowerLossFiles | None = None) -> None:
        self.rng = random.Random(seed)
        self.settings = settings
        self.files = files or PowerLossFiles()
        self.now_us = 1_700_000_000_000_000
        self.epoch = 0
        self.sequence = 0
        self.sent: list[Sent] = []
        self.promised_synced = 0
        self.promised_written = 0
        self.highest_start = 0
        self.expired_segments = 0
        self.refused = 0
        self.states = 0
        self.fold = ChainFold()
        self.files.make_folder(FOLDER)
        self.files.sync_folder("")
        self.faults: FaultyFiles | None = None
        self.log = self.open(self.files)

    @property
    def end(self) -> int:
        """The end of everything ever appended that was not taken back by a crash."""
        return self.sent[-1].end_offset if self.sent else 0

    # -------------------------------------------------------------------------------------------- use

    def append(self, batches: int = 1, size: int | None = None) -> None:
        """Append some batches in one run, unless the log is fenced."""
        run = bytearray()
        for _ in range(batches):
            run += self._new_batch(size)
        headers = [header for _position, header in iterate_headers(run)]
        bodies = [bytes(run[at + 56 : at + header.batch_length]) for at, header in iterate_headers(run)]
        base = self.log.end_offset
        # Known before it is appended: a crash within `append` may leave it behind.
        for header, body in zip(headers, bodies, strict=True):
            end = self.end + header.record_count
            self.sent.append(Sent(self.end, end, self.log.epoch, body, header.checksum))
        try:
            appended = self.log.append(run, headers, now_us=self.now_us)
        except (LogFencedError, DiskFullError, StorageError):
            del self.sent[-batches:]
            self.refused += 1
            self.note_marks()  # which finds out whether the log changed all the same
            return
        assert (appended.base_offset, appended.end_offset) == (base, self.end)
        self.note_marks()

    def _new_batch(self, size: int | None) -> bytearray:
        records = self.rng.choice((1, 1, 2, 7))
        if size is None:
            size = self.rng.choice((20, 100, 400, 900, 3000))
        values = [payload("driver", self.sequence + index, size // records) for index in range(records)]
        self.sequence += records
        return encode_batch(values, timestamp_us=self.now_us)

    def sync(self, during: Callable[[str, str], None] | None = None) -> None:
        """Run one round of the sync thread's work, calling `during` before each of its file operations."""
        task = self.log.begin_sync()
        if task is None:
            return
        with self._interrupted(during):
            error = task.run()
        self.log.finish_sync(task, error)
        self.note_marks()

    def upkeep(self, during: Callable[[str, str], None] | None = None) -> None:
        """Run one piece of the upkeep thread's work."""
        task = self.log.begin_upkeep(self.now_us, self.now_us)
        if task is None:
            return
        with self._interrupted(during):
            task.run()
        self.log.finish_upkeep(task)
        self.note_marks()

    @contextmanager
    def _interrupted(self, during: Callable[[str, str], None] | None) -> Iterator[None]:
        self.files.before_each = during
        try:
            yield
        finally:
            self.files.before_each = None

    def expire(self) -> None:
        """Run retention."""
        expired = self.log.expire(self.now_us)
        self.highest_start = max(self.highest_start, self.log.start_offset)
        if expired is not None:
            self.expired_segments += len(expired.segments)
            expired.run()

    def read_something(self) -> None:
        """Read the whole log as it is."""
        self.check_content(self.log, recent_only=False)

    def note_marks(self) -> None:
        """Remember the most that the log ever promised."""
        log = self.log
        assert log.start_offset <= log.synced_offset <= log.written_offset <= log.end_offset == self.end, repr(log)
        self.promised_synced = max(self.promised_synced, log.synced_offset)
        self.promised_written = max(self.promised_written, log.written_offset)

    # ------------------------------------------------------------------------------------ crash, recover

    def lose_power(self, *, pages: Loss | None = None, names: Loss | None = None) -> None:
        """Cut the power and recover over what the disk may hold then."""
        self.promised_written = self.promised_synced
        self.reopen(self.files.crash(self.rng, pages=pages, names=names))

    def kill(self) -> None:
        """Kill -9 the process and recover over all that it wrote."""
        self.reopen(self.files.kill())

    def reopen(self, files: PowerLossFiles) -> None:
        """Recover the log over these files, hold it to the invariants, and go on with it."""
        self.files = files
        self.faults = None
        self.adopt(self.check(files, self.promised_written))

    def adopt(self, log: Log) -> None:
        """Go on with a recovered log, all of which is durable."""
        assert log.end_offset >= self.promised_written
        self.log = log
        self.sent = [sent for sent in self.sent if sent.end_offset <= self.log.end_offset]
        self.promised_written = self.promised_synced = self.log.end_offset
        self.note_marks()

    def check_states(self, states: int) -> None:
        """Hold the recovery over what a crash now may leave to the invariants: all is there, the worst, some by lot."""
        self._try(PowerLossFiles(self.files.disk.copy()), self.promised_written)
        drawn = [(self.rng.choice(list(Loss)), self.rng.choice(list(Loss))) for _ in range(states)]
        for pages, names in [*_EXTREMES, *drawn]:
            files = PowerLossFiles(self.files.disk.after_power_loss(self.rng, pages, names))
            self._try(files, self.promised_synced)

    def _try(self, files: PowerLossFiles, least: int) -> None:
        """Check one state, and that the log which is recovered from it keeps its next promise too."""
        log = self.check(files, least, recent_only=True)
        run = encode_batch([payload("next", log.end_offset)], timestamp_us=self.now_us)
        end = log.append(run, [BatchHeader.read(run)], now_us=self.now_us).end_offset
        task = log.begin_sync()
        assert task is not None
        log.finish_sync(task, task.run())
        assert log.synced_offset == end
        nothing = Loss.NOTHING_SURVIVES
        again = self.open(PowerLossFiles(files.disk.after_power_loss(self.rng, nothing, nothing)))
        assert again.end_offset == end, f"{end} were synced after the recovery, {again.end_offset} survived"
        again.close(clean=False)

    def check(self, files: PowerLossFiles, least: int, *, recent_only: bool = False) -> Log:
        """Recover over these files and require a prefix that holds offsets below `least`, durable already."""
        log = self.open(files)
        fold = self.fold
        self.check_recovered(log, least)
        self.check_content(log, recent_only=recent_only)
        self._check_durable(files, log)
        self.fold = fold
        self.states += 1
        return log

    def reopen_with_faults(self) -> FaultyFiles:
        """Stop, and go on over a disk that faults can be put into."""
        self.log.close()
        self.promised_written = self.end
        self.reopen(self.files.kill())
        self.log.close(clean=False)
        self.faults = FaultyFiles(self.files)
        self.log = self.open(self.faults)
        return self.faults

    def open(self, files: Files) -> Log:
        """Recover the log over these files, in a new epoch."""
        self.epoch += 1
        self.fold = ChainFold()
        return Log.open(
            files,
            FOLDER,
            log_id=LOG_ID,
            settings=self.settings,
            epoch=self.epoch,
            now_us=self.now_us,
            fold=self.fold,
        )

    def check_recovered(self, log: Log, least: int) -> None:
        """A prefix of what was appended, with all that was promised, and nothing else."""
        end = log.end_offset
        assert least <= end <= self.end, f"promised {least}, recovered {end}, appended {self.end}"
        assert log.synced_offset == end, f"served up to {end} before it was durable beyond {log.synced_offset}"
        assert log.start_offset <= max(self.highest_start, 0), f"starts at {log.start_offset}"
        assert log.damaged == []
        expected = ChainFold()
        for sent in self.sent:
            if sent.end_offset <= end:
                expected.take(sent.base_offset, sent.end_offset - sent.base_offset, sent.checksum)
        assert self.fold.state() == expected.state()

    def _check_durable(self, files: PowerLossFiles, log: Log) -> None:
        """What is served after recovery survives a power loss that takes all that it may."""
        losses = [Loss.NOTHING_SURVIVES, *self.rng.choices(list(Loss), k=self.rng.random() < 0.3)]
        for loss in losses:
            again = self.open(PowerLossFiles(files.disk.after_power_loss(self.rng, loss, loss)))
            assert again.end_offset == log.end_offset, f"{loss}: {log.end_offset} were served before durable"
            self.check_content(again, recent_only=True)

    def check_content(self, log: Log, *, recent_only: bool) -> None:
        """Compare what can be read with what was sent; what lies further back was durable long before."""
        start = max(log.start_offset, log.end_offset - 50) if recent_only else log.start_offset
        place = bisect_right(self.sent, start, key=lambda sent: sent.end_offset)
        kept = [sent for sent in self.sent[place:] if sent.end_offset <= log.end_offset]
        max_bytes = self.rng.choice((1, 64 * KIB, 64 * KIB, 1024 * KIB))
        assert stored_batches(log, start, max_bytes) == [(sent.base_offset, sent.epoch, sent.body) for sent in kept]


def stored_batches(log: Log, offset: int, max_bytes: int) -> list[tuple[int, int, bytes]]:
    """Return (base offset, epoch, what the producer signed) of every batch from an offset on, all checksums checked."""
    found: list[tuple[int, int, bytes]] = []
    while offset < log.end_offset:
        read = log.read(offset, max_bytes=max_bytes, upto=log.end_offset)
        assert read.next_offset > offset
        for piece in read.slices:
            file = piece.file.inner if isinstance(piece.file, FaultyFile) else piece.file
            run = file.read_at(piece.position, piece.length)
            for at, header in iterate_headers(run):
                verify(run, at)
                found.append((header.base_offset, header.leader_epoch, run[at + 56 : at + header.batch_length]))
        offset = read.next_offset
    assert all(a[0] < b[0] for a, b in pairwise(found))
    return found
