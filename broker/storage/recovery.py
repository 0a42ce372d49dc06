"""Open logs after whatever happened to them.

Deciding (`replay`) reads only. What it decided is done in rounds that all logs of a start share: all tails
copied, one sync round, all renamed, then folders and marks. Recovery may be interrupted anywhere and starts
over: nothing is removed before what replaces it is durable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..errors import TidelogError, kept, storage_error
from .damage import Damage, DamagedRange
from .epochs import Epochs
from .files import File, Files
from .fold import Fold
from .inventory import ensure_folder, take_inventory
from .log_state import LogState
from .replay import Replay, Tail
from .roll import header_page
from .scan import Gap
from .segment import Segment
from .segments import Segments
from .settings import LogSettings
from .snapshot import KEPT, list_snapshots, load_newest
from .synced_mark import Mark, SyncedMark
from .tail_copy import TailCopy

FIRST_EPOCH = 1


@dataclass(frozen=True, slots=True)
class LogSpec:
    """Which log to open, and how."""

    folder: str
    log_id: int
    settings: LogSettings
    epoch: int | None = None
    fold: Fold | None = None
    title: str = ""
    """What the log is called in errors that users see; empty: its folder."""


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did. `duration_us` is filled in by whoever has a clock."""

    is_new: bool = False
    snapshot_offset: int | None = None
    scanned_bytes: int = 0
    copied_bytes: int = 0
    is_torn: bool = False  # an unacknowledged batch at the end was cut off
    has_completed_roll: bool = False
    damaged: list[DamagedRange] = field(default_factory=list[DamagedRange])
    notes: list[str] = field(default_factory=list[str])  # bad header copies, snapshots, mark slots
    duration_us: int = 0


class Recovery:
    """One log on its way to being open."""

    def __init__(self, files: Files, spec: LogSpec, now_us: int) -> None:
        self.report = RecoveryReport()
        self.new_segment: Segment | None = None
        self._files = files
        self._spec = spec
        self._now_us = now_us
        self._copy: TailCopy | None = None
        self._unplaced: str | None = None
        damage, epochs = Damage(), Epochs()
        segments = Segments(files, spec.folder, spec.settings, damage, title=spec.title)
        mark = SyncedMark(files, spec.folder)
        self._state = LogState(spec.log_id, FIRST_EPOCH, spec.fold, segments, damage, epochs, mark)

    def __repr__(self) -> str:
        return f"<Recovery of {self._spec.folder!r}>"

    @property
    def folder(self) -> str:
        """The log's folder."""
        return self._spec.folder

    @property
    def mark(self) -> SyncedMark:
        """The log's synced mark."""
        return self._state.mark

    def state_and_report(self) -> tuple[LogState, RecoveryReport]:
        """Return what the log is made of."""
        return self._state, self.report

    def abandon(self) -> None:
        """Let go of every file: the log could not be opened."""
        self._state.close()
        if self.new_segment is not None:
            self.new_segment.let_go()

    def decide(self) -> None:
        """Read everything that is needed, and write the new segment if there is to be one."""
        state, spec, report = self._state, self._spec, self.report
        report.is_new = not self._files.exists(spec.folder)
        ensure_folder(self._files, spec.folder)
        inventory = take_inventory(self._files, spec.folder, spec.log_id)
        state.segments.all = inventory.segments
        report.has_completed_roll = inventory.unplaced is not None
        self._unplaced = inventory.unplaced
        report.notes += inventory.bad_headers
        mark = state.mark.read()
        if state.mark.bad_slots:
            report.notes.append(f"{spec.folder}: {state.mark.bad_slots} bad slots in the synced mark")
        snapshot = load_newest(self._files, spec.folder, spec.log_id, self._refuse_snapshot)
        if snapshot is not None:
            report.snapshot_offset = snapshot.offset
            kept = (offset for offset in list_snapshots(self._files, spec.folder) if offset <= snapshot.offset)
            state.snapshots = [offset for offset in kept if offset not in state.bad_snapshots][:KEPT]
        window = max(inventory.window, spec.settings.max_unsynced_bytes)
        replayed = Replay(self._files, state, snapshot, mark, window).run()
        report.scanned_bytes, report.is_torn = replayed.scanned_bytes, replayed.is_torn
        report.damaged = state.damage.ranges
        state.epoch = max(state.epochs.last, spec.epoch or FIRST_EPOCH)
        if replayed.tail is not None:
            self._start_copy(replayed.tail, replayed.gaps)
        elif inventory.last_window < spec.settings.max_unsynced_bytes:
            self._renew_header()

    def _refuse_snapshot(self, offset: int, reason: str) -> None:
        self._state.bad_snapshots.add(offset)
        self.report.notes.append(f"{self._spec.folder}: snapshot {offset}: {reason}")

    def _start_copy(self, tail: Tail, gaps: list[Gap]) -> None:
        spec = self._spec
        self._copy = TailCopy(
            self._files, spec.folder, spec.log_id, spec.settings, tail, epoch=self._state.epoch, now_us=self._now_us
        )
        self.new_segment = self._copy.write(gaps)
        self.report.copied_bytes = self._copy.copied_bytes

    def _renew_header(self) -> None:
        """Say in the header page that from now on more may be unsynced than it says."""
        active = self._state.segments.active
        # In place: a torn page still has one of its two copies.
        active.opened.write_at(0, header_page(self._spec.log_id, active, self._spec.settings))
        active.opened.sync()

    def install(self) -> None:
        """Rename the new segment into place; its name and the mark's are synced by the round."""
        if self._copy is not None and self.new_segment is not None:
            self._copy.install(self.new_segment)
            self._state.segments.all.append(self.new_segment)
            self.mark.create()

    def write_mark(self) -> None:
        """Say in the mark that everything up to the end is durable, if it does not say so already."""
        active = self._state.segments.active
        value = Mark(active.base_offset, active.seed, active.end_offset, active.end_position)
        if self.mark.value != value:
            self.mark.write(value)
        if self._unplaced is not None:
            self._files.unlink(self._unplaced)  # its copy is in place


def recover_many(files: Files, specs: Sequence[LogSpec], now_us: int) -> list[Recovery | TidelogError]:
    """Recover many logs; one result a log."""
    results: list[Recovery | TidelogError] = [Recovery(files, spec, now_us) for spec in specs]

    def give_up(place: int, recovery: Recovery, error: TidelogError) -> None:
        results[place] = kept(error)
        recovery.abandon()

    def each(doing: str, step: Callable[[Recovery], None], *, only_copies: bool = False) -> None:
        for place, recovery in enumerate(results):
            if isinstance(recovery, Recovery) and (recovery.new_segment is not None or not only_copies):
                try:
                    step(recovery)
                except OSError as error:
                    give_up(place, recovery, storage_error(error, f"{doing} of {recovery.folder}"))
                except TidelogError as error:
                    give_up(place, recovery, error)

    def sync_all(doing: str, file_of: Callable[[Recovery], File | None]) -> None:
        found = [(p, r, f) for p, r in enumerate(results) if isinstance(r, Recovery) and (f := file_of(r)) is not None]
        failures = files.sync_many([file for _, _, file in found])
        for (place, recovery, _), failure in zip(found, failures, strict=True):
            if failure is not None:
                give_up(place, recovery, storage_error(kept(failure), f"{doing} of {recovery.folder}"))

    each("recovery", Recovery.decide)
    sync_all("the tail copy", lambda r: r.new_segment.opened if r.new_segment else None)
    each("the tail copy", Recovery.install, only_copies=True)
    # A log that makes no copy is named by its mark, which was written after its folder was synced.
    each("the tail copy", lambda r: files.sync_folder(r.folder), only_copies=True)
    each("the synced mark", Recovery.write_mark)
    sync_all("the synced mark", lambda r: r.mark.file if r.new_segment is not None else None)
    return results
