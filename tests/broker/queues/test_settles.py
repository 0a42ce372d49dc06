"""Settle requests that come to more than one batch of events, and how much one request may say."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from tests.helpers.broker_core import SECOND, batch
from tests.helpers.faulty_files import FaultyFiles
from tests.helpers.frame_door import Call
from tests.helpers.queue_core import QueueCore, member_of, notebook, take
from tests.helpers.queue_core import settle as settle_some
from tests.helpers.queue_member import QueueMember

from tidelog.broker.delivery.events import Event, Kind
from tidelog.broker.queues.delivery_log import PIECES
from tidelog.broker.storage.files import MemoryFiles
from tidelog.protocol.errors import InvalidRequestError
from tidelog.protocol.messages import Acquire, LeaseRanges, Settle, SettleError, SettleReply, Settling
from tidelog.protocol.messages.groups import BackoffInfo, GroupSettings

COUNT = 4_000


def begin() -> tuple[QueueCore, FaultyFiles, QueueMember]:
    """A core, and a member that has leased 4,000 messages twice over: every second of them was tried before."""
    files = FaultyFiles(MemoryFiles())
    core = QueueCore(files)
    core.create("orders", 1)
    core.produce(core.topic("orders").partition(0), batch(*[b"%d" % number for number in range(COUNT)]))
    book, _events = notebook(core)
    given = GroupSettings(
        visibility_timeout_us=30 * SECOND,
        backoff=BackoffInfo("exponential", SECOND, 60 * SECOND, jitter_percent=0),
    )
    member = member_of(core, book, 1, given=given)
    for _ in range(4):
        take(core, member, COUNT // 4)
    settle_some(core, member, Settling.RELEASE, range(0, COUNT, 2), delay_us=0)
    settle_some(core, member, Settling.RETURN, range(1, COUNT, 2))
    for _ in range(4):
        take(core, member, COUNT // 4)
    assert [len(held.left) for held in member.held.values()] == [COUNT // 4] * 4
    return core, files, member


def release_all(core: QueueCore, member: QueueMember) -> list[str | None]:
    """Give all leases back as failed, in one request; the codes of the results."""
    request = member.settle([(held, Settling.RELEASE, [*held.left], -1) for held in [*member.held.values()]])
    return answer(core, request.call)


def answer(core: QueueCore, call: Call | None) -> list[str | None]:
    """Return the codes of an answer."""
    core.settle()
    assert call is not None
    reply = call.message()
    assert isinstance(reply, SettleReply)
    return [None if result is None else result.error().code for result in reply.results]


def appended(core: QueueCore) -> int:
    """How many events the delivery log holds."""
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    return log.log.end_offset


def test_a_settle_that_no_segment_holds_is_recorded_in_pieces() -> None:
    """Four leases of messages with different attempts, side by side, come to 128 KB of events; a segment has 48 KiB."""
    core, files, member = begin()
    before, writes = appended(core), files.calls["write_at"]
    assert release_all(core, member) == [None] * 4
    assert appended(core) - before == 8
    assert files.calls["write_at"] - writes >= 8
    states = core.states(core.topic("orders").id, 1_001)
    assert (states["g"].state, states["g"].attempts) == ("waiting", 1)
    core = core.next_process(files)
    assert core.states(core.topic("orders").id, 1_000)["g"].attempts == 2


def test_items_whose_piece_is_not_recorded_are_refused_and_can_be_repeated() -> None:
    """The disk is full after three pieces and a roll: the first lease is done, the second in part; the same again does the rest."""
    core, files, member = begin()
    files.fail("write_at", errno.ENOSPC, path="*/delivery/0*", after=4)
    before = appended(core)
    request = member.settle([(held, Settling.RELEASE, [*held.left], -1) for held in [*member.held.values()]])
    assert answer(core, request.call) == [None, "DISK_FULL", "DISK_FULL", "DISK_FULL"]
    assert appended(core) - before == 3
    request.call = member.connection.ask(request.settle)
    assert answer(core, request.call) == [None] * 4
    assert appended(core) - before == 8
    states = [core.states(core.topic("orders").id, offset)["g"] for offset in (0, 1, 1_000, 1_001, 3_998, 3_999)]
    assert [(state.state, state.attempts) for state in states] == [("waiting", 2), ("waiting", 1)] * 3


def test_pieces_count_errors_too() -> None:
    """What a member says of a failure is part of each event."""
    core, _files, member = begin()
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    room = log.log.segment_bytes // PIECES
    error = SettleError("ValueError", "x" * (room // 8), "")
    events = [Event(Kind.REJECTED, 1, 1, error=error) for _ in range(10)]
    assert [len(piece) for piece in log.pieces(events)] == [2, 2, 2, 2, 2]
    assert member.held


def test_events_of_one_deed_are_recorded_in_one_piece() -> None:
    """However the deeds before it fill the piece; unless it is half a segment by itself."""
    core, _files, member = begin()
    log = core.topic("orders").partition(0).delivery.log
    assert log is not None
    assert log.log.segment_bytes == 48 * 1024
    small = [Event(Kind.SUSPECTED, 1, 1, bytes(1_024))] * 3  # a piece is full at 3 KiB
    large = [Event(Kind.SUSPECTED, 1, 1, bytes(6_144))] * 3
    huge = [Event(Kind.SUSPECTED, 1, 1, bytes(2_048))] * 12
    one = [Event(Kind.SUSPECTED, 1, 1, bytes(1_024))]
    assert [len(piece) for piece in log.pieces_of([small, small])] == [3, 3]
    assert [len(piece) for piece in log.pieces_of([one, large, one, one])] == [4, 2]
    assert [len(piece) for piece in log.pieces_of([one, huge, small])] == [1, *[2] * 6, 3]
    assert [*log.pieces_of([])] == []
    assert member.held


# -- how much one request may say ------------------------------------------------------------------------------------


class Walked(list[LeaseRanges]):
    """Counts how often it is gone through."""

    walks = 0

    def __iter__(self) -> Iterator[LeaseRanges]:
        self.walks += 1
        return super().__iter__()


def reports(count: int, ranges: bytes = b"") -> Walked:
    """Reports of so many partitions, of which there is one."""
    return Walked(LeaseRanges(1, index, 1, ranges) for index in range(count))


@pytest.fixture
def joined() -> tuple[QueueCore, QueueMember]:
    """A core, and a member that holds nothing."""
    core = QueueCore()
    core.create("orders", 1)
    book, _events = notebook(core)
    return core, member_of(core, book, 1)


def test_the_hand_overs_of_a_settle_are_few_and_gone_through_once(joined: tuple[QueueCore, QueueMember]) -> None:
    """10,000 are checked and then grouped by their partitions, each in one go; one more is refused."""
    core, member = joined
    told = reports(10_000)
    core.queues.settle(Settle(member.group_id, member.generation, 1, 1, [], told))
    assert told.walks == 2
    with pytest.raises(InvalidRequestError, match="expected at most 10000 hand-overs in a settle request, found 10001"):
        core.queues.settle(Settle(member.group_id, member.generation, 1, 2, [], reports(10_001)))


def test_the_hand_overs_of_an_acquire_are_as_few(joined: tuple[QueueCore, QueueMember]) -> None:
    """And nothing waits after a refusal."""
    core, member = joined
    told = reports(10_000)
    core.queues.acquire(Acquire(member.group_id, member.generation, 1, [1], hand_overs=told))
    assert told.walks == 2
    timers = len(core.timers)
    with pytest.raises(InvalidRequestError, match="expected at most 10000 hand-overs in an acquire, found 10001"):
        core.queues.acquire(
            Acquire(member.group_id, member.generation, 1, [1], max_wait_us=SECOND, hand_overs=reports(10_001))
        )
    assert len(core.timers) == timers


def test_the_ranges_of_a_request_are_bounded_together(joined: tuple[QueueCore, QueueMember]) -> None:
    """65,536 of them, in few reports as in many."""
    core, member = joined
    core.queues.settle(Settle(member.group_id, member.generation, 1, 1, [], reports(64, bytes(16_384))))
    with pytest.raises(InvalidRequestError, match="expected at most 1048576 bytes of ranges in a settle request"):
        core.queues.settle(Settle(member.group_id, member.generation, 1, 2, [], reports(65, bytes(16_384))))
    with pytest.raises(InvalidRequestError, match="expected at most 1048576 bytes of ranges in an acquire"):
        core.queues.acquire(Acquire(member.group_id, member.generation, 1, [1], hand_overs=reports(65, bytes(16_384))))
