"""Reading, and waiting for something to read.

    READING --enough, an error, a change, or no wait asked for--> ANSWERED
       |--nothing yet--> WAITING --woken, looked again, enough--> ANSWERED
                            |----deadline-----------------------> ANSWERED, with what there is
                            |----withdrawn----------------------> over; the session answers it empty

Each position is read again only when its own partition wakes it, so that a fetch over a thousand quiet partitions
costs nothing while it waits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ...protocol.errors import InvalidRequestError, OffsetOutOfRangeError, StorageError, TidelogError
from ...protocol.limits import FRAME_MARGIN_BYTES, MAX_CONTROL_BYTES
from ...protocol.messages import Cancel, CancelReply, ErrorInfo, Fetch, FetchPosition, FetchReply, FetchResult
from ...protocol.messages.fetch import FETCH_RESULT_BYTES
from ..deferred import Deferred, FileSlice, Reply
from ..partition import Fetched, Partition, Wake, Watch
from ..timers import Timer
from .archive import archive_of
from .cold import is_cold, warm
from .context import Answer, Context, Peer

MAX_POSITIONS = MAX_CONTROL_BYTES // FETCH_RESULT_BYTES
"""So many results fit into one reply's control."""


def fetch(context: Context, request: Fetch) -> Answer:
    """Answer with whole stored batches, now or when there is something to say."""
    if len(request.positions) > MAX_POSITIONS:
        raise InvalidRequestError(f"expected at most {MAX_POSITIONS} positions, found {len(request.positions)}")
    reading = _Reading(context, request)
    return reading.begin()


def cancel(peer: Peer, request: Cancel) -> Reply:
    """Withdraw a waiting fetch or acquire of the same connection."""
    return Reply(CancelReply(peer.withdraw(request.correlation_id)))


def empty_reply(context: Context) -> Reply:
    """Return what a withdrawn fetch is answered with."""
    return Reply(FetchReply(context.topics.version, []))


class _Reading:
    """One fetch from its request to its reply."""

    def __init__(self, context: Context, request: Fetch) -> None:
        self._context = context
        self._request = request
        self._found: dict[int, Fetched] = {}
        self._of_log: set[int] = set()
        """Places that were asked of the log, which had them then."""
        self._bytes = 0
        self._pending = 0
        self._is_changed = False
        self._is_over = False
        self._watches: list[tuple[Partition, Watch]] = []
        self._topics_watch: Watch | None = None
        self._timer: Timer | None = None
        self._answer: Deferred[Reply] | None = None

    def begin(self) -> Answer:
        """Read every position once."""
        request = self._request
        self._is_changed = request.any_topic and self._context.topics.version > request.metadata_version
        for place in range(len(request.positions)):
            self._read(place)
        if self._is_enough:
            return self._end()
        self._answer = Deferred(self._close)
        if not self._pending:
            self._wait()
        return self._answer

    # -- reading -------------------------------------------------------------------------------------------------

    @property
    def _is_enough(self) -> bool:
        if self._pending:
            return False
        request = self._request
        return (
            request.max_wait_us == 0
            or request.verify
            or self._is_changed
            or self._bytes >= request.min_bytes
            or self._room <= 0
            or any(not fetched.result.bulk_bytes for fetched in self._found.values())
        )

    def _read(self, place: int) -> None:
        """Read one position (again) into what was found."""
        before = self._found.pop(place, None)
        if before is not None:
            self._bytes -= before.result.bulk_bytes
        position = self._request.positions[place]
        room = self._room
        if room <= 0:
            return
        try:
            partition = self._context.topics.partition(position.topic_id, position.partition)
            self._notice_change(position)
            fetched = self._ask(place, partition, min(room, position.max_bytes))
        except TidelogError as error:
            fetched = _refused(position, error)
        if isinstance(fetched, Deferred):
            self._pending += 1
            self._context.metrics.cold_reads += not self._request.verify
            fetched.on_done(partial(self._read_later, place))
        else:
            self._keep(place, fetched)

    def _ask(self, place: int, partition: Partition, max_bytes: int) -> Fetched | Deferred[Fetched]:
        request = self._request
        position = request.positions[place]
        self._of_log.discard(place)
        if request.archived and position.offset < partition.start_offset:
            return archive_of(self._context).reader.fetch(
                partition, position, max_bytes=max_bytes, timestamps=request.timestamps, verify=request.verify
            )
        if position.offset < partition.log.end_offset:
            self._of_log.add(place)
        if request.verify:
            return partition.verify(position, max_bytes=max_bytes)
        return partition.fetch(position, max_bytes=max_bytes, timestamps=request.timestamps)

    def _read_later(self, place: int, deferred: Deferred[Fetched]) -> None:
        self._pending -= 1
        if self._is_over:
            return
        position = self._request.positions[place]
        fetched = _refused(position, deferred.error) if deferred.error is not None else deferred.result()
        if self._was_moved(place, fetched):
            self._read(place)
        else:
            self._keep(place, fetched)
        if self._is_enough:
            self._resolve()
        elif not self._pending and self._timer is None:
            self._wait()

    def _was_moved(self, place: int, fetched: Fetched) -> bool:
        """Whether retention moved a place into the archive while a worker was to read it from the log."""
        error = fetched.result.error
        return (
            self._request.archived
            and place in self._of_log
            and error is not None
            and error.number == OffsetOutOfRangeError.number
        )

    def _keep(self, place: int, fetched: Fetched) -> None:
        """Remember an answer, unless it would make the reply larger than a frame; its reader asks for it again."""
        if not fetched.is_answer or (self._bytes and self._bytes + fetched.result.bulk_bytes > self._frame_room):
            return
        before = self._found.get(place)  # woken twice while a worker was at it, it is read twice
        self._bytes -= before.result.bulk_bytes if before is not None else 0
        self._found[place] = fetched
        self._bytes += fetched.result.bulk_bytes

    @property
    def _frame_room(self) -> int:
        results = len(self._request.positions) * FETCH_RESULT_BYTES
        return self._context.limits.max_frame_bytes - FRAME_MARGIN_BYTES - results

    @property
    def _room(self) -> int:
        return min(self._request.max_bytes, self._frame_room) - self._bytes

    def _notice_change(self, position: FetchPosition) -> None:
        known = self._request.metadata_version
        if known and self._context.topics.by_id(position.topic_id).changed_version > known:
            self._is_changed = True

    # -- waiting -------------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        """Watch every partition, and the clock."""
        context = self._context
        context.metrics.fetches_waited += 1
        due_us = context.time.monotonic_us() + min(self._request.max_wait_us, context.limits.max_wait_us)
        self._timer = context.timers.add(due_us, self._time_is_up)
        if self._request.any_topic:
            self._topics_watch = context.topics.changes.add(self._topics_changed)
        for place, position in enumerate(self._request.positions):
            partition = context.topics.partition(position.topic_id, position.partition)
            self._watches.append((partition, partition.watch(partial(self._woken, place))))

    def _woken(self, place: int, why: Wake) -> None:
        if self._is_over:
            return
        if why is Wake.CHANGED:
            self._is_changed = True
        else:  # where the topic is gone, reading says so
            self._read(place)
        if self._is_enough:
            self._resolve()

    def _topics_changed(self, _why: Wake) -> None:
        self._is_changed = True
        if not self._is_over and self._is_enough:
            self._resolve()

    def _time_is_up(self) -> None:
        if not self._is_over:
            self._resolve()

    # -- the end -------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        assert self._answer is not None, "only a fetch that waits is answered later"
        answer = self._end()
        if isinstance(answer, Reply):
            self._answer.resolve(answer)
        else:
            answer.on_done(self._pass_on)

    def _pass_on(self, warmed: Deferred[Reply]) -> None:
        assert self._answer is not None, "only a fetch that waits is answered later"
        self._answer.resolve(warmed.result())

    def _end(self) -> Answer:
        """Return the reply, later if its bytes must come from the disk first."""
        self._close()
        found = [self._found[place] for place in sorted(self._found)]
        if not any(is_cold(fetched.bulk) for fetched in found):
            return self._reply(found)
        later: Deferred[Reply] = Deferred()

        def warmed(problem: StorageError | None) -> None:
            later.resolve(self._reply(found if problem is None else _without(found, problem)))

        warm(self._context, [piece for fetched in found for piece in fetched.bulk], warmed)
        return later

    def _reply(self, found: Sequence[Fetched]) -> Reply:
        bulk: list[FileSlice] = [piece for fetched in found for piece in fetched.bulk]
        self._context.metrics.fetched_bytes += sum(fetched.result.bulk_bytes for fetched in found)
        return Reply(FetchReply(self._context.topics.version, [fetched.result for fetched in found]), bulk)

    def _close(self) -> None:
        """Look and wait no longer; also called when the fetch is withdrawn."""
        self._is_over = True
        if self._timer is not None:
            self._context.timers.cancel(self._timer)
        if self._topics_watch is not None:
            self._context.topics.changes.remove(self._topics_watch)
        for partition, watch in self._watches:
            partition.unwatch(watch)
        self._watches.clear()


def _refused(position: FetchPosition, error: TidelogError) -> Fetched:
    result = FetchResult(position.topic_id, position.partition, position.offset, 0, 0, 0, ErrorInfo.of(error))
    return Fetched(result)


def _without(found: Sequence[Fetched], problem: StorageError) -> list[Fetched]:
    """Return the answers with an error in place of each that has stored bytes: which of them failed is not known."""
    kept: list[Fetched] = []
    for fetched in found:
        result = fetched.result
        if result.bulk_bytes:
            position = FetchPosition(result.topic_id, result.partition, result.next_offset)
            fetched = _refused(position, problem)
        kept.append(fetched)
    return kept
