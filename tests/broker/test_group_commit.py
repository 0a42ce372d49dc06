"""Group commit: one sync serves everybody, nobody is told too early, a failed sync is final."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidelog.broker.group_commit import GroupCommit
from tidelog.protocol.durability import Durability
from tidelog.protocol.errors import LogFencedError, StorageError, TidelogError, UnknownTopicIdError

SECOND = 1_000_000
GONE = UnknownTopicIdError("gone")


class FakeLog:
    """A log of one-byte records whose syncs are counted; `hold_written` is an unfinished roll."""

    def __init__(self) -> None:
        self.end_offset = 0
        self.synced_offset = 0
        self.fenced = False
        self.syncs = 0
        self.hold_written: int | None = None

    @property
    def written_offset(self) -> int:
        return self.end_offset if self.hold_written is None else self.hold_written

    @property
    def unsynced_bytes(self) -> int:
        return self.end_offset - self.synced_offset

    @property
    def needs_sync(self) -> bool:
        return not self.fenced and self.unsynced_bytes > 0

    def begin_sync(self) -> int | None:
        return self.end_offset if self.unsynced_bytes else None

    def finish_sync(self, task: int, error: TidelogError | None) -> None:
        self.syncs += 1
        if error is not None:
            self.fenced = True
            return
        self.synced_offset = task
        self.hold_written = None


class Rig:
    """Group commit over fake logs, with what was called back."""

    def __init__(self, logs: int = 1, max_unsynced_bytes: int = 1_000) -> None:
        self.commit: GroupCommit[int] = GroupCommit(max_unsynced_bytes=max_unsynced_bytes)
        self.wakes = 0
        self.progress = 0
        self.now_us = 0
        self.answers: list[tuple[str, TidelogError | None]] = []
        self.logs = [FakeLog() for _ in range(logs)]
        self.commit.wake = self._wake
        for log in self.logs:
            self.commit.add(log, self._progressed)

    def _wake(self) -> None:
        self.wakes += 1

    def _progressed(self) -> None:
        self.progress += 1

    def append(self, size: int = 1, log: int = 0) -> int:
        self.logs[log].end_offset += size
        self.commit.appended(self.logs[log], self.now_us)
        return self.logs[log].end_offset

    def wait(self, name: str, offset: int, word: Durability = Durability.SYNCED, log: int = 0) -> None:
        self.commit.wait(self.logs[log], offset, word, lambda error: self.answers.append((name, error)))

    def round(self, error: TidelogError | None = None) -> int:
        tasks = self.commit.next_round(self.now_us)
        self.commit.round_done([error for _ in tasks])
        return len(tasks)

    @property
    def names(self) -> list[str]:
        return [name for name, _error in self.answers]


def test_one_sync_serves_every_producer_that_waits() -> None:
    """Ten producers that wait for the same log are all answered by one sync, in the order of their offsets."""
    rig = Rig()
    for n in range(10):
        rig.wait(f"p{n}", rig.append())
    assert (rig.wakes, rig.answers) == (1, [])
    assert rig.round() == 1
    assert rig.names == [f"p{n}" for n in range(10)]
    assert rig.logs[0].syncs == 1
    assert rig.progress == 1
    assert rig.commit.statistics().unsynced_bytes == 0


def test_what_comes_during_a_round_waits_for_the_next() -> None:
    """A batch appended while a sync runs is not acknowledged by that sync."""
    rig = Rig()
    rig.wait("first", rig.append())
    assert rig.commit.next_round(0) == [1]
    rig.wait("second", rig.append())
    assert rig.commit.next_round(0) == []
    rig.commit.round_done([None])
    assert rig.names == ["first"]
    assert rig.wakes == 2
    assert rig.commit.next_round(0) == [2]
    rig.commit.round_done([None])
    assert rig.names == ["first", "second"]


def test_nobody_who_has_what_it_asks_waits() -> None:
    """A received or written acknowledgement comes at once where the mark is there, a synced one after the sync."""
    rig = Rig()
    offset = rig.append()
    rig.wait("received", offset, Durability.RECEIVED)
    rig.wait("written", offset, Durability.WRITTEN)
    rig.wait("synced", offset)
    assert rig.names == ["received", "written"]
    rig.round()
    rig.wait("again", offset)
    assert rig.names == ["received", "written", "synced", "again"]


def test_written_waits_for_an_unfinished_roll() -> None:
    """What lies in a new segment is `written` only when its roll is finished, which starts without anybody waiting."""
    rig = Rig()
    rig.append()
    rig.logs[0].hold_written = 1
    offset = rig.append()
    assert rig.wakes == 1
    rig.wait("written", offset, Durability.WRITTEN)
    assert rig.names == []
    assert rig.round() == 1
    assert rig.names == ["written"]


def test_dirty_logs_are_synced_a_second_behind_the_writer() -> None:
    """A log nobody waits for is synced one second after its first unsynced append, not before and not later."""
    rig = Rig(logs=2)
    rig.append(log=0)
    rig.now_us = SECOND // 2
    rig.append(log=0)
    rig.append(log=1)
    assert rig.commit.next_due_us() == SECOND
    rig.now_us = SECOND - 1
    assert rig.round() == 0
    rig.now_us = SECOND
    assert rig.round() == 1
    assert [log.syncs for log in rig.logs] == [1, 0]
    assert rig.commit.next_due_us() == SECOND + SECOND // 2
    assert rig.wakes == 0


def test_a_round_takes_only_logs_that_are_wanted_or_due() -> None:
    """A producer that waits for one log does not pay for the sync of others."""
    rig = Rig(logs=3)
    for log in range(3):
        rig.append(log=log)
    rig.wait("p", 1, log=1)
    assert rig.round() == 1
    assert [log.syncs for log in rig.logs] == [0, 1, 0]


def test_a_failed_sync_is_final_for_its_log_alone() -> None:
    """After a failed sync everyone who waits for that log has an error, later ones at once; other logs go on."""
    rig = Rig(logs=2)
    rig.wait("a", rig.append(log=0), log=0)
    rig.wait("b", rig.append(log=1), log=1)
    rig.commit.next_round(0)
    rig.wait("a2", rig.append(log=0), log=0)
    rig.commit.round_done([StorageError("broken"), None])
    assert [(name, type(error)) for name, error in rig.answers] == [
        ("a", LogFencedError),
        ("a2", LogFencedError),
        ("b", type(None)),
    ]
    rig.wait("late", 1, log=0)
    assert rig.names[-1] == "late"
    assert isinstance(rig.answers[-1][1], LogFencedError)
    rig.now_us = 10 * SECOND
    assert rig.round() == 0
    assert rig.logs[0].syncs == 1
    assert rig.commit.statistics().unsynced_bytes == 0
    assert rig.commit.statistics().failed_syncs == 1


def test_a_full_broker_makes_room_in_order() -> None:
    """Beyond `max_unsynced_bytes` there is no room until a round of every dirty log; then the first has it first."""
    rig = Rig(logs=2, max_unsynced_bytes=100)
    rig.append(60, log=0)
    rig.append(40, log=1)
    assert not rig.commit.has_room(1)
    order: list[str] = []
    rig.commit.on_room(1, lambda: order.append("first"))
    rig.commit.on_room(1, lambda: order.append("second"))
    assert rig.round() == 2
    assert order == ["first", "second"]
    assert rig.commit.has_room(100)
    assert not rig.commit.has_room(101)


def test_nobody_overtakes_who_waits_for_more_room() -> None:
    """While a large one waits, what would fit has no room either; who gave up is in nobody's way."""
    rig = Rig(logs=2, max_unsynced_bytes=100)
    rig.append(60)
    order: list[str] = []

    def large() -> None:
        order.append("large")
        rig.append(45, log=1)

    def small() -> None:
        order.append("small")

    def gone() -> None:
        order.append("gone")

    for size, take in ((100, gone), (90, large), (60, small)):
        rig.commit.on_room(size, take)
    assert not rig.commit.has_room(1)
    rig.commit.off_room(gone)
    wakes = rig.wakes
    assert rig.round() == 1
    assert (order, rig.wakes) == (["large"], wakes + 1)
    assert rig.round() == 1
    assert order == ["large", "small"]


def test_half_full_syncs_without_waiting_for_the_second() -> None:
    """A fast writer whom nobody waits for is synced when half of the room is taken."""
    rig = Rig(max_unsynced_bytes=100)
    rig.append(50)
    assert rig.wakes == 0
    rig.append(1)
    assert rig.wakes == 1
    assert rig.round() == 1


def test_a_removed_log_lets_its_waiters_go_and_its_thread_finish() -> None:
    """Deleting a topic answers its waiters at once, but its files are let go only after the sync that runs on them."""
    rig = Rig()
    released: list[str] = []
    rig.wait("p", rig.append())
    rig.commit.next_round(0)
    rig.commit.remove(rig.logs[0], GONE, lambda: released.append("released"))
    assert rig.answers == [("p", GONE)]
    assert released == []
    rig.commit.round_done([None])
    assert released == ["released"]
    assert rig.progress == 0


def test_a_log_that_goes_with_the_end_of_a_round_is_told_nothing_more() -> None:
    """Who is called first when a round is done may let go of another log of it, which is closed then."""
    rig = Rig(2)
    closed: list[bool] = []

    def let_go(_error: TidelogError | None) -> None:
        rig.commit.remove(rig.logs[1], GONE, lambda: closed.append(True))

    rig.commit.wait(rig.logs[0], rig.append(log=0), Durability.SYNCED, let_go)
    rig.commit.wait(rig.logs[1], rig.append(log=1), Durability.SYNCED, lambda _error: None)
    assert len(rig.commit.next_round(0)) == 2
    rig.commit.round_done([None, None])
    assert (closed, rig.progress) == ([True], 1)


def test_an_idle_log_is_released_at_once() -> None:
    """Without a running sync a removed log is released in the call."""
    rig = Rig()
    rig.append(7)
    released: list[str] = []
    rig.commit.remove(rig.logs[0], GONE, lambda: released.append("released"))
    assert released == ["released"]
    assert rig.commit.statistics().unsynced_bytes == 0
    assert rig.commit.next_due_us() is None


def test_callbacks_may_append_and_wait_again() -> None:
    """Whoever is called back may go on with the same log at once; the next round serves it."""
    rig = Rig()

    def chain(left: int) -> Callable[[TidelogError | None], None]:
        def done(error: TidelogError | None) -> None:
            rig.answers.append((f"chain {left}", error))
            if left:
                rig.commit.wait(rig.logs[0], rig.append(), Durability.SYNCED, chain(left - 1))

        return done

    rig.commit.wait(rig.logs[0], rig.append(), Durability.SYNCED, chain(2))
    assert [rig.round(), rig.round(), rig.round(), rig.round()] == [1, 1, 1, 0]
    assert rig.names == ["chain 2", "chain 1", "chain 0"]


def test_a_wait_beyond_the_end_is_a_bug() -> None:
    """Nobody can wait for what was never appended."""
    rig = Rig()
    with pytest.raises(AssertionError):
        rig.wait("p", 1)
