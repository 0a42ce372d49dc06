"""What a log needs done beside its appends, none of it in anybody's way: a failed step is tried again later.

    discard      prepared segments that are of no use: of another size than segments have now, or one too many
    prepare      the next segment, once the active one is more than half full
    reserve      disk space ahead of the writer, in steps of 1 MiB doubling to 16
    store        the index of a sealed segment
    snapshot     when due, once the log is synced up to it
    mark         sync the file `synced`, at most once a second

A task is taken on the event loop, run in a thread, and handed back on the loop. Intervals are of a clock that never
steps; the wall clock, which may stand still, only says how old a segment is.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from ..errors import kept
from .files import File, Files
from .layout import index_paths, lanes_path
from .roll import FIRST_RESERVATION, LARGEST_RESERVATION, prepare_file
from .segment import Segment
from .segments import Segments
from .settings import SECOND_US
from .snapshot_schedule import SnapshotSchedule
from .synced_mark import SyncedMark
from .writer import Writer


@dataclass(slots=True)
class _Step:
    name: str
    run: Callable[[], None]  # in a thread
    done: Callable[[bool], None]  # on the loop: whether it worked


@dataclass(slots=True)
class UpkeepTask:
    """Work for the upkeep thread. `errors` says afterwards what did not work."""

    steps: list[_Step]
    errors: list[OSError] = field(default_factory=list[OSError])
    failed: set[str] = field(default_factory=set[str])

    def run(self) -> None:
        """Do every step; a failed one does not keep the others."""
        for step in self.steps:
            try:
                step.run()
            except OSError as error:
                self.errors.append(kept(error))
                self.failed.add(step.name)


class LogUpkeep:
    """Decides what is to be done for one log."""

    def __init__(self, segments: Segments, writer: Writer, mark: SyncedMark, snapshots: SnapshotSchedule) -> None:
        self._segments = segments
        self._writer = writer
        self._mark = mark
        self._snapshots = snapshots
        self._mark_synced_us: int | None = None
        self._task: UpkeepTask | None = None
        self._useless: list[File] = []

    def __repr__(self) -> str:
        return f"<LogUpkeep of {self._segments!r}, {len(self._segments.unstored)} indexes to store>"

    @property
    def _files(self) -> Files:
        return self._segments.files

    @property
    def waits(self) -> bool:
        """Whether something is to be done that it was too early for, or that a reader left behind."""
        return self._mark.is_dirty or self._snapshots.waits or bool(self._segments.unstored)

    def begin(self, now_us: int, monotonic_us: int, synced_bytes: int) -> UpkeepTask | None:
        """Return what is to be done now; None when nothing is, or when a task is still out."""
        if self._task is not None:
            return None
        steps = [*self._discard(), *self._prepare(now_us), *self._reserve(), *self._store()]
        return self._begin([*steps, *self._snapshot(monotonic_us, synced_bytes), *self._sync_mark(monotonic_us)])

    def begin_fenced(self, monotonic_us: int) -> UpkeepTask | None:
        """As `begin` for a fenced log: only the mark, which still says what was proven before, is made durable."""
        return None if self._task is not None else self._begin(self._sync_mark(monotonic_us))

    def _begin(self, steps: list[_Step]) -> UpkeepTask | None:
        self._task = UpkeepTask(steps) if steps else None
        return self._task

    def finish(self, task: UpkeepTask) -> None:
        """Take a task back."""
        assert task is self._task, "a task that was not begun, or finished before, came back"
        self._task = None
        for step in task.steps:
            step.done(step.name not in task.failed)

    def finish_clean(self) -> None:
        """Do at once what a clean stop leaves behind: a snapshot of everything, the mark, the indexes.

        What fails costs the next start some reading, no more, and must not keep the broker from stopping.
        """
        steps: list[Callable[[], None]] = [self._snapshots.write_now, *(step.run for step in self._store())]
        if self._mark.is_dirty:
            steps.append(self._mark.sync)
        prepared = [] if self._writer.prepared is None else [self._writer.prepared]
        steps += [partial(self._files.unlink, file.path) for file in (*prepared, *self._useless)]
        for step in steps:
            with suppress(OSError):
                step()

    def close(self) -> None:
        """Close what is made ready for nobody any more."""
        for file in self._useless:
            file.close()

    def _discard(self) -> list[_Step]:
        misfit = self._writer.take_misfit()
        if misfit is not None:
            self._useless.append(misfit)
        return [self._discard_file(file) for file in self._useless]

    def _discard_file(self, file: File) -> _Step:
        def run() -> None:
            file.close()
            self._files.unlink(file.path)

        def done(worked: bool) -> None:
            if worked:
                self._useless.remove(file)

        return _Step(f"discard {file.path}", run, done)

    def _prepare(self, now_us: int) -> list[_Step]:
        active = self._segments.active
        is_needed = active.end_position * 2 > active.capacity or self._writer.is_aged(now_us)
        if self._writer.prepared is not None or not is_needed:
            return []
        path, size = self._writer.new_path(), self._segments.settings.segment_bytes
        made: list[File] = []

        def done(worked: bool) -> None:
            if worked:
                assert self._writer.prepared is None, "a writer that cannot wait makes a file and uses it at once"
                self._writer.prepared = made[0]

        return [_Step("prepare", lambda: made.append(prepare_file(self._files, path, size)), done)]

    def _reserve(self) -> list[_Step]:
        active = self._segments.active
        step = active.reserve_step or FIRST_RESERVATION
        is_enough = active.reserved - active.end_position >= step // 4 or active.reserved >= active.capacity
        if is_enough or not active.has_batches:
            return []
        upto = min(max(active.reserved, active.end_position) + step, active.capacity)
        file = active.opened

        def done(worked: bool) -> None:
            if worked:
                active.reserved, active.reserve_step = upto, min(step * 2, LARGEST_RESERVATION)

        return [_Step("reserve", lambda: file.reserve(upto), done)]

    def _store(self) -> list[_Step]:
        # The index of a damaged segment stays in memory: what is stored does not tell where the gaps are.
        unstored = self._segments.unstored
        unstored[:] = [segment for segment in unstored if not segment.gaps]
        return [self._store_index(segment) for segment in unstored]

    def _store_index(self, segment: Segment) -> _Step:
        index = segment.index
        assert index is not None, f"{segment!r} was unloaded before its index was stored"
        offsets_path, times_path = index_paths(self._segments.folder, segment.base_offset)
        lanes, path = segment.lanes, lanes_path(self._segments.folder, segment.base_offset)

        def run() -> None:
            self._files.save_array(offsets_path, index.offsets_array(), segment.seed)
            self._files.save_array(times_path, index.times_array(), segment.seed)
            if lanes is not None and lanes.is_mixed:
                self._files.save_array(path, lanes.stored(), segment.seed)

        def done(worked: bool) -> None:
            # Made anew meanwhile, it is stored again.
            if worked and segment.index is index and segment in self._segments.unstored:
                segment.is_index_stored = True
                self._segments.unstored.remove(segment)

        return _Step(f"store {segment.base_offset}", run, done)

    def _snapshot(self, monotonic_us: int, synced_bytes: int) -> list[_Step]:
        write = self._snapshots.begin(monotonic_us, synced_bytes)
        return [] if write is None else [_Step("snapshot", write, self._snapshots.finish)]

    def _sync_mark(self, monotonic_us: int) -> list[_Step]:
        last_us = self._mark_synced_us
        if not self._mark.is_dirty or (last_us is not None and monotonic_us - last_us < SECOND_US):
            return []
        self._mark_synced_us = monotonic_us
        # If it fails, the mark is given up: the next recovery reads a little more.
        return [_Step("mark", self._mark.sync, lambda _worked: None)]
