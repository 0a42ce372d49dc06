"""Group commit: which logs are to be synced now, and who waits for it.

Theory of operation. An append makes a log dirty; whoever must know when it is durable waits here. The edge is woken
when there is something to do, takes a round of tasks (`next_round`), runs it in its sync thread and brings the
results back (`round_done`). One round runs at a time; all that was appended meanwhile shares the next one, so one
sync serves every producer that waits.

A log is taken into a round when somebody waits for it, when its roll is not finished (nothing in the new segment may
be seen before), when it has been dirty for `SYNC_BEHIND_US`, or when half of `max_unsynced_bytes` waits for the disk.

    clean --append--> dirty --due, wanted or pressed--> in round --ok--> clean, or dirty by what came meanwhile
                                                                 --failed--> fenced: every waiter gets the error

Pure: no thread, no clock, no file. Callbacks are called after the state is consistent; they must not raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeAlias, TypeVar

from ..protocol.durability import Durability
from ..protocol.errors import LogFencedError, TidelogError
from ..protocol.limits import MIB

MAX_UNSYNCED_BYTES = 256 * MIB
"""What all logs together may hold unsynced: it bounds how far a recovery must look behind a torn batch."""

SYNC_BEHIND_US = 1_000_000
"""How long bytes that nobody waits for stay unsynced."""

Done: TypeAlias = Callable[[TidelogError | None], None]
TaskT = TypeVar("TaskT")


class CommitLog(Protocol[TaskT]):
    """What is asked of a log; `storage.log.Log` is one."""

    @property
    def end_offset(self) -> int:
        """One past the last appended record."""
        ...

    @property
    def written_offset(self) -> int:
        """Below this everything survives kill -9."""
        ...

    @property
    def synced_offset(self) -> int:
        """Below this everything survives power loss."""
        ...

    @property
    def unsynced_bytes(self) -> int:
        """Bytes appended past the proven sync."""
        ...

    @property
    def needs_sync(self) -> bool:
        """Whether there are such bytes, or a roll is not finished."""
        ...

    @property
    def fenced(self) -> bool:
        """Whether a sync failed, so that nothing is written any more."""
        ...

    def begin_sync(self) -> TaskT | None:
        """Return what a thread must do to make all of it durable, or None."""
        ...

    def finish_sync(self, task: TaskT, error: TidelogError | None) -> None:
        """Advance the marks, or fence."""
        ...


def is_reached(log: CommitLog[TaskT], offset: int, word: Durability) -> bool:
    """Whether all below `offset` is as durable as `word` says."""
    if word is Durability.SYNCED:
        return log.synced_offset >= offset
    return word is Durability.RECEIVED or log.written_offset >= offset


class _Waits:
    """Who waits for one mark of one log, lowest offset first."""

    __slots__ = ("_count", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Done]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, offset: int, done: Done) -> None:
        self._count += 1
        heappush(self._heap, (offset, self._count, done))

    def reached(self, mark: int) -> list[Done]:
        found: list[Done] = []
        while self._heap and self._heap[0][0] <= mark:
            found.append(heappop(self._heap)[2])
        return found


class _Member(Generic[TaskT]):
    """One log and those who wait for it."""

    __slots__ = ("cause", "counted_bytes", "dirty_since_us", "in_round", "log", "on_progress", "on_removed", "waits")

    def __init__(self, log: CommitLog[TaskT], on_progress: Callable[[], None]) -> None:
        self.log = log
        self.on_progress = on_progress
        self.waits = {Durability.WRITTEN: _Waits(), Durability.SYNCED: _Waits()}
        self.dirty_since_us: int | None = None
        self.counted_bytes = 0
        self.in_round = False
        self.cause: TidelogError | None = None
        self.on_removed: Callable[[], None] | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits, or a roll must be finished."""
        log = self.log
        return not log.fenced and (any(self.waits.values()) or log.written_offset < log.end_offset)

    def take_reached(self) -> list[Done]:
        """Take those whose mark is reached out of the waits."""
        written, synced = self.log.written_offset, self.log.synced_offset
        return self.waits[Durability.WRITTEN].reached(written) + self.waits[Durability.SYNCED].reached(synced)

    def take_all(self) -> list[Done]:
        """Take everybody out."""
        return [done for waits in self.waits.values() for done in waits.reached(1 << 63)]


@dataclass(frozen=True, slots=True)
class CommitStatistics:
    """Counters and gauges of group commit."""

    unsynced_bytes: int
    dirty_logs: int
    waiting: int
    rounds: int
    synced_logs: int
    failed_syncs: int


class GroupCommit(Generic[TaskT]):
    """The syncs of all logs of one broker."""

    def __init__(
        self,
        *,
        max_unsynced_bytes: int = MAX_UNSYNCED_BYTES,
        sync_behind_us: int = SYNC_BEHIND_US,
    ) -> None:
        self.max_unsynced_bytes = max_unsynced_bytes
        self.wake: Callable[[], None] = _nobody
        """Called when `next_round` has something to give at once; the edge sets it."""
        self._sync_behind_us = sync_behind_us
        self._members: dict[CommitLog[TaskT], _Member[TaskT]] = {}
        self._wanted: dict[_Member[TaskT], None] = {}
        self._dirty: dict[_Member[TaskT], None] = {}
        self._round: list[tuple[_Member[TaskT], TaskT]] = []
        self._round_began_us = 0
        self._unsynced_bytes = 0
        self._room_waiters: dict[Callable[[], None], int] = {}
        self._rounds = self._synced_logs = self._failed_syncs = 0

    def __repr__(self) -> str:
        return f"<GroupCommit {self.statistics()}>"

    # -- members -------------------------------------------------------------------------------------------------

    def add(self, log: CommitLog[TaskT], on_progress: Callable[[], None]) -> None:
        """Take a log in; `on_progress` is called when one of its marks may have advanced, or it was fenced."""
        self._members[log] = _Member(log, on_progress)

    def remove(self, log: CommitLog[TaskT], error: TidelogError, on_removed: Callable[[], None]) -> None:
        """Let a log go: waiters get `error`; `on_removed` is called once no thread works on it any more."""
        member = self._members.pop(log)
        self._wanted.pop(member, None)
        self._dirty.pop(member, None)
        self._unsynced_bytes -= member.counted_bytes
        member.counted_bytes = 0
        if member.in_round:
            member.on_removed = on_removed
        for done in member.take_all():
            done(error)
        if not member.in_round:
            on_removed()

    # -- appends and those who wait ------------------------------------------------------------------------------

    def appended(self, log: CommitLog[TaskT], now_us: int) -> None:
        """Note an append; `now_us` is monotonic. Nothing happens for a log that was removed."""
        member = self._members.get(log)
        if member is None:
            return
        unsynced_bytes = log.unsynced_bytes
        self._unsynced_bytes += unsynced_bytes - member.counted_bytes
        member.counted_bytes = unsynced_bytes
        if member.dirty_since_us is None:
            member.dirty_since_us = now_us
            self._dirty[member] = None
        if log.written_offset < log.end_offset:
            self._want(member)
        elif self._is_pressed and not self._round:
            self.wake()

    def wait(self, log: CommitLog[TaskT], offset: int, word: Durability, done: Done) -> None:
        """Call `done(None)` once all below `offset` is as durable as `word` says, `done(error)` if it cannot be.

        At once where it is already so.
        """
        assert offset <= log.end_offset, f"expected an appended offset up to {log.end_offset}, found {offset}"
        member = self._members.get(log)
        if is_reached(log, offset, word):
            done(None)
        elif log.fenced or member is None:
            done(fenced_error(member.cause if member else None))
        else:
            member.waits[word].add(offset, done)
            self._want(member)

    @property
    def unsynced_bytes(self) -> int:
        """Bytes of all logs that wait for the disk; those of fenced logs do not."""
        return self._unsynced_bytes

    def has_room(self, size: int) -> bool:
        """Whether `size` more bytes may be appended now: they fit, and nobody waits for room already."""
        return not self._room_waiters and self._fits(size)

    def _fits(self, size: int) -> bool:
        return self._unsynced_bytes + size <= self.max_unsynced_bytes

    def on_room(self, size: int, take: Callable[[], None]) -> None:
        """Call `take` once, when there is room for `size` bytes and those who asked before have had theirs.

        Small ones that would fit sooner wait behind a large one: else it might wait for ever.
        """
        self._room_waiters.setdefault(take, size)
        if not self._round:
            self.wake()

    def off_room(self, take: Callable[[], None]) -> None:
        """Do not call `take` any more; nothing happens when it does not wait."""
        self._room_waiters.pop(take, None)

    # -- rounds --------------------------------------------------------------------------------------------------

    def next_due_us(self) -> int | None:
        """Return when the longest dirty log is to be synced behind its writer, or None; monotonic."""
        oldest = next(iter(self._dirty), None)
        if self._round or oldest is None or oldest.dirty_since_us is None:
            return None
        return oldest.dirty_since_us + self._sync_behind_us

    def next_round(self, now_us: int) -> list[TaskT]:
        """Return the tasks to run now, empty when there is nothing to do or a round is running."""
        if self._round:
            return []
        wanted, self._wanted = self._wanted, {}
        if self._is_pressed or self._room_waiters:
            wanted |= self._dirty
        else:
            wanted |= dict.fromkeys(self._due(now_us))
        for member in wanted:
            task = member.log.begin_sync()
            if task is not None:
                member.in_round = True
                self._round.append((member, task))
        self._round_began_us = now_us
        if not self._round and self._room_waiters:
            self._give_room()
        return [task for _member, task in self._round]

    def round_done(self, errors: Sequence[TidelogError | None]) -> None:
        """Take the results of the running round, one per task in its order, and tell all who waited."""
        finished, self._round = self._round, []
        assert len(errors) == len(finished), f"expected {len(finished)} results, found {len(errors)}"
        calls: list[Callable[[], None]] = []
        for (member, task), error in zip(finished, errors, strict=True):
            member.in_round = False
            member.log.finish_sync(task, error)
            member.cause = error or member.cause
            self._synced_logs += 1
            self._failed_syncs += error is not None
            if member.on_removed is not None:
                calls.append(member.on_removed)
            else:
                calls += self._settle(member)
        self._rounds += 1
        for call in calls:
            call()
        self._give_room()
        if self._wanted or self._is_pressed or self._room_waiters:
            self.wake()

    def progress(self, log: CommitLog[TaskT]) -> None:
        """Tell those who wait that a mark of a log advanced outside of a round."""
        for call in self._settle(self._members[log]):
            call()

    def statistics(self) -> CommitStatistics:
        """Return counters and gauges."""
        waiting = sum(len(waits) for member in self._members.values() for waits in member.waits.values())
        return CommitStatistics(
            self._unsynced_bytes, len(self._dirty), waiting, self._rounds, self._synced_logs, self._failed_syncs
        )

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def _is_pressed(self) -> bool:
        return self._unsynced_bytes * 2 > self.max_unsynced_bytes

    def _want(self, member: _Member[TaskT]) -> None:
        if member not in self._wanted:
            self._wanted[member] = None
            if not self._round:
                self.wake()

    def _due(self, now_us: int) -> list[_Member[TaskT]]:
        due: list[_Member[TaskT]] = []
        for member in self._dirty:
            assert member.dirty_since_us is not None
            if member.dirty_since_us + self._sync_behind_us > now_us:
                break
            due.append(member)
        return due

    def _settle(self, member: _Member[TaskT]) -> list[Callable[[], None]]:
        """Bring the books of one log up to its marks; return the calls to make."""
        log = member.log
        unsynced_bytes = 0 if log.fenced else log.unsynced_bytes
        self._unsynced_bytes += unsynced_bytes - member.counted_bytes
        member.counted_bytes = unsynced_bytes
        self._dirty.pop(member, None)
        if log.needs_sync:
            member.dirty_since_us = self._round_began_us
            self._dirty[member] = None
        else:
            member.dirty_since_us = None
        reached = member.take_reached()
        calls: list[Callable[[], None]] = [_call(done, None) for done in reached]
        if log.fenced:
            self._wanted.pop(member, None)
            calls += [_call(done, fenced_error(member.cause)) for done in member.take_all()]
        elif member.is_wanted:
            self._wanted[member] = None
        calls.append(partial(self._tell, member))
        return calls

    def _tell(self, member: _Member[TaskT]) -> None:
        """Say that a log progressed, unless one who was called before let it go: it may be closed by now."""
        if self._members.get(member.log) is member:
            member.on_progress()

    def _give_room(self) -> None:
        while self._room_waiters:
            take, size = next(iter(self._room_waiters.items()))
            if not self._fits(size):
                return
            del self._room_waiters[take]
            take()


def fenced_error(cause: TidelogError | None = None) -> LogFencedError:
    """Return the error of a log whose sync failed."""
    why = f" ({cause.message})" if cause else ""
    return LogFencedError(f"expected a log that takes writes, found one fenced because a sync of it failed{why}")


def _nobody() -> None:
    """Stand in until the edge says whom to wake."""


def _call(done: Done, error: TidelogError | None) -> Callable[[], None]:
    return lambda: done(error)
