"""One log: messages, the broker's own facts, and later schedules and deliveries are four uses of this class.

    appended --(write_at)--> written --(sync thread)--> synced
    end_offset               written_offset             synced_offset

Synchronous and without a clock: time comes in as `now_us`, and whatever may wait for a disk is handed out as a
task (`begin_sync`, `begin_upkeep`, `begin_verify`, `expire`), run in a thread and handed back. A log has one
owner; none of its methods may run while another does. README.md has the flows and what a crash leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ...protocol.batch import BatchHeader
from ..errors import LogFencedError, TidelogError
from .files import Files
from .fold import Fold
from .log_state import LogState
from .readable_log import ReadableLog
from .recovery import LogSpec, Recovery, RecoveryReport, recover_many
from .retention import Expired, count_expired
from .sealed import Removable, SealedSegment
from .settings import LogSettings
from .snapshot_schedule import SnapshotSchedule
from .sync_round import SyncTask
from .synced_mark import Mark
from .upkeep import LogUpkeep, UpkeepTask
from .writer import Writer


@dataclass(frozen=True, slots=True)
class Appended:
    """Where batches went. `base_offsets` has one entry a batch."""

    base_offset: int
    end_offset: int
    append_time_us: int
    base_offsets: list[int]


class Log(ReadableLog):
    """An append-only log over segments in one folder."""

    def __init__(self, state: LogState, recovery: RecoveryReport) -> None:
        super().__init__(state)
        self.recovery = recovery
        self._epoch = state.epoch
        self._writer = Writer(state.segments, state.log_id, state.last_append_us)
        self._snapshots = SnapshotSchedule(state.segments, self._writer, state.epochs, state.fold, state.log_id)
        self._snapshots.kept, self._snapshots.bad = state.snapshots, state.bad_snapshots
        self._upkeep = LogUpkeep(state.segments, self._writer, state.mark, self._snapshots)
        self._segments.unstored += state.unstored
        self._synced_offset = state.segments.active.end_offset
        self._synced_bytes = 0
        self._sync: SyncTask | None = None
        self._fence: TidelogError | None = None
        self.held_segments = 0
        """Segments that retention would remove, had they not to be kept for the archive."""

    def __repr__(self) -> str:
        state = " fenced" if self._fence else ""
        return f"<Log {self.folder!r} offsets {self.start_offset}..{self.end_offset}{state}>"

    @classmethod
    def open(
        cls,
        files: Files,
        folder: str,
        *,
        log_id: int,
        settings: LogSettings,
        now_us: int,
        epoch: int | None = None,
        fold: Fold | None = None,
    ) -> "Log":
        """Open a log, recovering whatever the last run left; a new folder is a new log.

        Blocks. `epoch` is what batches are stamped with, by default the last one in the log. Raises
        UnsupportedError for what a later version wrote, StorageError and DiskFullError.
        """
        (opened,) = cls.open_many(files, [LogSpec(folder, log_id, settings, epoch, fold)], now_us=now_us)
        if isinstance(opened, TidelogError):
            raise opened
        return opened

    @classmethod
    def open_many(cls, files: Files, specs: Sequence[LogSpec], *, now_us: int) -> "list[Log | TidelogError]":
        """Open many logs whose tail copies share their sync rounds; one result a log."""
        recovered = recover_many(files, specs, now_us)
        return [cls(*r.state_and_report()) if isinstance(r, Recovery) else r for r in recovered]

    # --------------------------------------------------------------------------------------------- marks

    @property
    def epoch(self) -> int:
        """The epoch that appended batches carry."""
        return self._epoch

    @property
    def written_offset(self) -> int:
        """Everything below it survives kill -9; it waits at the end of a segment until the roll is proven."""
        rolls = self._writer.rolls
        return rolls[0].old.end_offset if rolls else self.end_offset

    @property
    def synced_offset(self) -> int:
        """Everything below it survives power loss."""
        return self._synced_offset

    @property
    def unsynced_bytes(self) -> int:
        """How many appended bytes no sync has covered yet."""
        return self._writer.appended_bytes - self._synced_bytes

    @property
    def last_append_us(self) -> int:
        """The append time of the last batch, 0 when there is none."""
        return self._writer.last_append_us

    @property
    def needs_sync(self) -> bool:
        """Whether `begin_sync` would have something to do once no task is out."""
        return self._fence is None and (self.unsynced_bytes > 0 or bool(self._writer.rolls))

    @property
    def is_rolling(self) -> bool:
        """Whether a roll waits for a sync: until then nothing in the new segment counts as written."""
        return bool(self._writer.rolls)

    @property
    def fenced(self) -> bool:
        """Whether a sync failed: the log takes no writes until it is opened anew; reads go on."""
        return self._fence is not None

    # ------------------------------------------------------------------------------------------- writing

    def append(self, batches: memoryview | bytearray, headers: Sequence[BatchHeader], *, now_us: int) -> Appended:
        """Stamp validated batches, which lie back to back in `batches`, in place and write them.

        Whatever it raises (LogFencedError, DiskFullError, BatchTooLargeError, StorageError), the log is as
        it was. A batch of 100 KB costs about what its pwrite does.
        """
        if self._fence is not None:
            raise LogFencedError(
                f"expected a writable log, found {self.title} fenced after a failed sync: {self._fence}"
            )
        data = memoryview(batches)
        placed = self._writer.append(data, headers, now_us=now_us, epoch=self._epoch, synced_upto=self._synced_offset)
        self._epochs.begin(self._epoch, placed[0].base_offset)
        fold = self._state.fold
        if fold is not None:
            for batch in placed:
                end = batch.at + batch.header.batch_length
                fold.apply_batch(BatchHeader.read(data, batch.at), data[batch.at : end])
        base_offsets = [batch.base_offset for batch in placed]
        return Appended(base_offsets[0], placed[-1].end_offset, self._writer.last_append_us, base_offsets)

    @property
    def segment_bytes(self) -> int:
        """How large segments are made from now on: no batch may be larger."""
        return self._segments.settings.segment_bytes

    def change_settings(self, settings: LogSettings) -> None:
        """Go on under other settings; another segment size holds from the next segment on."""
        self._segments.settings = settings

    def raise_epoch(self, epoch: int) -> None:
        """Stamp what is appended from now on with a higher epoch."""
        assert epoch >= self._epochs.last, f"epoch {epoch} is below {self._epochs.last}"
        self._epoch = epoch

    # ------------------------------------------------------------------------------------------- syncing

    def begin_sync(self) -> SyncTask | None:
        """Return the work that makes everything appended so far durable; None when there is none.

        One task at a time: None, too, while one is out. `sync_round.run_round` runs the tasks of many logs
        together.
        """
        if self._sync is not None or not self.needs_sync:
            return None
        active, rolls = self._segments.active, list(self._writer.rolls)
        self._sync = SyncTask(
            files=self._segments.files,
            first=rolls[0].old.opened if rolls else active.opened,
            rolls=rolls,
            last=active,
            offset=active.end_offset,
            appended_bytes=self._writer.appended_bytes,
            mark=self._state.mark,
            mark_value=Mark(active.base_offset, active.seed, active.end_offset, active.end_position),
        )
        return self._sync

    def finish_sync(self, task: SyncTask, error: TidelogError | None) -> None:
        """Take the work back: the marks move on, or the log is fenced for good."""
        assert task is self._sync, "a task that was not begun, or finished before, came back"
        self._sync = None
        if error is not None:
            self._fence = error
            return
        self._synced_offset = max(self._synced_offset, task.offset)
        self._reader.note_boundary(task.last, task.offset, task.mark_value.position)
        self._synced_bytes = task.appended_bytes
        for roll in task.rolls:
            self._writer.rolls.remove(roll)
            roll.new.path = roll.final_path
            if roll.old.is_sealed:
                self._segments.unstored.append(roll.old)
            else:
                roll.old.let_go()  # it was empty, and the new file took its name
            self._snapshots.is_due = True

    def begin_upkeep(self, now_us: int, monotonic_us: int) -> UpkeepTask | None:
        """Return what should be done beside the appends now; see `upkeep`. Ages go by `now_us`, intervals do not."""
        if self._fence is not None:
            return self._upkeep.begin_fenced(monotonic_us)
        if not self._writer.rolls:
            self._writer.roll_if_aged(now_us, self._epoch)
        return self._upkeep.begin(now_us, monotonic_us, self._synced_bytes)

    @property
    def upkeep_waits(self) -> bool:
        """Whether `begin_upkeep` is to be asked again although nothing happens: it was too early for something."""
        return self._state.mark.is_dirty or (self._fence is None and self._upkeep.waits)

    def finish_upkeep(self, task: UpkeepTask) -> None:
        """Take upkeep work back; what failed is tried again."""
        self._upkeep.finish(task)

    # ----------------------------------------------------------------------------- ---- retention, end

    @property
    def _proven_sealed(self) -> int:
        """How many of the first segments are sealed and, what they hold and their names, proven to be on the disk."""
        rolls = self._writer.rolls
        return self._segments.all.index(rolls[0].old) if rolls else len(self._segments.all) - 1

    def sealed_segments(self) -> list[SealedSegment]:
        """Return the segments that will not change any more, oldest first, as they can be copied."""
        return [segment.sealed() for segment in self._segments.all[: self._proven_sealed]]

    def expire(self, now_us: int, *, age_allowed: bool = True, may_remove: Removable | None = None) -> Expired | None:
        """Drop the sealed segments that retention no longer keeps; the caller runs what comes back.

        `age_allowed=False` holds back removal by age: after a start or a step of the clock nobody knows how
        old things are. The first that `may_remove` refuses is kept with all behind it: it is not archived yet.
        """
        count = excess = count_expired(self._segments, self._proven_sealed, now_us, age_allowed=age_allowed)
        if may_remove is not None:
            expired = self._segments.all[:excess]
            count = next((at for at, one in enumerate(expired) if not may_remove(one.sealed())), excess)
        self.held_segments = excess - count
        if self._state.fold is not None and count:
            covered = self._snapshots.kept[0] if self._snapshots.kept else 0
            uncovered = [s for s in self._segments.all[:count] if s.end_offset > covered]
            # The fold could not be rebuilt without these: a snapshot first, then they go.
            self._snapshots.is_wanted = bool(uncovered)
            count -= len(uncovered)
        if count == 0:
            return None
        gone = [self._segments.remove_oldest() for _ in range(count)]
        self._damage.forget_before(self.start_offset)
        removed = sum(s.end_position for s in gone if s.size is not None)
        return Expired(self._segments.files, self.folder, gone, self.start_offset, removed)

    def close(self, *, clean: bool = True) -> None:
        """Stop; a clean stop syncs, and takes a snapshot so that the next start has nothing to read.

        Blocks. No task may be out.
        """
        assert self._sync is None, "a sync is out"
        if clean and self._fence is None:
            self._finish_clean()
        self._upkeep.close()
        self._writer.close()
        self._state.close()

    def _finish_clean(self) -> None:
        while (task := self.begin_sync()) is not None:
            self.finish_sync(task, task.run())
        if self._fence is None:
            self._upkeep.finish_clean()
